"""Proportions of drawn Dirichlet clusters: how many components are found, and how well they agree.

Run: python benchmarks/proportions.py. 40 clusters of Zipf masses, 16,000 rows learned in batches of 500 and 4,000 held
out. Means of clusters are drawn from a Dirichlet distribution. Sets differ in the number of features, the precision,
and the standard deviation of its logarithm over clusters. With SHOAL_DATA, also topics of NIPS papers. Columns:
clusters with a row, components, adjusted Rand index and log density of the held-out rows, CPU microseconds a row
without compilation.
"""

import os
import time
from pathlib import Path

import numpy as np
from sklearn.metrics import adjusted_rand_score

from shoal import StreamingDPMixture
from shoal.points.arrays import Array, IntArray

CLUSTERS, LEARNED, HELD, BATCH = 40, 16_000, 4_000, 500
SETS = ((4, 60.0, 0.0), (10, 100.0, 0.0), (10, 100.0, 0.7), (50, 300.0, 0.7))


def drawn(n_features: int, precision: float, deviation: float) -> tuple[Array, IntArray]:
    """Proportions and their clusters."""
    rng = np.random.default_rng(0)
    share = 1.0 / np.arange(1, CLUSTERS + 1)
    z = rng.choice(CLUSTERS, size=LEARNED + HELD, p=share / share.sum())
    mean = rng.dirichlet(np.ones(n_features), CLUSTERS)
    own = precision * np.exp(deviation * rng.standard_normal(CLUSTERS))
    x = rng.standard_gamma((own[:, None] * mean)[z])
    return x / x.sum(axis=1, keepdims=True), z


def learned(x: Array, refinement: str | None) -> tuple[StreamingDPMixture, float]:
    """The model of rows x, and its CPU time in seconds."""
    model = StreamingDPMixture("dirichlet", refinement=refinement)  # type: ignore[arg-type]
    begun = time.process_time()
    for start in range(0, len(x), BATCH):
        model.partial_fit(x[start : start + BATCH])
    return model, time.process_time() - begun


def measure(name: str, x: Array, held: Array, z: IntArray | None, held_z: IntArray | None) -> None:
    """Print a line for one pass and one for refinements."""
    for refinement in (None, "auto"):
        learned(x[: 4 * BATCH], refinement)  # kernels are loaded
        model, seconds = learned(x, refinement)
        agreement = "-" if held_z is None else f"{adjusted_rand_score(held_z, model.predict(held)):.3f}"
        print(
            name,
            refinement or "none",
            "-" if z is None else len(np.unique(z)),
            len(model.component_ids_),
            agreement,
            f"{model.score_samples(held).mean():.2f}",
            f"{1e6 * seconds / len(x):.0f}",
            sep="; ",
            flush=True,
        )


def main() -> None:
    print("set; refinement; clusters; components; agreement; log density; us a row")
    for given in SETS:
        x, z = drawn(*given)
        measure(", ".join(map(str, given)), x[:LEARNED], x[LEARNED:], z[:LEARNED], z[LEARNED:])
    if "SHOAL_DATA" in os.environ:
        archive = np.load(Path(os.environ["SHOAL_DATA"]) / "nips_lda50.npz")
        x = archive["theta"].astype(float)
        x = x[np.random.default_rng(0).permutation(len(x))]
        measure("topics", x, archive["theta_test"].astype(float), None, None)


if __name__ == "__main__":
    main()
