"""Clusters with heavy tails: `student` beside `gaussian` on drawn mixtures of Student t distributions.

Run: python benchmarks/heavy_tails.py. Six clusters with covariances of their own in 2 or 8 features, of nu = 3 or 5
degrees of freedom or Gaussian; 6,000 rows in random order and 3,000 held out; five seeds. Agreement is the adjusted
Rand index of held-out rows. CPU seconds do not include compilation.
"""

import time

import numpy as np
from sklearn.metrics import adjusted_rand_score

from shoal import StreamingDPMixture
from shoal.points.arrays import Array, IntArray

N_CLUSTERS, N_LEARNED, N_HELD = 6, 6_000, 3_000
SEEDS = range(5)


def drawn(n_features: int, degrees: float, seed: int) -> tuple[Array, IntArray]:
    """Points and their clusters; infinite degrees: Gaussians."""
    rng, n = np.random.default_rng(seed), N_LEARNED + N_HELD
    centres, z = rng.uniform(-8.0, 8.0, (N_CLUSTERS, n_features)), rng.integers(N_CLUSTERS, size=n)
    shape = (N_CLUSTERS, n_features, n_features)
    roots = 0.5 * np.eye(n_features) + 0.5 * rng.normal(size=shape) / np.sqrt(n_features)
    noise = np.einsum("nij,nj->ni", roots[z], rng.normal(size=(n, n_features)))
    factor = rng.chisquare(degrees, n) / degrees if np.isfinite(degrees) else np.ones(n)
    return centres[z] + noise / np.sqrt(factor)[:, None], z


def measure(n_features: int, degrees: float, family: str) -> None:
    found, agreement, density, learned, seconds = [], [], [], [], []
    for seed in SEEDS:
        x, z = drawn(n_features, degrees, seed)
        start = time.process_time()
        model = StreamingDPMixture(family).fit(x[:N_LEARNED])
        seconds.append(time.process_time() - start)
        held = x[N_LEARNED:]
        found.append(len(model.weights_))
        agreement.append(adjusted_rand_score(z[N_LEARNED:], model.predict(held)))
        density.append(model.score(held))
        learned.append(getattr(model._fitted.state.prior, "degrees", np.nan))
    print(
        f"D={n_features} nu={degrees} {family:9s} components {sorted(found)} agreement {np.mean(agreement):.3f} "
        f"density {np.mean(density):.3f} learned nu {np.round(learned, 1).tolist()} {np.median(seconds):.1f} s",
        flush=True,
    )


def main() -> None:
    for family in ("gaussian", "student"):
        StreamingDPMixture(family).fit(drawn(2, 5.0, 99)[0][:1_200])
    for n_features in (2, 8):
        for degrees in (3.0, 5.0, np.inf):
            for family in ("gaussian", "student"):
                measure(n_features, degrees, family)


if __name__ == "__main__":
    main()
