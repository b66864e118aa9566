"""How well one pass alone finds clusters. Seeds are fixed; limits leave room for arithmetic, not for a worse method.

Measured over 20 other seeds when written. Nine Gaussians at spacing 4, 10,000 points (the true mixture's own adjusted
Rand index is .87): full and diagonal covariance 8 or 9 components, index .72 to .87, median .85; known covariance 9 to
16 (median 10), .76 to .88. Ten Gaussians in 16 dimensions: 10 components and 1.00 in every family.
"""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from shoal import StreamingDPMixture
from shoal.mixture import StreamSettings
from shoal.sequential import assimilate_inplace, initial_state

FAMILIES = ("gaussian", "diagonal", "known_covariance")


def nine(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Nine unit Gaussians on a 3 x 3 grid of spacing 4."""
    rng = np.random.default_rng(seed)
    z = rng.integers(9, size=n)
    return 4.0 * np.stack([z % 3, z // 3], axis=1) + rng.normal(size=(n, 2)), z


def ten_in_16(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Ten Gaussians of random covariance in 16 dimensions, 2-separated (Dasgupta 1999), weights Dirichlet(5)."""
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(10, 16, 16))
    roots = np.linalg.qr(roots)[0] * np.sqrt(rng.uniform(0.3, 1.0, size=(10, 1, 16)))
    means: list[np.ndarray] = []
    while len(means) < 10:
        mean = 2.0 * rng.normal(size=16)
        if all(np.linalg.norm(mean - other) >= 2.0 * 4.0 for other in means):
            means.append(mean)
    z = rng.choice(10, size=n, p=rng.dirichlet(np.full(10, 5.0)))
    return np.array(means)[z] + np.einsum("nij,nj->ni", roots[z], rng.normal(size=(n, 16))), z


def _learnt(x: np.ndarray, z: np.ndarray, family: str, n_test: int = 2_000) -> tuple[int, float]:
    model = StreamingDPMixture(family, refinement=None).fit(x[:-n_test])
    return len(model.component_ids_), float(adjusted_rand_score(z[-n_test:], model.predict(x[-n_test:])))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.short_form("0-*")
def test_nine_gaussians(family: str, seed: int) -> None:
    x, z = nine(12_000, seed)
    components, agreement = _learnt(x, z, family)
    assert 8 <= components <= 13
    assert agreement > 0.7


@pytest.mark.parametrize("family", FAMILIES)
def test_ten_gaussians_in_16_dimensions(family: str) -> None:
    x, z = ten_in_16(22_000, 0)
    components, agreement = _learnt(x, z, family)
    assert 10 <= components <= 12
    assert agreement > 0.98


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_nine_gaussians_over_many_seeds(family: str) -> None:
    found = [_learnt(*nine(22_000, 100 + seed), family) for seed in range(20)]
    agreements = np.array([agreement for _, agreement in found])
    assert np.median(agreements) > 0.8
    assert agreements.min() > 0.6
    assert np.mean([abs(components - 9) for components, _ in found]) < 1.5


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gaussian", "diagonal"])
def test_clusters_that_drift_keep_their_ids(family: str) -> None:
    """Six clusters on a circle, turning by a quarter over 60,000 points: each is one component all the way.

    Not with known covariance: the search settles on too small a one here, and one of the six is handed to a newborn.
    """
    rng = np.random.default_rng(3)
    n, k, step = 60_000, 6, 5_000
    z = rng.integers(k, size=n)
    angle = 2 * np.pi * z / k + np.linspace(0.0, np.pi / 2, n)
    x = 14.0 * np.stack([np.cos(angle), np.sin(angle)], axis=1) + rng.normal(size=(n, 2))
    state = initial_state(StreamSettings(n_features=2, family=family, half_life=2_000.0))
    best = []
    for start in range(0, n, step):
        state, info = assimilate_inplace(state, x[start : start + step])
        best.append([np.bincount(info.labels[z[start : start + step] == c]).argmax() for c in range(k)])
    assert np.all(np.array(best) == best[0])
    assert len(set(best[0])) == k
