"""Real streams through the running service: handwritten digits and an electricity market.

What is asserted is what must hold on any machine: nothing lost, sensible densities, a floor under the agreement with
the labels well below what was measured. The figures themselves are in `benchmarks/results/real_streams.csv`;
`SHOAL_REWRITE_RESULTS=1` writes those of this run there.
"""

import csv
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from harness.fleet import Fleet
from harness.redis_server import running_redis
from harness.running_service import RunningService
from shoal_service.client import Client

pytestmark = pytest.mark.system

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "real_streams.csv"
BATCH = 1_000
REWRITES = os.environ.get("SHOAL_REWRITE_RESULTS") == "1"


def stream_through(service: RunningService, stream: str, points: np.ndarray, **settings: Any) -> dict[str, Any]:
    """Create the stream, send all points, wait until they are applied; what that took and gave."""
    with Client(service.url, stream=stream) as client:
        client.create_stream(stream, n_features=points.shape[1], **settings)
        began = time.perf_counter()
        result = client.ingest(points, batch_size=BATCH)
        client.wait(result.log_offset, timeout_s=600)
        seconds = time.perf_counter() - began
        view = client.components(min_offset=result.log_offset)
    assert view.points_seen == view.log_offset == len(points)
    assert sum(component.weight for component in view.components) + view.new_weight == pytest.approx(1.0)
    return {
        "stream": stream,
        "family": settings["family"],
        "points": len(points),
        "features": points.shape[1],
        "points_per_s": round(len(points) / seconds),
        "components": len(view.components),
    }


def agreement(found: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """How far the components found agree with labels that were never shown."""
    return {
        "nmi": round(float(normalized_mutual_info_score(labels, found)), 3),
        "ari": round(float(adjusted_rand_score(labels, found)), 3),
    }


def write_down(rows: list[dict[str, Any]]) -> None:
    """Replace the rows of the same stream and family in the file of results, if the run is asked to do so."""
    if not REWRITES:
        return
    old = list(csv.DictReader(RESULTS.read_text().splitlines())) if RESULTS.exists() else []
    fresh = {(row["stream"], row["family"]) for row in rows}
    kept = [row for row in old if (row["stream"], row["family"]) not in fresh]
    fields = list(dict.fromkeys(key for row in [*kept, *rows] for key in row))
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with RESULTS.open("w", newline="") as out:
        writer = csv.DictWriter(out, fieldnames=fields, lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept + rows)


def mnist(folder: Path) -> dict[str, np.ndarray]:
    """All digits for the file of results. The claims are as true of a third of them."""
    with np.load(folder / "mnist_pca50.npz") as held:
        data = {name: held[name] for name in ("X_train", "y_train", "X_test", "y_test")}
    return data if REWRITES else {name: values[: len(values) // 3] for name, values in data.items()}


def machine() -> dict[str, str]:
    return {"machine": f"{platform.machine()}, {os.cpu_count()} cores, one BLAS thread", "batch": str(BATCH)}


@pytest.mark.parametrize("family", ["diagonal", pytest.param("gaussian", marks=pytest.mark.slow)])
def test_mnist_through_http(start_service: Callable[..., RunningService], real_data: Path, family: str) -> None:
    data = mnist(real_data)
    service = start_service()
    row = stream_through(service, "mnist", data["X_train"], family=family)
    with Client(service.url, stream="mnist") as client:
        train, test = client.predict(data["X_train"]), client.predict(data["X_test"])
    row |= agreement(train.components, data["y_train"])
    row["held_out_log_density"] = round(float(test.log_density.mean()), 3)
    row["peak_mib"] = round(service.peak_mib())
    write_down([row | machine()])
    assert np.isfinite(test.log_density).all()
    one_gaussian = np.cov(data["X_train"].T)
    entropy = 0.5 * (50 * np.log(2 * np.pi * np.e) + np.linalg.slogdet(one_gaussian)[1])
    assert test.log_density.mean() > -entropy, "a mixture must predict digits better than one Gaussian does"
    assert row["nmi"] > 0.3
    assert ((test.novelty >= 0) & (test.novelty <= 1)).all()


@pytest.mark.redis
@pytest.mark.parametrize("family", ["diagonal", pytest.param("gaussian", marks=pytest.mark.slow)])
def test_mnist_over_redis_with_two_api_processes_is_what_one_process_makes_of_it(
    start_service: Callable[..., RunningService], redis_binary: str, real_data: Path, tmp_path: Path, family: str
) -> None:
    """Points go to one API process, questions to the other; straight before it the same in one process over SQLite.

    Nothing is refined: when a refinement comes is a matter of time, and the two are to be compared to the last digit.
    """
    data = mnist(real_data)

    def measured(name: str, here: RunningService, there: RunningService, learner: RunningService) -> dict[str, Any]:
        load = round(os.getloadavg()[0], 1)
        row = stream_through(here, name, data["X_train"], family=family, refinement=None)
        with Client(there.url, stream=name) as client:
            client.wait(len(data["X_train"]), timeout_s=600)
            train, test = client.predict(data["X_train"]), client.predict(data["X_test"])
        row |= agreement(train.components, data["y_train"])
        row |= {"held_out_log_density": round(float(test.log_density.mean()), 3), "load": load}
        return row | {"peak_mib": round(learner.peak_mib())} | machine()

    alone = start_service()
    embedded = measured("mnist-embedded", alone, alone, alone)
    alone.kill()
    with running_redis(redis_binary, tmp_path) as server:
        fleet = Fleet(tmp_path, server, apis=2, learners=1)
        try:
            fleet.start()
            shared = measured("mnist-redis", fleet.apis[0], fleet.apis[1], fleet.learners[0])
        finally:
            fleet.close()
    write_down([embedded, shared])
    found = ("points", "components", "nmi", "ari", "held_out_log_density")
    assert {name: shared[name] for name in found} == {name: embedded[name] for name in found}
    assert shared["nmi"] > 0.3


def test_electricity_through_http(start_service: Callable[..., RunningService], real_data: Path) -> None:
    data = np.load(real_data / "elec2_stream.npz")
    service = start_service()
    whole = stream_through(service, "electricity", data["X"], family="diagonal")
    drift = stream_through(service, "electricity-drift", data["X"], family="diagonal", half_life=5_000)
    for row in (whole, drift):
        with Client(service.url, stream=row["stream"]) as client:
            answer = client.predict(data["X"])
        assert np.isfinite(answer.log_density).all()
        row |= agreement(answer.components, data["y"])
        row["peak_mib"] = round(service.peak_mib())
    write_down([whole | machine(), drift | machine()])
