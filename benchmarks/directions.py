"""Unit vectors of drawn von Mises-Fisher clusters: how many components are found, and how well they agree.

Run: python benchmarks/directions.py. 152 clusters of Zipf masses, 16,000 rows learned in batches of 500 and 4,000 held
out. Sets differ in the number of features, the concentration, and the standard deviation of its logarithm over
clusters. Columns: clusters with a row, components, adjusted Rand index and log density of the held-out rows, CPU
microseconds a row without compilation.
"""

import time

import numpy as np
from scipy.stats import vonmises_fisher
from sklearn.metrics import adjusted_rand_score

from shoal import StreamingDPMixture
from shoal.points.arrays import Array, IntArray

CLUSTERS, LEARNED, HELD, BATCH = 152, 16_000, 4_000, 500
SETS = ((64, 200.0, 0.0), (64, 200.0, 0.5), (384, 600.0, 0.5))


def drawn(n_features: int, concentration: float, deviation: float) -> tuple[Array, IntArray]:
    """Unit vectors and their clusters."""
    rng = np.random.default_rng(0)
    share = 1.0 / np.arange(1, CLUSTERS + 1)
    z = rng.choice(CLUSTERS, size=LEARNED + HELD, p=share / share.sum())
    mean = rng.standard_normal((CLUSTERS, n_features))
    mean /= np.linalg.norm(mean, axis=1, keepdims=True)
    own = concentration * np.exp(deviation * rng.standard_normal(CLUSTERS))
    x = np.empty((len(z), n_features))
    for k in np.unique(z):
        x[z == k] = vonmises_fisher(mean[k], own[k]).rvs(int((z == k).sum()), random_state=rng)
    return x, z


def learned(x: Array, refinement: str | None) -> tuple[StreamingDPMixture, float]:
    """The model of rows x, and its CPU time in seconds."""
    model = StreamingDPMixture("von_mises_fisher", refinement=refinement)  # type: ignore[arg-type]
    begun = time.process_time()
    for start in range(0, len(x), BATCH):
        model.partial_fit(x[start : start + BATCH])
    return model, time.process_time() - begun


def main() -> None:
    print("features; concentration; deviation; refinement; clusters; components; agreement; log density; us a row")
    for given in SETS:
        x, z = drawn(*given)
        for refinement in (None, "auto"):
            learned(x[: 4 * BATCH], refinement)  # kernels are loaded
            model, seconds = learned(x[:LEARNED], refinement)
            held = x[LEARNED:]
            print(
                *given,
                refinement or "none",
                len(np.unique(z[:LEARNED])),
                len(model.component_ids_),
                f"{adjusted_rand_score(z[LEARNED:], model.predict(held)):.3f}",
                f"{model.score_samples(held).mean():.2f}",
                f"{1e6 * seconds / LEARNED:.0f}",
                sep="; ",
                flush=True,
            )


if __name__ == "__main__":
    main()
