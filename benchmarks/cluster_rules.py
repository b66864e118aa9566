"""Rules that choose the number of clusters from a tree of components, compared on labelled sets.

    SHOAL_DATA=DIR python benchmarks/cluster_rules.py [--set digits ...] [--rows 4000] [--out FILE.csv]

All rules cut the same tree: that of a refined `StreamingDPMixture` with its defaults. No rule sees a label.

components           every component is a cluster
largest gap          the largest ratio of two heights that follow each other
stability            the most clusters whose agreement between two models of alternate rows is within .02 of the best
prediction strength  the most clusters that the other half's clusters predict, each with .8 (Tibshirani, Walther 2005)
excess of mass       components joined by overlap, the most persistent groups of them (as HDBSCAN has it for points)
penalty 1, 3, 6      least misfit plus so many times the penalty of the Bayesian information criterion
default              connected groups where there are any, else penalty 3
told K               the number of classes, for comparison
"""

import argparse
import csv
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from real_sets import SETS, available, load
from scipy.cluster.hierarchy import linkage
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

from shoal import StreamingDPMixture
from shoal.clusters import cut
from shoal.clusters.connected import _overlaps

RESULTS = Path(__file__).parent / "results" / "cluster_rules.csv"
FIELDS = ("set", "rows", "classes", "components", "rule", "clusters", "ari", "cpu_s")
LEAST_SHARE = 0.02
MOST_COMPARED = 300


class Fit:
    """A model of all rows, two of every second row, and what several rules need of them."""

    def __init__(self, x: np.ndarray, n_classes: int) -> None:
        self.x, self.n_classes = x, n_classes
        self.model = StreamingDPMixture().fit(x)
        self.halves = [StreamingDPMixture().fit(x[i::2]) for i in (0, 1)]
        self.tree = self.model.hierarchy_
        self.k = len(self.tree.ids)

    def numbers(self) -> list[int]:
        """Numbers of clusters that both halves have, at most so many that a comparison takes no hours."""
        most = min(self.k, *(len(half.component_ids_) for half in self.halves), MOST_COMPARED)
        return [k for k in range(2, most + 1) if k <= 40 or k % 10 == 0]

    def cut_of(self, k: int) -> np.ndarray:
        return cut(self.tree, min(k, self.k)).cluster_of

    def half_labels(self, k: int) -> list[np.ndarray]:
        return [half.predict(self.x, level="cluster", n_clusters=k) for half in self.halves]


def largest_gap(fit: Fit) -> np.ndarray:
    heights = np.maximum(fit.tree.linkage[::-1, 2], 1e-12)
    if len(heights) < 2:
        return fit.cut_of(fit.k)
    return fit.cut_of(int(np.argmax(heights[:-1] / heights[1:])) + 2)


def stability(fit: Fit) -> np.ndarray:
    numbers = fit.numbers()
    if not numbers:
        return fit.cut_of(1)
    values = [adjusted_rand_score(*fit.half_labels(k)) for k in numbers]
    return fit.cut_of(max(k for k, value in zip(numbers, values, strict=True) if value >= max(values) - 0.02))


def prediction_strength(fit: Fit) -> np.ndarray:
    best = 1
    for k in fit.numbers():
        labels = fit.half_labels(k)
        strength = min(_strength(labels[i][i::2], labels[1 - i][i::2]) for i in (0, 1))
        best = k if strength >= 0.8 else best
    return fit.cut_of(best)


def _strength(own: np.ndarray, other: np.ndarray) -> float:
    """The least share, over the clusters of `own`, of pairs of rows that are together in `other` too."""
    shares = []
    for one in np.unique(own):
        counts = np.unique(other[own == one], return_counts=True)[1]
        n = counts.sum()
        if n > 5:
            shares.append((counts * (counts - 1)).sum() / (n * (n - 1)))
    return min(shares, default=1.0)


def excess_of_mass(fit: Fit) -> np.ndarray:
    """Groups of the tree of single linkage by overlap. A group lives from the overlap at which it parts from its
    sibling to that at which it parts itself. The sum of lives times masses decides between it and its parts."""
    k = fit.k
    if k < 3:
        return fit.cut_of(k)
    i, j = np.triu_indices(k, 1)
    overlap = _overlaps(fit.model.means_, fit.model.covariances_, i, j)
    tree = linkage(1.0 - overlap, "single")
    mass = np.concatenate([fit.tree.masses, np.zeros(k - 1)])
    members = [[row] for row in range(k)] + [[] for _ in range(k - 1)]
    for row, (a, b) in enumerate(tree[:, :2].astype(int)):
        mass[k + row] = mass[a] + mass[b]
        members[k + row] = members[a] + members[b]
    least = LEAST_SHARE * mass[:k].sum()

    def level(node: int) -> float:
        return 1.0 - tree[node - k, 2] if node >= k else 1.0

    def chosen(node: int, birth: float) -> tuple[float, list[int]]:
        """Stability of the best division below a group that begins at `node`, and its groups."""
        own, top = 0.0, node
        while True:
            if node < k:
                return own + mass[node] * (1.0 - birth), [top]
            a, b = tree[node - k, :2].astype(int)
            here = level(node)
            if min(mass[a], mass[b]) >= least:
                own += mass[node] * (here - birth)
                parts = [chosen(part, here) for part in (a, b)]
                below = sum(part[0] for part in parts)
                return (own, [top]) if own >= below else (below, parts[0][1] + parts[1][1])
            light, node = (a, b) if mass[a] < mass[b] else (b, a)
            own += mass[light] * (here - birth)

    node = 2 * k - 2
    while node >= k and min(mass[tree[node - k, :2].astype(int)]) < least:  # light parts leave the whole first
        a, b = tree[node - k, :2].astype(int)
        node = a if mass[a] >= mass[b] else b
    label = np.full(k, -1)
    parts = [node] if node < k else tree[node - k, :2].astype(int).tolist()
    groups = [group for part in parts for group in chosen(part, level(node) if node >= k else 0.0)[1]]
    for number, group in enumerate(groups):
        label[members[group]] = number
    return label


def penalty(times: float) -> Callable[[Fit], np.ndarray]:
    def rule(fit: Fit) -> np.ndarray:
        cost = fit.tree.misfit + times * fit.tree.cost * np.arange(1, fit.k + 1)
        return fit.cut_of(int(np.argmin(cost)) + 1)

    return rule


RULES: dict[str, Callable[[Fit], np.ndarray]] = {
    "components": lambda fit: np.arange(fit.k),
    "largest gap": largest_gap,
    "stability": stability,
    "prediction strength": prediction_strength,
    "excess of mass": excess_of_mass,
    "penalty 1": penalty(1.0),
    "penalty 3": penalty(3.0),
    "penalty 6": penalty(6.0),
    "default": lambda fit: fit.model.clusters().cluster_of,
    "told K": lambda fit: fit.cut_of(fit.n_classes),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", nargs="+", choices=list(SETS), dest="sets", help="default: all that can be read")
    parser.add_argument("--rows", type=int, default=4_000, help="most rows of a set")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    with threadpool_limits(1), arguments.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        for name in arguments.sets or available():
            data = load(name, arguments.rows)
            n_classes = len(np.unique(data.y))
            fit = Fit(data.x, n_classes)
            component = np.searchsorted(fit.tree.ids, fit.model.predict(data.x))
            for rule, choose in RULES.items():
                began = time.process_time()
                label = choose(fit)
                seconds = round(time.process_time() - began, 2)
                ari = round(float(adjusted_rand_score(data.y, label[component])), 3)
                values = (name, len(data.y), n_classes, fit.k, rule, len(np.unique(label)), ari, seconds)
                writer.writerow(dict(zip(FIELDS, values, strict=True)))
                file.flush()
                print("  ".join(map(str, values)), flush=True)


if __name__ == "__main__":
    main()
