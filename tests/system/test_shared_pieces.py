"""Several processes that learn one stream over a real Redis: the library's own bits, and each point once, whatever is
killed, stopped or started again in the middle of a piece."""

import io
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.piece_service import PieceFleet
from harness.redis_server import running_redis
from harness.running_service import RunningService
from harness.waiting import eventually
from harness.web import WEB
from shoal.mixture import StreamSettings, from_bytes, to_bytes
from shoal.partitions import assimilate_inplace
from shoal.sequential import initial_state

pytestmark = [pytest.mark.system, pytest.mark.redis]

FEATURES, ROUND = 12, 16_384
SETTINGS = {"n_features": FEATURES, "family": "gaussian", "refinement": None, "window": 0, "partitions": 3}
BATCH = ROUND


class Stream:
    """A stream on a fleet, and the points that it acknowledged."""

    def __init__(self, fleet: PieceFleet) -> None:
        self.fleet = fleet
        self.sent = 0
        rng = np.random.default_rng(3)
        self._means = 6.0 * rng.normal(size=(40, FEATURES))
        self._rng = rng
        self._rows: list[np.ndarray] = []
        """Those that `_alone` has not learnt yet."""
        self._alone = initial_state(StreamSettings.from_dict(SETTINGS))
        WEB.put(f"{self.url}", json=SETTINGS, timeout=60.0).raise_for_status()
        self.send()  # the warm-up, and the rows before the first round

    @property
    def url(self) -> str:
        return f"{self.fleet.apis[0].url}/streams/s"

    def send(self) -> None:
        """One more batch, a whole round of rows, until it is acknowledged."""
        x = self._means[self._rng.integers(len(self._means), size=BATCH)] + self._rng.normal(size=(BATCH, FEATURES))
        body = io.BytesIO()
        np.save(body, x)
        headers = {"content-type": "application/x-npy", "Idempotency-Key": f"batch-{self.sent}"}

        def acknowledged() -> bool:
            reply = WEB.post(f"{self.url}/ingest", content=body.getvalue(), headers=headers, timeout=150.0)
            assert reply.status_code in (202, 503), reply.text
            return reply.status_code == 202

        eventually(acknowledged)
        self._rows.append(x)
        self.sent += 1

    def learnt(self) -> None:
        """Wait until all is learnt."""
        eventually(lambda: self._snapshot() is not None)

    def assert_same_as_alone(self) -> None:
        """All that was acknowledged is there once, with the bits of one process."""
        found = eventually(self._snapshot)
        state, _ = from_bytes(found)
        while self._rows:
            self._alone, _ = assimilate_inplace(self._alone, self._rows.pop(0))
        assert state.points_seen == self.sent * BATCH
        assert to_bytes(state) == to_bytes(self._alone)

    def _snapshot(self) -> bytes | None:
        params = {"min_offset": self.sent * BATCH, "timeout": 5}
        reply = WEB.get(f"{self.url}/snapshot", params=params, timeout=150.0)
        return reply.content if reply.status_code == 200 else None


def metric(service: RunningService, name: str) -> float:
    """A counter of pieces of one process."""
    text = WEB.get(f"{service.url}/metrics", timeout=60.0).text
    (line,) = [line for line in text.splitlines() if line.startswith(f"shoal_pieces_{name}_total ")]
    return float(line.split()[1])


def led(fleet: PieceFleet) -> tuple[RunningService, list[RunningService]]:
    """The process that leads the stream, and the others that learn."""
    leader = eventually(fleet.leader)
    return leader, [service for service in fleet.learners if service is not leader and service.process is not None]


def send_until(stream: Stream, happened: Callable[[], bool]) -> None:
    """Send batches, each learnt before the next, until something has happened: at which one depends on the machine."""

    def sent() -> bool:
        stream.send()
        stream.learnt()
        return happened()

    eventually(sent, "it never happened")


def helped(leader: RunningService, others: list[RunningService]) -> bool:
    """Whether the leader has had results of others, and each of these has computed a piece."""
    return metric(leader, "answered") > 0 and all(metric(other, "computed_for_others") > 0 for other in others)


def stopped_in_a_piece(stream: Stream, fleet: PieceFleet) -> RunningService:
    """A helper that is in the middle of a piece and stays there; the stream goes on meanwhile."""
    fleet.hold.touch()
    pid = fleet.hold.with_suffix(".pid")
    send_until(stream, pid.exists)
    number = int(eventually(pid.read_text))
    return next(service for service in fleet.learners if service.process is not None and service.process.pid == number)


@pytest.fixture
def fleet_of(redis_binary: str, tmp_path: Path) -> Iterator[Callable[[int], PieceFleet]]:
    fleets: list[PieceFleet] = []
    with running_redis(redis_binary, tmp_path) as server:

        def start(learners: int) -> PieceFleet:
            settings: dict[str, Any] = {"piece_threads": 1, "checkpoint_interval_s": 1.0, "lease_s": 2.0}
            fleet = PieceFleet(tmp_path, server, apis=1, learners=learners, **settings)
            fleets.append(fleet)
            fleet.start()
            return fleet

        try:
            yield start
        finally:
            for fleet in fleets:
                fleet.close()  # also ends what is stopped


def test_a_helper_killed_in_the_middle_of_a_piece_costs_time_only(fleet_of: Callable[[int], PieceFleet]) -> None:
    fleet = fleet_of(2)
    stream = Stream(fleet)
    leader, others = led(fleet)
    send_until(stream, lambda: helped(leader, others))
    lost = metric(leader, "lost")
    helper = stopped_in_a_piece(stream, fleet)
    assert helper in others
    helper.kill()
    fleet.hold.unlink()
    eventually(lambda: metric(leader, "lost") > lost)
    stream.send()
    stream.assert_same_as_alone()
    helper.start()
    send_until(stream, lambda: metric(helper, "computed_for_others") > 0)
    stream.assert_same_as_alone()


def test_a_helper_that_is_stopped_in_the_middle_of_a_piece_costs_time_only(
    fleet_of: Callable[[int], PieceFleet],
) -> None:
    fleet = fleet_of(2)
    stream = Stream(fleet)
    leader, others = led(fleet)
    send_until(stream, lambda: helped(leader, others))
    lost = metric(leader, "lost")
    helper = stopped_in_a_piece(stream, fleet)
    assert helper.process is not None
    helper.process.send_signal(signal.SIGSTOP)
    fleet.hold.unlink()
    eventually(lambda: metric(leader, "lost") > lost)
    stream.send()
    stream.assert_same_as_alone()
    before = metric(leader, "answered")
    helper.process.send_signal(signal.SIGCONT)
    eventually(lambda: metric(helper, "computed_for_others") >= 2)  # its answer comes too late for anybody
    send_until(stream, lambda: metric(leader, "answered") > before)
    stream.assert_same_as_alone()


def test_a_learner_killed_while_others_compute_for_it_loses_and_repeats_nothing(
    fleet_of: Callable[[int], PieceFleet],
) -> None:
    fleet = fleet_of(3)
    stream = Stream(fleet)
    leader, others = led(fleet)
    send_until(stream, lambda: helped(leader, others))
    stream.assert_same_as_alone()
    fleet.hold.touch()
    pid = fleet.hold.with_suffix(".pid")
    stream.send()  # acknowledged; the rest of it is learnt by another

    def in_a_piece() -> bool:
        if not pid.exists():
            stream.send()
        return pid.exists()

    eventually(in_a_piece)
    leader.kill()
    fleet.hold.unlink()
    stream.send()
    stream.assert_same_as_alone()
    successor, _ = led(fleet)
    assert successor is not leader
    leader.start()
    send_until(stream, lambda: metric(successor, "answered") > 0)
    stream.assert_same_as_alone()


def test_a_server_killed_in_the_middle_of_a_piece_costs_time_only(fleet_of: Callable[[int], PieceFleet]) -> None:
    fleet = fleet_of(2)
    stream = Stream(fleet)
    leader, others = led(fleet)
    send_until(stream, lambda: helped(leader, others))
    stopped_in_a_piece(stream, fleet)
    fleet.server.kill()
    fleet.hold.unlink()
    fleet.server.start()
    stream.send()
    stream.assert_same_as_alone()
    leader, others = led(fleet)
    before = metric(leader, "answered")
    send_until(stream, lambda: metric(leader, "answered") > before)
    stream.assert_same_as_alone()
