"""Learners that share streams: each stream has one leader, the load is spread, and none is lost but by a death."""

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from harness.redis_server import RedisServer, running_redis
from harness.stream_process import StreamProcess
from harness.waiting import eventually
from shoal.mixture import StreamSettings
from shoal_service.errors import StoreUnavailableError
from shoal_service.streams.shared.lease_manager import ranked

pytestmark = pytest.mark.redis

STREAMS = 30
LEASE_S = 2.0
"""Longer than a thread of a busy machine waits for its turn: who may not lose a lease does not."""
SETTINGS = StreamSettings(n_features=2).to_json().encode()


@pytest.fixture(scope="module")
def server(redis_binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running_redis(redis_binary, tmp_path_factory.mktemp("redis")) as started:
        yield started


@pytest.fixture
def begin(server: RedisServer, tmp_path: Path) -> Iterator[Callable[..., StreamProcess]]:
    prefix = f"test-{uuid.uuid4().hex}"
    with ExitStack() as stack:

        def start(**settings: Any) -> StreamProcess:
            process = StreamProcess(
                server,
                prefix,
                "learner",
                data_dir=tmp_path,
                refine_in_learners=False,
                **settings,
            )
            stack.callback(process.end)
            return process

        yield start


def create(process: StreamProcess, n: int = STREAMS) -> None:
    for i in range(n):
        process.store.create_stream(f"s{i}", str(uuid.uuid4()), SETTINGS, max_streams=1000)


def led(*processes: StreamProcess) -> Counter[str]:
    """How many of the processes lead each stream. Those that get streams come first: one that moves is counted once."""
    return Counter(name for process in processes for name in process.runtime.learners)


def test_the_order_of_learners_moves_no_stream_between_two_that_stay() -> None:
    keys = [(f"s{n}", "inc") for n in range(500)]
    before = [ranked(key, ["a", "b", "c"])[0] for key in keys]
    after = [ranked(key, ["a", "b"])[0] for key in keys]
    assert all(old == new for old, new in zip(before, after, strict=True) if old != "c")
    assert all(120 < count < 220 for count in Counter(before).values())


def test_a_learner_that_joins_gets_its_share_and_each_stream_has_one_leader(begin: Any) -> None:
    first = begin(lease_s=LEASE_S)
    create(first)
    eventually(lambda: len(led(first)) == STREAMS)
    second = begin(lease_s=LEASE_S)
    owners = [process.runtime.leases.owner for process in (first, second)]
    records = first.store.list_streams()
    wanted = Counter(ranked((r.name, r.incarnation), owners)[0] for r in records)

    def spread() -> bool:
        counts = led(second, first)
        assert max(counts.values()) == 1, "no stream is counted twice"
        return len(first.runtime.learners) == wanted[owners[0]] and len(counts) == STREAMS

    eventually(spread)
    assert len(second.runtime.learners) == wanted[owners[1]] > STREAMS // 4
    for process in (first, second):
        assert "stepping_down" not in process.events()
        assert "learner_superseded" not in process.events()


def test_the_streams_of_a_learner_that_dies_are_all_led_again_soon_after_its_leases(begin: Any) -> None:
    processes = [begin(lease_s=2.0) for _ in range(3)]
    create(processes[0])
    eventually(lambda: len(led(*processes)) == STREAMS and all(p.runtime.learners for p in processes))
    dead, *others = processes
    dead.die()
    eventually(lambda: len(led(*others)) == STREAMS)
    assert max(led(*others).values()) == 1


def test_a_process_that_ends_waits_for_a_store_that_is_away_once_and_not_for_each_of_its_streams(
    begin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many streams, that took longer than the time in which a process must end."""
    process = begin(lease_s=LEASE_S)
    create(process, 4)
    eventually(lambda: len(led(process)) == 4)
    sharing, asked = process.store.sharing, []

    def is_away(what: str) -> Callable[..., None]:
        def call(*_: Any) -> None:
            asked.append(what)
            raise StoreUnavailableError("redis cannot be reached")

        return call

    monkeypatch.setattr(sharing, "withdraw", is_away("withdraw"))
    monkeypatch.setattr(sharing, "release_lease", is_away("release"))
    process.end()
    assert asked == ["withdraw"]
    assert "learner_not_withdrawn" in process.events()


def test_leases_are_renewed_while_other_streams_are_taken_however_long_that_takes(
    begin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round that took longer than a lease used to lose the leases to a learner that was idle."""
    here, there = begin(lease_s=LEASE_S), begin(lease_s=LEASE_S)
    create(here, 8)
    eventually(lambda: len(led(here, there)) == 8)
    for process in (here, there):
        acquire = process.store.sharing.acquire_lease

        def slow(*given: Any, acquire: Any = acquire) -> Any:
            time.sleep(0.6 * LEASE_S)
            return acquire(*given)

        monkeypatch.setattr(process.store.sharing, "acquire_lease", slow)
    for i in range(8, 76):
        here.store.create_stream(f"s{i}", str(uuid.uuid4()), SETTINGS, max_streams=1000)
    eventually(lambda: len(led(here, there)) == 76)
    for process in (here, there):
        assert "stepping_down" not in process.events()
        assert "learner_superseded" not in process.events()


def test_streams_that_were_taken_and_lost_are_counted(begin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A learner that was cut off for longer than its lease has lost its stream. One that ends in good order has not."""
    first = begin(lease_s=1.0)
    create(first, 3)
    eventually(lambda: len(led(first)) == 3)
    leases = first.runtime.leases
    assert (leases.counters.taken, leases.counters.lost) == (3, 0)
    record, sharing = first.store.list_streams()[0], first.store.sharing

    def cut_off(*given: Any) -> Any:
        raise StoreUnavailableError("the network is cut")

    with monkeypatch.context() as cut:
        cut.setattr(sharing, "renew_leases", cut_off)
        eventually(lambda: sharing.acquire_lease(record.name, record.incarnation, "another", 60.0) is not None)
    eventually(lambda: len(led(first)) == 2 and leases.counters.lost == 1)
    assert leases.counters.taken == 3
    first.end()
    assert leases.counters.lost == 1
