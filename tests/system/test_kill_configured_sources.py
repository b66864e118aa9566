"""kill -9 of the service and of the child that runs a source, in the middle of it: the log has each record once."""

import contextlib
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from harness.redis_server import RedisServer, running_redis
from harness.running_service import RunningService
from harness.short_form import longer
from harness.waiting import eventually
from harness.web import WEB
from shoal_service.store import SqliteStore
from shoal_service.wire import from_log

pytestmark = [pytest.mark.system, pytest.mark.redis]

RECORDS_BETWEEN = 750
CHILD = "shoal_service.cli.connectors.configured"


@pytest.fixture
def origin(redis_binary: str, tmp_path: Path) -> Iterator[RedisServer]:
    with running_redis(redis_binary, tmp_path) as server:
        yield server


def children(service: RunningService) -> list[int]:
    """Process ids of the children of a service that run sources."""
    assert service.process is not None
    found = []
    for child in psutil.Process(service.process.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if CHILD in child.cmdline():
                found.append(child.pid)
    return found


@pytest.mark.parametrize("kills", [2, longer(4)])
def test_a_configured_source_is_stored_once_over_kills(
    start_service: Callable[..., RunningService], origin: RedisServer, kills: int
) -> None:
    rng = random.Random(4)
    service = start_service("configured", checkpoint_interval_s=0.3, source_allow_private=True)
    assert WEB.put(f"{service.url}/streams/s", json={"n_features": 2, "refinement": None}).status_code == 201
    body = {"kind": "redis-stream", "redis_url": origin.url, "keys": ["k"], "format": "float32", "batch_size": 25}
    assert WEB.put(f"{service.url}/streams/s/sources/readings", json=body).status_code == 201
    n = RECORDS_BETWEEN * kills
    records = np.stack([np.arange(n), -np.arange(n)], axis=1).astype("<f4")

    def stored() -> int:
        return int(WEB.get(f"{service.url}/streams/s").json()["log_offset"])

    with origin.client() as client:
        for at in range(kills):
            for record in records[at * RECORDS_BETWEEN : (at + 1) * RECORDS_BETWEEN]:
                client.xadd("k", {"data": record.tobytes()})
            least = at * RECORDS_BETWEEN + rng.randrange(25, 300)
            eventually(lambda least=least: stored() >= least, service.tail)
            (child,) = children(service)
            if at % 2:
                service.kill()
                eventually(lambda child=child: not open_files(child))
                service.start()
            else:
                os.kill(child, signal.SIGKILL)
        eventually(lambda: stored() >= n, service.tail)
        shown = WEB.get(f"{service.url}/streams/s/sources/readings").json()
        assert shown["positions"][0]["position"] == client.xinfo_stream("k")["last-generated-id"].decode()
    service.kill()
    store = SqliteStore(service.data)
    (record,) = store.list_streams()
    assert store.tail("s", record.incarnation).log_offset == n
    entries = store.read("s", record.incarnation, 0, max_bytes=1 << 40)
    store.close()
    found = np.concatenate([np.asarray(from_log(e.payload)) for e in entries if e.kind == "batch"])
    np.testing.assert_array_equal(found, records)


def open_files(pid: int) -> list[str]:
    """Open files of a process; none once it has ended."""
    try:
        return os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return []
