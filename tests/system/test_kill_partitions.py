"""kill -9 in the middle of a round that partitions learn: the library's own bits, each batch once, also of batches that
waited and were learnt together."""

import io
import itertools
from collections.abc import Callable

import numpy as np
import pytest

from harness.running_service import RunningService
from harness.web import WEB
from shoal.mixture import StreamSettings, from_bytes, to_bytes
from shoal.partitions import assimilate_inplace
from shoal.sequential import initial_state

pytestmark = pytest.mark.system

SETTINGS = {"n_features": 2, "family": "diagonal", "refinement": None, "window": 0, "partitions": 2}
ROUND = 16_384
WAIT = {"wait": "applied", "timeout": 60}


def test_killed_rounds_end_as_the_library_alone_ends_them(start_service: Callable[..., RunningService]) -> None:
    rng = np.random.default_rng(3)
    z = rng.integers(5, size=2 * ROUND + 12_000)
    x = 7.0 * np.stack([z % 3, z // 3], axis=1) + rng.normal(size=(len(z), 2))
    service = start_service("rounds", checkpoint_interval_s=0.2)
    assert WEB.put(f"{service.url}/streams/s", json=SETTINGS, timeout=60.0).status_code == 201
    start = 0
    for stop in (ROUND + 3_000, ROUND + 10_000, len(x)):  # in the range of the first partition, then of the second
        body = {"points": x[start:stop].tolist()}
        reply = WEB.post(f"{service.url}/streams/s/ingest", json=body, params=WAIT, timeout=150.0)
        assert reply.status_code in (200, 202), reply.text
        if reply.status_code == 200:  # learnt at once, though the round goes on
            assert len(reply.json()["components"]) == stop - start
        start = stop
        if stop < len(x):
            service.kill()  # before or after its checkpoint, whichever comes
            service.start()
    reply = WEB.get(f"{service.url}/streams/s/snapshot", params={"min_offset": len(x)}, timeout=150.0)
    state, _ = from_bytes(reply.content)
    alone, _ = assimilate_inplace(initial_state(StreamSettings.from_dict(SETTINGS)), x)
    assert state.round is not None
    assert state.points_seen == len(x)
    assert to_bytes(state) == to_bytes(alone)


def test_a_backlog_of_small_batches_is_learnt_once_over_kills(start_service: Callable[..., RunningService]) -> None:
    rng = np.random.default_rng(4)
    z = rng.integers(5, size=2 * ROUND)
    x = 7.0 * np.stack([z % 3, z // 3], axis=1) + rng.normal(size=(len(z), 2))
    service = start_service("backlog", checkpoint_interval_s=0.05)
    assert WEB.put(f"{service.url}/streams/s", json=SETTINGS, timeout=60.0).status_code == 201
    cuts = [0, ROUND - 500, *range(ROUND - 400, ROUND + 12_000, 100)]
    for i, (start, stop) in enumerate(itertools.pairwise(cuts)):
        headers = {"content-type": "application/x-npy"}
        body = npy(x[start:stop])
        reply = WEB.post(f"{service.url}/streams/s/ingest", content=body, headers=headers, timeout=150.0)
        assert reply.status_code == 202, reply.text
        if i in (60, 61, 100):  # acknowledged, and not learnt yet or just being learnt
            service.kill()
            service.start()
    n = cuts[-1]
    reply = WEB.get(f"{service.url}/streams/s/snapshot", params={"min_offset": n}, timeout=150.0)
    state, _ = from_bytes(reply.content)
    alone, _ = assimilate_inplace(initial_state(StreamSettings.from_dict(SETTINGS)), x[:n])
    assert state.points_seen == n
    assert to_bytes(state) == to_bytes(alone)


def npy(x: np.ndarray) -> bytes:
    body = io.BytesIO()
    np.save(body, x)
    return body.getvalue()
