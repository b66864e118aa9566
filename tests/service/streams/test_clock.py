"""Jumps of the clock: time is for people and for limits of age, and decides nothing in a state."""

import hashlib
import random
import time
from typing import Any

import pytest

from harness.waiting import eventually_async
from shoal_service.store import IdempotencyKey, SqliteStore
from shoal_service.wire import Points, to_log

pytestmark = pytest.mark.anyio


class JumpingClock:
    """Each look gives another time, years before or after the last one."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return self._rng.uniform(0.0, 4e9)


@pytest.mark.parametrize("running", ["memory"], indirect=True)
async def test_jumps_of_the_clock_change_no_bit_of_a_state(
    running: Any, batches: list[Points], final: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = JumpingClock(5)
    registry = running.begin()
    settings = {"n_features": 3, "family": "gaussian", "warmup_points": 500, "refinement": None}
    await registry.create("default", settings)
    for points in batches:
        await registry.ingest("default", points)
    expected = await final(registry)
    running.registry.known.close(120)
    running.store.close()
    running.store = SqliteStore(None, clock=clock)
    monkeypatch.setattr(time, "time", clock)
    registry = running.begin(checkpoint_points=300)
    await registry.create("default", settings)
    for n, points in enumerate(batches):
        key = IdempotencyKey(f"batch-{n}", hashlib.sha256(to_log(points)).digest())
        receipt = await registry.ingest("default", points, idempotency=key)
        assert await registry.wait_until_visible(receipt, 120)
    assert await final(registry) == expected
    assert clock.looks > len(batches)
    (record,) = running.store.list_streams()
    # told after the state is shown
    await eventually_async(lambda: running.store.tail("default", record.incarnation).unapplied_bytes == 0)
