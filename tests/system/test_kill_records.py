"""kill -9 while records come: each is found once, as a learner without a service would have assigned it.

The stream forgets by the times of the records, some of which are late.
"""

import time
from collections.abc import Callable

import httpx
import numpy as np
import pytest

from harness.running_service import RunningService
from harness.web import WEB
from shoal.mixture import StreamSettings, from_bytes
from shoal.sequential import assimilate_inplace, initial_state, timed

pytestmark = pytest.mark.system

N_BATCHES = 24


def batches() -> list[tuple[np.ndarray, list[str]]]:
    """Batches of three clusters. Some keys come again later."""
    rng = np.random.default_rng(8)
    centres = np.array([[0.0, 0.0], [30.0, 0.0], [0.0, 30.0]])
    made = []
    for _ in range(N_BATCHES):
        n = int(rng.integers(1, 90))
        points = centres[rng.integers(3, size=n)] + rng.normal(size=(n, 2))
        made.append((points, [f"key/{k}" for k in rng.integers(0, 700, size=n)]))
    return made


def ask(url: Callable[[], str], method: str, path: str, accepted: tuple[int, ...], **options: object) -> httpx.Response:
    """Send until it is answered, as a client with retries does."""
    until = time.monotonic() + 240
    while time.monotonic() < until:
        try:
            reply = WEB.request(method, url() + path, timeout=30.0, **options)
        except httpx.TransportError:
            time.sleep(0.02)
            continue
        if reply.status_code in accepted:
            return reply
        assert reply.json()["retryable"], reply.text
        time.sleep(0.05)
    raise TimeoutError(path)


def test_records_survive_kills_exactly_once_and_a_forgotten_one_stays_forgotten(
    start_service: Callable[..., RunningService],
) -> None:
    service = start_service(checkpoint_interval_s=0.5, publish_interval_s=0.01)
    url = lambda: service.url  # noqa: E731
    ask(
        url,
        "PUT",
        "/streams/default",
        (201,),
        json={"n_features": 2, "family": "gaussian", "refinement": None, "half_life": "1h"},
    )
    settings = StreamSettings(n_features=2, refinement=None, half_life="1h")
    state, expected, offset = initial_state(settings), {}, 0
    rng = np.random.default_rng(1)
    for n, (points, keys) in enumerate(batches()):
        times = 1_767_225_600.0 + 600.0 * n - rng.exponential(1_000.0, size=len(keys))
        body = {
            "points": points.tolist(),
            "keys": keys,
            "payloads": [{"batch": n}] * len(keys),
            "times": times.tolist(),
        }
        reply = ask(url, "POST", "/ingest", (202,), json=body, headers={"Idempotency-Key": f"batch-{n}"})
        state, rows = timed(state, points, times)
        state, info = assimilate_inplace(state, rows)
        for i, key in enumerate(keys):
            expected[key] = (offset + i + 1, int(info.labels[i]), info.scores.novelty[i], n)
        offset += len(keys)
        assert reply.json()["log_offset"] == offset
        if n == 10:
            forgotten = keys[0]
            ask(url, "DELETE", f"/records/{forgotten}", (200, 202), params={"timeout": 20})
            expected.pop(forgotten)
        if n % 4 == 3:
            time.sleep(float(rng.uniform(0.0, 0.3)))
            service.kill()
            service.start()
    names = [f"key/{k}" for k in range(700)]
    reply = ask(
        url, "POST", "/records/lookup", (200,), json={"keys": names}, params={"min_offset": offset, "timeout": 25}
    )
    found = {record["key"]: record for record in reply.json()["records"] if record is not None}
    assert found.keys() == expected.keys()
    for key, (at, component, novelty, n) in expected.items():
        record = found[key]
        assert (record["log_offset"], record["assigned"], record["payload"]) == (at, component, {"batch": n})
        assert record["novelty"] == novelty
    blob = ask(url, "GET", "/streams/default/snapshot", (200,)).content
    assert from_bytes(blob)[0].decayed_count == state.decayed_count < 0.5 * offset
