"""Pieces that processes compute for one another over a real Redis: the same bits, whatever becomes of a helper."""

import contextlib
import io
import json
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from harness.redis_server import RedisServer, running_redis
from harness.waiting import LONGEST_WAIT_S, eventually
from shoal.mixture import StreamSettings, to_bytes
from shoal.partitions import PieceRunner, assimilate_inplace, in_turn
from shoal.points.arrays import Array
from shoal.sequential import compile_kernels, initial_state
from shoal_service.errors import StoreUnavailableError
from shoal_service.logs import make_log
from shoal_service.settings import Settings
from shoal_service.store.redis import RedisStore
from shoal_service.streams.shared import PieceSharing, piece_helper, pieces

pytestmark = pytest.mark.redis

ROUND = 1_024
STREAM = StreamSettings(n_features=3, partitions=3, half_life=4_096.0, warmup_points=200)


@pytest.fixture(scope="module")
def server(redis_binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running_redis(redis_binary, tmp_path_factory.mktemp("redis")) as started:
        yield started


@pytest.fixture(autouse=True)
def _every_piece_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short rounds, whose pieces are offered at any size, and waited for at any pace."""
    monkeypatch.setattr("shoal.mixture.round.ROUND_ROWS", ROUND)
    monkeypatch.setattr("shoal.mixture.round.LEAST_ROUND_ROWS", 64)
    for name, value in {"LEAST_WORK_S": -1.0, "PAUSE_S": 0.0, "LEAST_WAIT_S": LONGEST_WAIT_S}.items():
        monkeypatch.setattr(pieces, name, value)
    monkeypatch.setattr(piece_helper, "CLAIM_S", LONGEST_WAIT_S)


class Process:
    """What one process shares with others."""

    def __init__(self, server: RedisServer, prefix: str) -> None:
        self.written = io.StringIO()
        self.store = RedisStore(server.url, prefix=prefix, timeout_s=5.0)
        settings = Settings(store="redis", piece_threads=1)
        self.sharing = PieceSharing(self.store.messages, settings, make_log("debug", "json", self.written))
        self.sharing.start()

    def end(self) -> None:
        assert self.sharing.close(LONGEST_WAIT_S)
        self.store.close()

    def events(self) -> list[str]:
        return [json.loads(line)["event"] for line in self.written.getvalue().splitlines()]


@pytest.fixture
def begin(server: RedisServer) -> Iterator[Callable[[], Process]]:
    prefix = f"test-{uuid.uuid4().hex}"
    with ExitStack() as stack:

        def start() -> Process:
            process = Process(server, prefix)
            stack.callback(process.end)
            return process

        yield start


def leader_and_helpers(begin: Callable[[], Process], n: int = 1) -> tuple[Process, list[Process]]:
    """A process that learns, which hears of the others."""
    leader, *helpers = (begin() for _ in range(1 + n))
    listening(leader, n)
    return leader, helpers


def listening(leader: Process, n: int) -> None:
    """Wait until n others hear what this process sends to all, and it hears what it sends to itself."""

    def all_hear() -> bool:
        with contextlib.suppress(StoreUnavailableError):
            return leader.store.messages.send(leader.sharing._messages.everyone, b"gone none none\n") == n + 1
        return False

    eventually(all_hear, "the others never listened")


def rows(n: int = 4 * ROUND + 500) -> Array:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 3)) + 8.0 * rng.integers(4, size=(n, 1))
    x[n // 2 :, 1] += 30.0
    return x


def learnt(run: PieceRunner, x: Array) -> tuple[bytes, list[Any], Array]:
    """State, events and labels after rows."""
    state = initial_state(STREAM)
    compile_kernels(state)
    events, labels = [], []
    for part in np.split(x, [ROUND + 100, 2 * ROUND + 200]):
        state, info = assimilate_inplace(state, part, run)
        events += info.events
        labels.append(info.labels)
    return to_bytes(state), events, np.concatenate(labels)


@cache
def alone() -> tuple[bytes, list[Any], Array]:
    """What this process learns by itself."""
    return learnt(in_turn, rows())


def assert_same_as_alone(run: PieceRunner) -> None:
    here, there = alone(), learnt(run, rows())
    assert there[0] == here[0]
    assert there[1] == here[1]
    assert_array_equal(there[2], here[2])


def let_them_be_claimed(process: Process, monkeypatch: pytest.MonkeyPatch, enough: Any = all) -> None:
    """Have a process wait until its offers are claimed, all or any, before it takes any back."""
    sharing = process.sharing
    take_back = sharing.take_back

    def later(offer: Any) -> bool:
        offers = list(sharing._offers.values())
        eventually(lambda: enough(each.state != "offered" for each in offers), "nobody claimed a piece")
        return take_back(offer)

    monkeypatch.setattr(process.sharing, "take_back", later)


def offers_once(leader: Process, monkeypatch: pytest.MonkeyPatch) -> PieceRunner:
    """A runner that offers pieces of one round, and of none after it."""
    runner = leader.sharing.runner()

    def once(tasks: Any) -> Any:
        if leader.sharing.counters.sent:
            monkeypatch.setattr(runner, "_n_to_offer", lambda tasks: 0)
        return runner(tasks)

    return once


def claims_nothing(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process.sharing._helper, "_claim", lambda: None)


@pytest.mark.parametrize("n_helpers", [1, 2])
def test_pieces_that_others_compute_give_the_same_bits(
    n_helpers: int, begin: Callable[[], Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, helpers = leader_and_helpers(begin, n_helpers)
    let_them_be_claimed(leader, monkeypatch)
    assert_same_as_alone(leader.sharing.runner())
    counters = leader.sharing.counters
    assert counters.answered == counters.sent > 0, [h.written.getvalue() for h in (leader, *helpers)]
    assert (counters.taken_back, counters.lost, counters.computed_for_others) == (0, 0, 0)
    eventually(lambda: sum(h.sharing.counters.computed_for_others for h in helpers) == counters.sent)
    assert leader.sharing._offers == {}


def test_pieces_that_nobody_claims_are_taken_back(
    begin: Callable[[], Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, (helper,) = leader_and_helpers(begin)
    claims_nothing(helper, monkeypatch)
    assert_same_as_alone(leader.sharing.runner())
    counters = leader.sharing.counters
    assert counters.taken_back == counters.sent > 0
    assert leader.sharing._offers == {}


def test_a_helper_that_stalls_costs_time_only(begin: Callable[[], Process], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its result comes when nobody waits for it any more."""
    leader, (helper,) = leader_and_helpers(begin)
    let_them_be_claimed(leader, monkeypatch, any)
    monkeypatch.setattr(pieces, "LEAST_WAIT_S", 0.0)
    monkeypatch.setattr(pieces, "WAIT_FACTOR", 0.0)
    go_on, computed = threading.Event(), piece_helper.compute_piece

    def stalls(task: Any) -> bytes:
        assert go_on.wait(LONGEST_WAIT_S)
        return computed(task)

    monkeypatch.setattr(piece_helper, "compute_piece", stalls)
    assert_same_as_alone(offers_once(leader, monkeypatch))
    counters = leader.sharing.counters
    assert counters.lost == 1
    go_on.set()
    eventually(lambda: helper.sharing.counters.computed_for_others == 1)
    assert counters.answered == 0
    assert leader.sharing._offers == {}


def test_helpers_that_stall_together_are_waited_for_once(
    begin: Callable[[], Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, _ = leader_and_helpers(begin, 2)
    let_them_be_claimed(leader, monkeypatch)
    limits, result = [], leader.sharing.result

    def noted(offer: Any, until: float) -> Any:
        limits.append(until)
        return result(offer, until)

    monkeypatch.setattr(leader.sharing, "result", noted)
    monkeypatch.setattr(leader.sharing, "others", 2)
    assert_same_as_alone(offers_once(leader, monkeypatch))
    assert len(limits) == 2
    assert limits[0] == limits[1]


def test_a_helper_that_ends_between_claim_and_task_costs_no_wait(
    begin: Callable[[], Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, (helper,) = leader_and_helpers(begin)
    let_them_be_claimed(leader, monkeypatch, any)
    handlers = leader.sharing._messages._handlers
    on_claim = handlers["claim"]

    def too_late(piece: str, process: str, nothing: Any) -> None:
        on_claim(piece, "0" * 32, nothing)  # a process that nobody is any more

    monkeypatch.setitem(handlers, "claim", too_late)
    assert_same_as_alone(offers_once(leader, monkeypatch))  # within the limit of a test, and would wait for longer
    assert leader.sharing.counters.lost == 1
    assert helper.sharing.counters.computed_for_others == 0


def test_a_process_of_another_version_hears_nothing(
    begin: Callable[[], Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("shoal.partitions.pieces_version", lambda: "another")
        helper = begin()
    leader = begin()
    listening(leader, 0)
    listening(helper, 0)
    assert_same_as_alone(leader.sharing.runner())
    assert leader.sharing.counters.taken_back == leader.sharing.counters.sent > 0
    assert helper.sharing.counters.computed_for_others == 0


def test_a_piece_that_a_helper_refuses_is_computed_by_the_learner_at_once(
    begin: Callable[[], Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, (helper,) = leader_and_helpers(begin)
    let_them_be_claimed(leader, monkeypatch)

    def fails(task: Any) -> bytes:
        raise MemoryError("none left")

    monkeypatch.setattr(piece_helper, "compute_piece", fails)
    assert_same_as_alone(leader.sharing.runner())  # within the limit of a test, though it would wait for longer
    counters = leader.sharing.counters
    assert counters.lost == counters.sent > 0
    assert "piece_refused" in helper.events()


def test_a_server_that_is_killed_and_started_again_costs_time_only(redis_binary: str, tmp_path: Any) -> None:
    with running_redis(redis_binary, tmp_path) as server, ExitStack() as stack:
        leader, helper = (Process(server, "p") for _ in range(2))
        stack.callback(leader.end)
        stack.callback(helper.end)
        listening(leader, 1)
        runner = leader.sharing.runner()

        def run(tasks: Any) -> Any:
            server.kill()
            results = runner(tasks)
            server.start()
            return results

        assert_same_as_alone(run)
        listening(leader, 1)
        before = leader.sharing.counters.sent
        assert_same_as_alone(leader.sharing.runner())
        assert leader.sharing.counters.sent > before


def test_a_call_that_fails_leaves_nothing_behind(begin: Callable[[], Process], monkeypatch: pytest.MonkeyPatch) -> None:
    leader, (helper,) = leader_and_helpers(begin)
    claims_nothing(helper, monkeypatch)
    runner = leader.sharing.runner()
    computed_here = runner._computed_here

    def fails(tasks: Any) -> Any:
        if leader.sharing.counters.sent:
            raise MemoryError("none left")
        return computed_here(tasks)

    monkeypatch.setattr(runner, "_computed_here", fails)
    with pytest.raises(MemoryError):
        learnt(runner, rows())
    assert leader.sharing.counters.sent > 0
    assert leader.sharing._helper._busy == 0
    assert leader.sharing._offers == {}


def test_offers_that_cannot_be_made_leave_nothing_behind(
    begin: Callable[[], Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = begin()

    def fails(channel: str, *parts: Any) -> int:
        raise MemoryError("none left")

    monkeypatch.setattr(leader.store.messages, "send", fails)
    with pytest.raises(MemoryError):
        learnt(leader.sharing.runner(), rows())
    assert leader.sharing._helper._busy == 0
    assert leader.sharing._offers == {}


def test_a_server_that_does_not_answer_is_asked_once_a_call(
    begin: Callable[[], Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, _ = leader_and_helpers(begin)
    monkeypatch.setattr(leader.sharing, "others", 2)
    calls, sent = [], []

    def fails(channel: str, *parts: Any) -> int:
        sent.append(channel)
        raise StoreUnavailableError("no answer")

    def run(tasks: Any) -> Any:
        calls.append(len(tasks))
        return runner(tasks)

    runner = leader.sharing.runner()
    monkeypatch.setattr(leader.store.messages, "send", fails)
    assert_same_as_alone(run)
    assert len(sent) == sum(n > 1 for n in calls)


def test_small_pieces_stay_at_home(begin: Callable[[], Process], monkeypatch: pytest.MonkeyPatch) -> None:
    leader, _ = leader_and_helpers(begin)
    monkeypatch.setattr(pieces, "LEAST_WORK_S", 1e9)
    assert_same_as_alone(leader.sharing.runner())
    assert leader.sharing.counters.sent == 0


def test_after_offers_for_nothing_comes_a_pause(begin: Callable[[], Process], monkeypatch: pytest.MonkeyPatch) -> None:
    leader, (helper,) = leader_and_helpers(begin)
    claims_nothing(helper, monkeypatch)
    monkeypatch.setattr(pieces, "PAUSE_S", 1e9)
    monkeypatch.setattr(pieces, "LEAST_GAIN", 1e9)  # on a machine that falters, the first pieces seem to have paid
    assert_same_as_alone(leader.sharing.runner())
    assert 0 < leader.sharing.counters.sent <= 2, "of one round, and never again"
