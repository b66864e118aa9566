"""Many streams on three learners over one Redis: spread evenly, and led again soon after a learner is killed."""

import time
import uuid
from collections import Counter
from pathlib import Path

import pytest

from harness.fleet import Fleet
from harness.redis_server import RedisServer, running_redis
from harness.waiting import LONGEST_WAIT_S, eventually
from shoal.mixture import StreamSettings
from shoal_service.store.redis import RedisStore

pytestmark = [pytest.mark.system, pytest.mark.redis]

LEASE_S = 5.0
SETTINGS = StreamSettings(n_features=2).to_json().encode()


def leaders(server: RedisServer) -> Counter[int]:
    """How many streams each process leads, by the leases in the server."""
    with server.client() as client:
        keys = list(client.scan_iter("*:lease", count=2_000))
        return Counter(int(lease.split(b":")[-2]) for lease in client.mget(keys) if lease is not None)


def seconds_until(server: RedisServer, n: int, pids: set[int], limit_s: float) -> float:
    began = time.monotonic()
    while sum(count for pid, count in leaders(server).items() if pid in pids) < n:
        assert time.monotonic() - began < limit_s, leaders(server)
        time.sleep(0.05)
    return time.monotonic() - began


@pytest.mark.parametrize(
    ("streams", "watched_s"), [(90, 2.0), pytest.param(500, 600.0, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])]
)
def test_the_streams_of_a_killed_learner_are_led_again_and_no_other_changes_hands(
    redis_binary: str, tmp_path: Path, streams: int, watched_s: float
) -> None:
    with running_redis(redis_binary, tmp_path) as server:
        fleet = Fleet(tmp_path, server, apis=0, learners=3, lease_s=LEASE_S)
        try:
            fleet.start()
            pids = [s.process.pid for s in fleet.learners if s.process is not None]
            store = RedisStore(server.url)
            for n in range(streams):
                store.create_stream(f"s{n}", str(uuid.uuid4()), SETTINGS, max_streams=streams)
            store.close()
            seconds_until(server, streams, set(pids), LONGEST_WAIT_S)
            # Each leads a third, up to four deviations of the hash, and fewer if it was slow as the streams came:
            # what others then took stays there for a while. `test_leases.py` has the exact split.
            eventually(
                lambda: min(leaders(server)[pid] for pid in pids) >= streams // 8, lambda: leaders(server), pause_s=0.1
            )
            time.sleep(watched_s)
            fleet.learners[0].kill()
            took_s = seconds_until(server, streams, set(pids[1:]), LONGEST_WAIT_S)
            print(f"{streams} streams led again after {took_s:.1f} s: {leaders(server)}")  # noqa: T201 - the figures
            time.sleep(watched_s)
            for learner in fleet.learners:
                text = learner.log.read_text(errors="replace")
                assert "stepping_down" not in text
                assert "learner_superseded" not in text
                assert "Traceback" not in text
        finally:
            fleet.close()
