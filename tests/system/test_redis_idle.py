"""A fleet over one Redis to which nobody sends anything: it publishes and computes next to nothing."""

import time
from pathlib import Path

import psutil
import pytest

from harness.fleet import Fleet
from harness.redis_server import RedisServer, running_redis
from harness.web import WEB

pytestmark = [pytest.mark.system, pytest.mark.redis]

STREAMS = 50
WATCHED_S = 4.0
MESSAGES_PER_S, SHARE_OF_A_CORE = 5.0, 0.1
"""A learner of 50 idle streams takes .02 to .04 of a core, the latter on a slow and busy machine. A loop that does
not wait takes all of one."""


def published(server: RedisServer) -> int:
    with server.client() as client:
        stats = client.info("commandstats")
    return int(stats.get("cmdstat_publish", {}).get("calls", 0))


class Watched:
    """What a fleet publishes and computes."""

    def __init__(self, server: RedisServer, fleet: Fleet) -> None:
        self.server = server
        self.processes = {s.data.name: psutil.Process(s.process.pid) for s in fleet.services if s.process is not None}

    def during(self, seconds: float) -> tuple[float, dict[str, float]]:
        """Messages a second, and each process's share of a core, from now on for so long."""
        messages, busy, began = published(self.server), self._busy(), time.monotonic()
        time.sleep(seconds)
        now, took = self._busy(), time.monotonic() - began
        return (published(self.server) - messages) / took, {name: (now[name] - busy[name]) / took for name in now}

    def _busy(self) -> dict[str, float]:
        return {name: sum(process.cpu_times()[:2]) for name, process in self.processes.items()}

    @staticmethod
    def idle(rate: float, shares: dict[str, float]) -> bool:
        """Whether that is next to nothing."""
        return rate < MESSAGES_PER_S and all(share < SHARE_OF_A_CORE for share in shares.values())


def test_an_idle_fleet_publishes_and_computes_next_to_nothing(redis_binary: str, tmp_path: Path) -> None:
    with running_redis(redis_binary, tmp_path) as server:
        fleet = Fleet(tmp_path, server, apis=1, learners=1, refiners=1, lease_s=10.0, checkpoint_interval_s=3600.0)
        try:
            fleet.start()
            for n in range(STREAMS):
                url = f"{fleet.apis[0].url}/streams/s{n}"
                WEB.put(url, json={"n_features": 2}).raise_for_status()
                points = [[float(n), 0.0], [0.0, float(n)]]
                WEB.post(f"{url}/ingest", json={"points": points}).raise_for_status()
            asked = WEB.post(
                f"{fleet.apis[0].url}/streams/s0/refine", json={}, timeout=30.0
            )  # refused: still warming up
            assert asked.status_code == 202, asked.text
            for n in range(STREAMS):
                answer = WEB.get(f"{fleet.apis[0].url}/streams/s{n}/components?min_offset=2&timeout=30")
                answer.raise_for_status()
            watched, found = Watched(server, fleet), (float("inf"), dict[str, float]())
            for _ in range(12):  # until the refusal and the last views are written
                if watched.idle(*watched.during(1.0)) and watched.idle(*(found := watched.during(WATCHED_S))):
                    break
            rate, shares = found
        finally:
            fleet.close()
    print(f"{rate:.1f} messages a second; shares of a core: {shares}")  # noqa: T201 - the figures, when it fails
    assert watched.idle(rate, shares), (rate, shares)
