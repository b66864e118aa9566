"""Agreement with classes on data that nobody drew: components and clusters of shoal, one pass and refined, and peers.

    SHOAL_DATA=DIR python benchmarks/real.py [--set digits ...] [--method clusters ...] [--rows 4000] [--out FILE.csv]
    SHOAL_DATA=DIR python benchmarks/real.py --family student --out FILE.csv

shoal runs with its defaults, or with other settings into a file of their own, and sees no label and no number. Every
peer is at its best: told the number of classes if it needs one, and with the setting among those tried here that agrees
best with the labels, on the features as they are or standardised. HDBSCAN's noise counts as one cluster. "Best cut"
chooses among the cuts of shoal's tree by the labels. The measure is the adjusted Rand index on the rows learnt. A later
run replaces the lines of the same set, rows and method. DBSTREAM needs `river`.
"""

import argparse
import csv
import importlib.util
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from real_sets import SETS, Labelled, available, load
from sklearn.cluster import HDBSCAN, Birch, KMeans
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.mixture import BayesianGaussianMixture
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from shoal import StreamingDPMixture

RESULTS = Path(__file__).parent / "results" / "real.csv"
FIELDS = (
    "set", "rows", "features", "classes", "method", "setting", "ari", "nmi", "clusters", "cpu_s", "machine",
)  # fmt: skip
Candidates = Iterator[tuple[str, np.ndarray]]
MOST_ROWS_OF_RIVER = 2_000
MOST_OF_BAYESIAN = 100
LARGEST_BIRCH = 2_000
"""Subclusters of Birch, above which its last step takes minutes."""
SETTINGS: dict[str, Any] = {}
"""Of `StreamingDPMixture`, where they are not the defaults."""


class Shoal(NamedTuple):
    """`StreamingDPMixture` with `SETTINGS`, and the labels of one level."""

    refined: bool
    level: Any
    told: bool = False

    def __call__(self, data: Labelled, n_classes: int) -> Candidates:
        model = StreamingDPMixture(refinement="auto" if self.refined else None, **SETTINGS).fit(data.x)
        n = min(n_classes, len(model.component_ids_)) if self.told else None
        rule = model.clusters(n).rule if self.level == "cluster" else ""
        yield rule, model.predict(data.x, level=self.level, n_clusters=n)


def best_cut(data: Labelled, n_classes: int) -> Candidates:
    """Every cut of the tree: the best that a rule for the number of clusters could do."""
    model = StreamingDPMixture(**SETTINGS).fit(data.x)
    components = model.predict(data.x)
    for n in range(1, len(model.component_ids_) + 1):
        yield f"{n} clusters", model.clusters(n).of_components(components)


def both_scales(x: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    yield "as it is", x
    yield "standardised", StandardScaler().fit_transform(x)


def kmeans(data: Labelled, n_classes: int) -> Candidates:
    for scale, x in both_scales(data.x):
        yield scale, KMeans(n_classes, n_init=5, random_state=0).fit_predict(x)


def radii(x: np.ndarray) -> list[float]:
    """Quantiles of the distances between some rows."""
    some = x[:500]
    squares = (some**2).sum(axis=1)
    distances = np.sqrt(np.maximum(squares[:, None] + squares - 2.0 * some @ some.T, 0.0))
    return [float(np.quantile(distances[distances > 1e-9], q)) for q in (0.002, 0.01, 0.05, 0.2)]


def birch(data: Labelled, n_classes: int) -> Candidates:
    for scale, x in both_scales(data.x):
        for radius in radii(x):
            tree = Birch(threshold=radius, n_clusters=None).fit(x)
            if n_classes <= len(tree.subcluster_centers_) <= LARGEST_BIRCH:
                yield f"{scale}, threshold {radius:.3g}", tree.set_params(n_clusters=n_classes).fit(x).predict(x)


def hdbscan(data: Labelled, n_classes: int) -> Candidates:
    for scale, x in both_scales(data.x):
        for size in (5, 15, 50):
            if size < len(x):
                yield f"{scale}, size {size}", HDBSCAN(min_cluster_size=size, copy=True).fit_predict(x)


def bayesian(data: Labelled, n_classes: int) -> Candidates:
    """scikit-learn's variational Dirichlet process mixture, with one and a half times as many components as classes."""
    most = max(3, n_classes + n_classes // 2)
    if most > MOST_OF_BAYESIAN:
        return
    for scale, x in both_scales(data.x):
        for covariance in ("full", "diag"):
            model = BayesianGaussianMixture(n_components=most, covariance_type=covariance, max_iter=100, random_state=0)
            yield f"{scale}, {covariance}", model.fit_predict(x)


def dbstream(data: Labelled, n_classes: int) -> Candidates:
    from river.cluster import DBSTREAM

    for scale, x in both_scales(data.x[:MOST_ROWS_OF_RIVER]):
        for radius in radii(x)[1:]:
            model = DBSTREAM(clustering_threshold=radius, fading_factor=1e-5, intersection_factor=0.05)
            rows = [dict(enumerate(row)) for row in x.tolist()]
            for row in rows:
                model.learn_one(row)
            yield f"{scale}, radius {radius:.3g}", np.array([model.predict_one(row) for row in rows])


METHODS: dict[str, Callable[[Labelled, int], Candidates]] = {
    "components, one pass": Shoal(False, "component"),
    "clusters, one pass": Shoal(False, "cluster"),
    "components, refined": Shoal(True, "component"),
    "clusters, refined": Shoal(True, "cluster"),
    "clusters, refined, told K": Shoal(True, "cluster", told=True),
    "clusters, refined, best cut": best_cut,
    "k-means, told K": kmeans,
    "Birch, told K": birch,
    "HDBSCAN": hdbscan,
    "BayesianGaussianMixture": bayesian,
    "DBSTREAM": dbstream,
}


def measure(name: str, data: Labelled, method: str) -> dict[str, Any]:
    """The candidate of the best agreement; CPU seconds are those of all candidates."""
    n_classes = len(np.unique(data.y))
    best: dict[str, Any] = {"ari": -1.0, "setting": "none that ends in time"}
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rounds that need not converge
        for setting, labels in METHODS[method](data, n_classes):
            y = data.y[: len(labels)]
            ari = float(adjusted_rand_score(y, labels))
            if ari > best["ari"]:
                nmi = round(float(normalized_mutual_info_score(y, labels)), 3)
                best = {"setting": setting, "ari": round(ari, 3), "nmi": nmi, "clusters": len(np.unique(labels))}
    if "clusters" not in best:
        best["ari"] = ""
    seconds = round(time.process_time() - began, 2)
    shape = {"set": name, "rows": len(data.y), "features": data.x.shape[1], "classes": n_classes, "method": method}
    machine = f"{platform.machine()}, {os.cpu_count()} cores, one BLAS thread"
    return {**shape, **best, "cpu_s": seconds, "machine": machine}


def stored_rows(out: Path) -> list[dict[str, Any]]:
    if not out.is_file():
        return []
    with out.open(newline="") as file:
        return list(csv.DictReader(file))


def save(out: Path, row: dict[str, Any]) -> None:
    """Write the whole file again, with this line in place of an earlier one."""
    key = ("set", "rows", "method")
    kept = [old for old in stored_rows(out) if any(str(old[field]) != str(row[field]) for field in key)]
    rows = [*kept, row]
    rows.sort(key=lambda one: (list(SETS).index(one["set"]), int(one["rows"]), list(METHODS).index(one["method"])))
    with out.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", nargs="+", choices=list(SETS), dest="sets", help="default: all that can be read")
    parser.add_argument("--method", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--rows", type=int, default=4_000, help="most rows of a set")
    parser.add_argument("--family", help="another family than the default")
    parser.add_argument("--prior", choices=["auto", "hierarchical"])
    parser.add_argument("--concentration", type=float)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    chosen = {name: getattr(arguments, name) for name in ("family", "prior", "concentration")}
    SETTINGS.update({name: value for name, value in chosen.items() if value is not None})
    if SETTINGS and arguments.out == RESULTS:
        parser.error(f"{RESULTS.name} holds results of the defaults; give --out for other settings")
    for name in arguments.sets or available():
        data = load(name, arguments.rows)
        for method in arguments.method:
            if method == "DBSTREAM" and importlib.util.find_spec("river") is None:
                print("river is not installed: no DBSTREAM", file=sys.stderr)
                continue
            with threadpool_limits(1):
                row = measure(name, data, method)
            save(arguments.out, row)
            cells = (row.get(field, "") for field in ("set", "method", "setting", "ari", "clusters", "cpu_s"))
            print("  ".join(str(cell) for cell in cells), flush=True)


if __name__ == "__main__":
    main()
