"""A service behind Redis Sentinel: the primary dies while clients send, and the service goes on at the replica."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.running_service import RunningService
from harness.sentinels import Watched, watched_redis
from harness.waiting import eventually
from harness.web import WEB

pytestmark = [pytest.mark.system, pytest.mark.redis]


@pytest.fixture
def watched(redis_binary: str, tmp_path: Path) -> Iterator[Watched]:
    with watched_redis(redis_binary, tmp_path, sentinels=3) as made:
        yield made


def test_a_service_follows_a_failover(watched: Watched, tmp_path: Path) -> None:
    settings = {"store": "redis", "redis_url": watched.url, "redis_timeout_s": 1.0, "lease_s": 1.0}
    service = RunningService(tmp_path / "data", settings)

    def post(n: int) -> int:
        body, headers = {"points": [[float(n), 0.5 * n]]}, {"Idempotency-Key": f"batch-{n}"}
        reply = WEB.post(f"{service.url}/ingest", json=body, headers=headers)
        if reply.status_code != 202:
            assert reply.status_code == 503, reply.text
            assert reply.json()["type"] in ("/problems/store-unavailable", "/problems/store-starting"), reply.text
        return reply.status_code

    try:
        service.start()
        for n in range(20):
            eventually(lambda n=n: post(n) == 202, service.tail)
        watched.wait_until_replicated()
        before = watched.primary()
        before.kill()
        eventually(lambda: post(20) == 202, service.tail)
        assert watched.primary() is not before
        for n in range(21):  # what was acknowledged is there, and once
            eventually(lambda n=n: post(n) == 202, service.tail)
        view = WEB.get(f"{service.url}/components?min_offset=21&timeout=30")
        assert (view.status_code, view.json().get("points_seen"), view.json()["log_offset"]) == (200, 21, 21), view.text
        eventually(lambda: service.answers("/readyz"), service.tail)
        assert "Traceback" not in service.log.read_text(errors="replace")
    finally:
        service.kill()
