"""kill -9 while a source is read: no record is lost or stored twice, though nobody keeps idempotency keys."""

import random
import threading
import time
from collections.abc import Callable

import httpx
import numpy as np
import pytest

from harness.running_service import RunningService
from harness.web import WEB
from shoal_service.store import SqliteStore
from shoal_service.wire import from_log

pytestmark = pytest.mark.system

N_RECORDS, KILLS = 2000, 4


def test_a_source_is_stored_once_over_kills_of_the_service(start_service: Callable[..., RunningService]) -> None:
    """The reader knows no more than a connector does after its own crash: the stored position."""
    rng = random.Random(5)
    records = np.stack([np.arange(N_RECORDS), -np.arange(N_RECORDS)], axis=1).astype(float)
    service = start_service("sources", checkpoint_interval_s=0.3)
    reply = WEB.put(f"{service.url}/streams/s", json={"n_features": 2, "refinement": None})
    assert reply.status_code == 201
    stop, moved, killed = threading.Event(), threading.Event(), [0]

    def storm() -> None:
        while killed[0] < KILLS and moved.wait(120) and not stop.wait(rng.uniform(0.0, 0.2)):
            service.kill()
            service.start()
            killed[0] += 1
            moved.clear()  # the next kill comes after some progress, however slow the machine is

    def stored() -> int:
        found = WEB.get(f"{service.url}/streams/s/sources").json()["sources"]
        return int(found[0]["position"]) if found else 0

    def read_on() -> int:
        at = stored()
        while at < N_RECORDS:
            end = min(N_RECORDS, at + rng.randrange(1, 40))
            params = {"source": "numbers", "position": str(end)} | ({"position_before": str(at)} if at else {})
            points = records[at:end].tolist()
            reply = WEB.post(f"{service.url}/streams/s/ingest", params=params, json={"points": points})
            if reply.status_code == 409:
                at = int(reply.json()["position"])
            elif reply.status_code == 202:
                at = end
                moved.set()
                time.sleep(0.02)
            else:
                assert reply.json()["retryable"], reply.text
        return at

    thread = threading.Thread(target=storm)
    thread.start()
    deadline = time.monotonic() + 240
    try:
        while time.monotonic() < deadline:
            try:
                if read_on() == N_RECORDS:
                    break
            except (httpx.HTTPError, KeyError):  # the service is away, or not ready
                time.sleep(0.02)
    finally:
        stop.set()
        thread.join()
    assert killed[0] == KILLS
    service.kill()
    store = SqliteStore(service.data)
    (record,) = store.list_streams()
    entries = store.read("s", record.incarnation, store.tail("s", record.incarnation).first_seq - 1, max_bytes=1 << 40)
    held = np.concatenate([np.asarray(from_log(e.payload)) for e in entries if e.kind == "batch"])
    assert store.tail("s", record.incarnation).log_offset == N_RECORDS
    np.testing.assert_array_equal(held, records[N_RECORDS - len(held) :])
    store.close()
