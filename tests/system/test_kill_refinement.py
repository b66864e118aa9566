"""kill -9 of a service at any moment of its refinements: the state is the library's own replay of its log."""

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest

from harness.library_replay import replayed
from harness.running_service import RunningService
from harness.waiting import eventually
from harness.web import WEB
from shoal_service.store import EntryKind, SqliteStore

pytestmark = pytest.mark.system

STEP = 400


def grid(n: int, seed: int) -> np.ndarray:
    """(n, 2) points of nine unit Gaussians at spacing 4."""
    rng = np.random.default_rng(seed)
    centres = 4.0 * np.array([[i, j] for i in range(3) for j in range(3)])
    return np.asarray(centres[rng.integers(9, size=n)] + rng.normal(size=(n, 2)))


def send(service: RunningService, x: np.ndarray, key: str) -> None:
    for _ in range(200):
        try:
            reply = WEB.post(
                f"{service.url}/ingest", json={"points": x.tolist()}, headers={"Idempotency-Key": key}, timeout=20.0
            )
        except httpx.TransportError:
            time.sleep(0.05)
            continue
        if reply.status_code == 202:
            return
        assert reply.json()["retryable"], reply.text
        time.sleep(0.05)
    raise TimeoutError(key)


def refinements(service: RunningService) -> list[dict[str, Any]]:
    return list(WEB.get(f"{service.url}/refinements").json()["refinements"])


def settle(service: RunningService, total: int) -> None:
    """Wait until all points are applied and no refinement is open."""
    WEB.get(f"{service.url}/components", params={"min_offset": total, "timeout": 60}).raise_for_status()
    eventually(
        lambda: not any(one["adopted"] is None for one in refinements(service)),
        lambda: refinements(service),
        limit_s=400,
        pause_s=0.2,
    )


def library_state(folder: Path) -> tuple[bytes, int]:
    """What the library makes of the whole log in a data folder, and how many entries of it are adoptions."""
    store = SqliteStore(folder)
    try:
        record = store.get_stream("default")
        entries = store.read("default", record.incarnation, 0, max_bytes=1 << 40)
        assert entries[0].seq == 1, "the window reaches back to the beginning, so nothing is trimmed"
        state = replayed(
            {"n_features": 2, "family": "auto"}, entries, lambda key: store.get_blob("default", record.incarnation, key)
        )
        return state, sum(entry.kind is EntryKind.ADOPTION for entry in entries)
    finally:
        store.close()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kills", [3, pytest.param(60, marks=pytest.mark.slow)])
def test_killed_in_the_middle_of_refinements_it_ends_where_its_log_leads(
    start_service: Callable[..., RunningService], kills: int
) -> None:
    rng = random.Random(kills)
    n_points = max(6_000, 200 * kills)
    x = grid(n_points, seed=kills)
    service = start_service("stormy", checkpoint_interval_s=0.5, refine_attempts=100, refine_nice=0)
    sent = 0
    hit = {"queued": 0, "running": 0, "between": 0}
    children: list[int] = []
    for n in range(kills):
        share = n_points * (n + 1) // kills
        while sent < share:
            send(service, x[sent : sent + STEP], f"batch-{sent}")
            sent += STEP
        if aimed := rng.random() < 0.7:
            asked = WEB.post(f"{service.url}/refine").raise_for_status().json()["id"]
        if aimed:  # at a refinement that runs, at least once; others may wait for their turn longer than this does
            until = time.monotonic() + (20.0 if hit["running"] else 400.0)
            while _state(service, asked) == "queued" and time.monotonic() < until:
                time.sleep(0.005)
            time.sleep(rng.choice([0.0, 0.02, 0.1]))
        else:
            time.sleep(rng.uniform(0.0, 1.0))
        states = [one["state"] for one in refinements(service)]
        hit["running" if "running" in states else "queued" if "queued" in states else "between"] += 1
        assert service.process is not None
        children += [child.pid for child in psutil.Process(service.process.pid).children(recursive=True)]
        service.kill()
        service.start()
    while sent < n_points:
        send(service, x[sent : sent + STEP], f"batch-{sent}")
        sent += STEP
    settle(service, n_points)
    found = WEB.get(f"{service.url}/snapshot", params={"min_offset": n_points}).content
    service.kill()
    expected, n_adoptions = library_state(service.data)
    assert n_adoptions > 0
    assert hit["running"] > 0, f"no kill came in the middle of a refinement: {hit}"
    assert found == expected
    eventually(lambda: not any(psutil.pid_exists(pid) and _is_ours(pid) for pid in children), "a child lives on")


def _state(service: RunningService, refinement: str) -> str:
    return str(WEB.get(f"{service.url}/refinements/{refinement}").raise_for_status().json()["state"])


def _is_ours(pid: int) -> bool:
    try:
        return "shoal_service" in " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:
        return False


def test_the_running_service_finds_the_nine_of_nine_with_its_defaults(
    start_service: Callable[..., RunningService],
) -> None:
    """20,000 points in batches, no setting changed, no labels: nine components, as good as the true model's own."""
    rng = np.random.default_rng(77)
    centres = 4.0 * np.array([[i, j] for i in range(3) for j in range(3)])
    truth = rng.integers(9, size=20_000)
    x = centres[truth] + rng.normal(size=(20_000, 2))
    service = start_service("grid", refine_nice=0)
    for start in range(0, len(x), 500):
        send(service, x[start : start + 500], f"batch-{start}")
    settle(service, len(x))
    components = WEB.get(f"{service.url}/components").json()["components"]
    assert len(components) == 9
    from sklearn.metrics import adjusted_rand_score

    predicted = []
    for start in range(0, len(x), 5000):
        reply = WEB.post(f"{service.url}/predict", json={"points": x[start : start + 5000].tolist()})
        predicted += [row["component"] for row in reply.json()["predictions"]]
    nearest = ((x[:, None, :] - centres[None]) ** 2).sum(axis=2).argmin(axis=1)  # equal weights and covariances
    ceiling = adjusted_rand_score(truth, nearest)
    assert adjusted_rand_score(truth, predicted) > ceiling - 0.01
    done = refinements(service)
    assert any(one["adopted"] for one in done)
