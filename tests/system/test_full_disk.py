"""A full disk: batches are refused with a clear reason, reads go on, and freed space ends it without a restart.

The limit of a process on the size of its files stands for the disk: every write beyond it fails.
"""

import resource
from collections.abc import Callable

import numpy as np
import pytest

from harness.running_service import RunningService
from harness.waiting import eventually
from harness.web import WEB
from shoal_service.store import inspect_store

pytestmark = pytest.mark.system

NO_LIMIT = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def limit_files(service: RunningService, n_bytes: int | None) -> None:
    """Let no file of the service grow beyond so many bytes; None: without limit again."""
    assert service.process is not None
    limits = NO_LIMIT if n_bytes is None else (n_bytes, resource.RLIM_INFINITY)
    resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, limits)


def post(service: RunningService, n: int) -> tuple[int, dict[str, object]]:
    x = np.random.default_rng(n).normal(size=(300, 4))
    headers = {"Idempotency-Key": f"batch-{n}"}
    reply = WEB.post(f"{service.url}/ingest", json={"points": x.tolist()}, headers=headers)
    return reply.status_code, dict(reply.json())


def checkpoints(service: RunningService) -> float:
    text = WEB.get(f"{service.url}/metrics").text
    return float(text.split('shoal_checkpoint_seconds_count{stream="default"} ')[1].split()[0])


@pytest.mark.parametrize("room", [150_000, 0], ids=["full", "read-only"])
def test_a_disk_that_takes_no_more_loses_nothing_and_room_mends_it(
    start_service: Callable[..., RunningService], room: int
) -> None:
    service = start_service("data", checkpoint_interval_s=0.5)
    assert post(service, 0)[0] == 202
    WEB.get(f"{service.url}/components", params={"min_offset": 300, "timeout": 30}).raise_for_status()
    eventually(lambda: checkpoints(service) == 2)  # of the beginning, and of the first batch
    held = max(path.stat().st_size for path in service.data.iterdir())
    limit_files(service, held + room if room else 0)
    accepted, refused = [0], []
    for n in range(1, 30):
        status, body = post(service, n)
        if status == 202:
            accepted.append(n)
            continue
        assert (status, body["type"], body["retryable"]) == (503, "/problems/store-unavailable", True), body
        assert "see that the disk works" in str(body["detail"]) or "free some disk space" in str(body["detail"])
        refused.append(n)
        if len(refused) == 3:
            break
    assert len(refused) == 3
    assert (room == 0) == (accepted == [0])
    ready = WEB.get(f"{service.url}/readyz")
    assert ready.status_code == 503 or room, "the small write of a probe may still fit"
    assert str(service.data) not in ready.text
    seen = 300 * len(accepted)
    view = WEB.get(f"{service.url}/components", params={"min_offset": seen, "timeout": 30}).json()
    assert view["points_seen"] == seen, "what was accepted is learnt and readable"
    assert WEB.get(f"{service.url}/predict", params={"x": "1,2,3,4"}).status_code == 200
    limit_files(service, None)
    for n in refused:
        assert post(service, n) == (202, {**post(service, n)[1]}), "a retry is accepted, and then replayed"
    assert service.answers("/readyz")
    total = seen + 300 * len(refused)
    view = WEB.get(f"{service.url}/components", params={"min_offset": total, "timeout": 30}).json()
    assert (view.get("points_seen"), view.get("log_offset")) == (total, total), f"{view} {service.tail()}"
    service.kill()
    assert inspect_store(service.data).findings == []
    service.start()
    view = WEB.get(f"{service.url}/components", params={"min_offset": total, "timeout": 30}).json()
    assert view["points_seen"] == total
