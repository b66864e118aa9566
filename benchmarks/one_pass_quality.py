"""Quality of one pass without refinement: components, agreement with the truth and held-out density, over seeds.

    python benchmarks/one_pass_quality.py [--seeds 10] [--out FILE.csv]

The streams are nine unit Gaussians on a 3 x 3 grid of spacing 4, and ten 2-separated Gaussians in 16 dimensions. The
ceiling comes from the true model: the adjusted Rand index of its most probable component, and its log density.
"""

import argparse
import csv
import time
from pathlib import Path

import numpy as np
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.metrics import adjusted_rand_score

from shoal import StreamingDPMixture

FAMILIES = ("gaussian", "diagonal", "known_covariance")


class Truth:
    """A mixture of Gaussians that draws and scores points."""

    def __init__(self, means: np.ndarray, covariances: np.ndarray, weights: np.ndarray) -> None:
        self.means, self.weights = means, weights
        self.roots = np.linalg.cholesky(covariances)
        self.parts = [multivariate_normal(m, c) for m, c in zip(means, covariances, strict=True)]

    def draw(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        z = rng.choice(len(self.weights), size=n, p=self.weights)
        noise = rng.normal(size=(n, self.means.shape[1]))
        return self.means[z] + np.einsum("nij,nj->ni", self.roots[z], noise), z

    def log_joint(self, x: np.ndarray) -> np.ndarray:
        return np.stack([part.logpdf(x) for part in self.parts], axis=1) + np.log(self.weights)


def grid(rng: np.random.Generator) -> Truth:
    means = 4.0 * np.array([(i, j) for i in range(3) for j in range(3)], dtype=float)
    return Truth(means, np.tile(np.eye(2), (9, 1, 1)), np.full(9, 1 / 9))


def ten_in_16(rng: np.random.Generator) -> Truth:
    """Ten Gaussians, 2-separated in the sense of Dasgupta (1999): |m_i - m_j| >= 2 sqrt(D max eigenvalue)."""
    turns = np.linalg.qr(rng.normal(size=(10, 16, 16)))[0]
    covariances = turns @ (rng.uniform(0.1, 1.0, size=(10, 16, 1)) * turns.transpose(0, 2, 1))
    means: list[np.ndarray] = []
    while len(means) < 10:
        mean = 2.0 * rng.normal(size=16)
        if all(np.linalg.norm(mean - other) >= 2.0 * np.sqrt(16.0) for other in means):
            means.append(mean)
    return Truth(np.array(means), covariances, rng.dirichlet(np.full(10, 5.0)))


WORKLOADS = {"grid of nine, spacing 4": (grid, 10_000), "ten in 16-D, c = 2": (ten_in_16, 20_000)}


def measure(family: str, truth: Truth, n: int, rng: np.random.Generator) -> dict[str, float]:
    x, _ = truth.draw(n, rng)
    test, labels = truth.draw(10_000, rng)
    model = StreamingDPMixture(family, refinement=None)
    began = time.process_time()
    for start in range(0, n, 1_000):
        model.partial_fit(x[start : start + 1_000])
    seconds = time.process_time() - began
    joint = truth.log_joint(test)
    return {
        "components": len(model.component_ids_),
        "ari": adjusted_rand_score(labels, model.predict(test)),
        "ceiling": adjusted_rand_score(labels, joint.argmax(axis=1)),
        "density_gap": float(logsumexp(joint, axis=1).mean() - model.score(test)),
        "rows_per_cpu_s": n / seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/one_pass_quality.csv"))
    arguments = parser.parse_args()
    rows = []
    for workload, (make, n) in WORKLOADS.items():
        for family in FAMILIES:
            found = []
            for seed in range(arguments.seeds):
                rng = np.random.default_rng(1_000 + seed)
                found.append(measure(family, make(rng), n, rng))
            columns = {name: np.array([run[name] for run in found]) for name in found[0]}
            rows.append(
                {
                    "workload": workload,
                    "points": n,
                    "family": family,
                    "seeds": arguments.seeds,
                    "components": " ".join(str(int(k)) for k in sorted(columns["components"])),
                    "ari_median": round(float(np.median(columns["ari"])), 3),
                    "ari_worst": round(float(columns["ari"].min()), 3),
                    "ceiling_median": round(float(np.median(columns["ceiling"])), 3),
                    "density_gap_median_nats": round(float(np.median(columns["density_gap"])), 4),
                    "rows_per_cpu_s_median": round(float(np.median(columns["rows_per_cpu_s"]))),
                }
            )
            print(rows[-1])
    with arguments.out.open("w", newline="") as out:
        writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
