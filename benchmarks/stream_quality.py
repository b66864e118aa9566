"""Quality of streams with refinement: the whole estimator with its defaults, in chunks, without labels.

    python benchmarks/stream_quality.py [--only NAME ...] [--seeds 3] [--first-seed 0] [--out FILE.csv]

Each line is one stream, drawn again for each seed.

- `ari`: on fresh points if there is a true model. For drift: over the whole stream, by ids given on arrival.
- `ceiling`: the ARI of the true model.
- `density_gap`: held-out log density of the truth minus that of the estimator.
- `gap_allowed`: 1.5 p / 2N, where p is the number of free parameters of the true model in the family.
- `worst_window`: the least ARI over windows of 2,000 points.
- `more`: names and values of other measurements.
"""

import argparse
import csv
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score, roc_auc_score
from stream_workloads import (
    Stream,
    Truth,
    drift,
    duplicates,
    grid,
    heavy,
    newcomer,
    rings,
    separated,
    squares,
    with_outliers,
    zipf,
)

from shoal import StreamingDPMixture

CHUNK = 1_000
N_TEST = 20_000
Row = dict[str, Any]
Measure = Callable[[str, np.random.Generator], Row]


def learnt(
    family: str, x: np.ndarray, on_arrival: bool = False, **settings: Any
) -> tuple[StreamingDPMixture, np.ndarray, Row]:
    """Return the estimator after the stream, the labels of the points on arrival, and the cost."""
    model, labels, cpu = StreamingDPMixture(family, **settings), [], 0.0
    for start in range(0, len(x), CHUNK):
        began = time.process_time()
        model.partial_fit(x[start : start + CHUNK])
        cpu += time.process_time() - began
        if on_arrival:
            labels.append(model.predict(x[start : start + CHUNK]))
    course = model._fitted.state.schedule
    cost = {"n": len(x), "components": len(model.component_ids_), "cpu_s": round(cpu, 2), "adopted": course.adopted}
    return model, np.concatenate(labels) if labels else np.zeros(0), cost


def n_parameters(family: str, truth: Truth) -> int:
    k, d = truth.means.shape
    return k * (d + (d if family == "diagonal" else d * (d + 1) // 2)) + k - 1


def stationary(make: Callable[[np.random.Generator], Truth], n: int) -> Measure:
    def measure(family: str, rng: np.random.Generator) -> Row:
        truth = make(rng)
        x, _ = truth.draw(n, rng)
        test, z = truth.draw(N_TEST, rng)
        model, _, row = learnt(family, x)
        joint = truth.log_joint(test)
        found = model.predict(test)
        return row | {
            "true": len(truth.weights),
            "ari": adjusted_rand_score(z, found),
            "ceiling": adjusted_rand_score(z, joint.argmax(axis=1)),
            "density_gap": float(truth.log_density(test).mean() - model.score(test)),
            "gap_allowed": 1.5 * n_parameters(family, truth) / (2 * n),
            "more": {"clusters_found": distinct(z, found)},
        }

    return measure


def distinct(z: np.ndarray, found: np.ndarray) -> int:
    """Count the true clusters that have a component consisting mostly of their points."""
    return len({int(np.bincount(z[found == k]).argmax()) for k in np.unique(found)})


def drifting(d: int, n: int = 200_000, half_life: float = 2_000.0) -> Measure:
    def measure(family: str, rng: np.random.Generator) -> Row:
        x, z = drift(rng, d, n)
        _, labels, row = learnt(family, x, on_arrival=True, half_life=half_life)
        windows = [adjusted_rand_score(z[i : i + 2_000], labels[i : i + 2_000]) for i in range(0, n, 2_000)]
        shared = [np.bincount(z[labels == k]) for k in np.unique(labels)]
        taken_over = sum(int((counts > 100).sum() > 1) for counts in shared)
        return row | {
            "true": int(z.max()) + 1,
            "ari": adjusted_rand_score(z, labels),
            "worst_window": min(windows),
            "more": {"windows_below_.99": int(np.sum(np.array(windows) < 0.99)), "ids_taken_over": taken_over},
        }

    return measure


def new_cluster(d: int, n: int = 60_000, comes: int = 30_000) -> Measure:
    """Count points of the new cluster until one component of its own holds most of its next hundred points."""

    def measure(family: str, rng: np.random.Generator) -> Row:
        x, z = newcomer(rng, d, n, comes)
        model, labels, row = learnt(family, x, on_arrival=True)
        own = labels[z == 5]
        first = {int(k) for k in np.unique(labels[(z == 0) & (np.arange(n) < comes)])}
        apart = [i for i in range(0, len(own) - 100, 20) if np.isin(own[i : i + 100], list(first)).mean() < 0.1]
        return row | {
            "true": 6,
            "ari": adjusted_rand_score(z[-10_000:], model.predict(x[-10_000:])),
            "more": {"rows_until_apart": apart[0] if apart else None},
        }

    return measure


def false_alarms(make: Callable[[np.random.Generator], Truth], n: int = 60_000) -> Measure:
    """Count the alarms of the misfit monitor on a stationary stream. There should be none."""

    def measure(family: str, rng: np.random.Generator) -> Row:
        x, _ = make(rng).draw(n, rng)
        model, alarms, row = StreamingDPMixture(family), set(), {}
        for start in range(0, n, CHUNK):
            model.partial_fit(x[start : start + CHUNK])
            alarms.add(model._fitted.state.schedule.alarm)
        gap = model._fitted.state.schedule.misfit_gap
        return row | {
            "n": n,
            "components": len(model.component_ids_),
            "more": {"alarms": len(alarms - {-1}), "gap": gap},
        }

    return measure


def order(n: int = 20_000) -> Measure:
    """Compare a stream sorted by cluster with a shuffled one. The window holds all points."""

    def measure(family: str, rng: np.random.Generator) -> Row:
        truth = grid(5.0)
        x, z = truth.draw(n, rng)
        test, labels = truth.draw(N_TEST, rng)
        ranked = np.argsort(z, kind="stable")
        shuffled, _, _ = learnt(family, x)
        model, _, row = learnt(family, x[ranked])
        aris = [float(adjusted_rand_score(labels, m.predict(test))) for m in (model, shuffled)]
        return row | {"true": 9, "ari": aris[0], "ceiling": aris[1], "more": {"ceiling_is": "shuffled"}}

    return measure


def outliers(n: int = 50_000) -> Measure:
    def measure(family: str, rng: np.random.Generator) -> Row:
        truth = grid(5.0)
        clean = Stream(*truth.draw(n, rng))
        x, _ = with_outliers(rng, clean)
        test, labels = with_outliers(rng, Stream(*truth.draw(N_TEST, rng)))
        model, _, row = learnt(family, x)
        rest = labels >= 0
        best = truth.log_joint(test[rest]).argmax(axis=1)
        score = {"novelty": model.novelty(test), "density": -model.score_samples(test)}
        return row | {
            "true": 9,
            "ari": adjusted_rand_score(labels[rest], model.predict(test[rest])),
            "ceiling": adjusted_rand_score(labels[rest], best),
            "more": {f"auc_{name}": round(float(roc_auc_score(~rest, value)), 4) for name, value in score.items()},
        }

    return measure


def shapes(make: Callable[[np.random.Generator, int], Stream], n: int = 50_000) -> Measure:
    def measure(family: str, rng: np.random.Generator) -> Row:
        x, z = make(rng, n)
        model, _, row = learnt(family, x)
        found = model.predict(x)
        purity = sum(np.bincount(z[found == k]).max() for k in np.unique(found)) / n
        return row | {
            "true": int(z.max()) + 1,
            "ari": adjusted_rand_score(z, found),
            "more": {"purity": round(float(purity), 4), "finite": bool(np.isfinite(model.score(x[:1_000])))},
        }

    return measure


BOTH, FULL, DIAGONAL = ("gaussian", "diagonal"), ("gaussian",), ("diagonal",)
WORKLOADS: dict[str, tuple[Measure, tuple[str, ...]]] = {
    "grid 4, 20k": (stationary(lambda _: grid(4.0), 20_000), BOTH),
    "grid 5, 20k": (stationary(lambda _: grid(5.0), 20_000), BOTH),
    "grid 3, 100k": (stationary(lambda _: grid(3.0), 100_000), BOTH),
    "ten 16-D c=2, 100k": (stationary(lambda rng: separated(rng, 16, 2.0), 100_000), FULL),
    "ten 16-D c=.5, 100k": (stationary(lambda rng: separated(rng, 16, 0.5), 100_000), FULL),
    "ten 64-D c=2, 100k": (stationary(lambda rng: separated(rng, 64, 2.0), 100_000), FULL),
    "200 Zipf 128-D, 200k": (stationary(zipf, 200_000), DIAGONAL),
    "drift 2-D, 200k": (drifting(2), BOTH),
    "drift 16-D, 200k": (drifting(16), FULL),
    "new cluster 2-D": (new_cluster(2), BOTH),
    "new cluster 16-D": (new_cluster(16), BOTH),
    "stationary grid 4": (false_alarms(lambda _: grid(4.0)), BOTH),
    "stationary 16-D c=.5": (false_alarms(lambda rng: separated(rng, 16, 0.5)), BOTH),
    "sorted grid 5, 20k": (order(), BOTH),
    "outliers grid 5, 50k": (outliers(), BOTH),
    "squares, 50k": (shapes(squares), BOTH),
    "rings, 50k": (shapes(rings), BOTH),
    "t3, 50k": (shapes(heavy), BOTH),
    "near-duplicates, 50k": (shapes(duplicates), BOTH),
}
COLUMNS = (
    *("workload", "family", "seed", "n", "true", "components", "ari", "ceiling", "worst_window"),
    *("density_gap", "gap_allowed", "adopted", "cpu_s", "more"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(WORKLOADS), choices=list(WORKLOADS), metavar="NAME")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    for name in arguments.only:
        measure, families = WORKLOADS[name]
        for family in families:
            for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
                row = measure(family, np.random.default_rng([seed, len(name)]))
                row |= {"workload": name, "family": family, "seed": seed}
                told = {k: round(v, 5) if isinstance(v, float) else v for k, v in row.items()}
                print(json.dumps(told), flush=True)
                if arguments.out is not None:
                    _append(arguments.out, told | {"more": json.dumps(told.get("more", {}))})


def _append(target: Path, row: Row) -> None:
    fresh = not target.exists()
    with target.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if fresh:
            writer.writeheader()
        writer.writerow({column: row.get(column, "") for column in COLUMNS})


if __name__ == "__main__":
    main()
