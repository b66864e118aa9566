"""Points that no clustering would want: the arithmetic stays finite, masses add up, equal points stay together."""

from fractions import Fraction

import numpy as np
import pytest

from shoal.families.diagonal import NormalInverseGamma
from shoal.families.gaussian import NormalInverseWishart
from shoal.families.predictive_cache import refresh
from shoal.points.arrays import LARGEST_COORDINATE
from shoal.sequential.one_pass import one_pass_inplace
from shoal.sequential.passes import PassRules, Piece, new_components


@pytest.mark.parametrize("d", [1, 3, 16])
def test_far_points(sva, form, d):
    for size in (1e8, 1e20, 1e100, 1e150, 1e307):
        rng = np.random.default_rng(d)
        x = rng.normal(size=(300, d))
        x[50:52] *= size
        x[52] = -x[51]
        x[100, 0] = size
        x[150:160] = x[100]
        x[200] = 5e-324
        prior, rules = sva.prior(form, d), sva.rules(max_components=30)
        result = sva.drive(prior, rules, x)
        for array in [*result.components.stats, *result.components.cache, result.components.pairs, result.log_density]:
            assert np.isfinite(array).all()
        assert result.components.stats.mass.sum() == pytest.approx(len(x), rel=1e-12)
        if form not in ("gaussian", "student") or size <= 1e8 or d == 1:
            # beyond 1e16 deviations a full scale matrix holds nothing but the outlier's own direction
            assert set(result.labels[150:160].tolist()) == {result.labels[100]}
        again = sva.drive(prior, rules, x, start=result.components, seen=300)
        fresh = result.components._replace(cache=refresh(prior, result.components.stats))
        renewed = sva.drive(prior, rules, x, start=fresh, seen=300)
        assert np.isfinite(again.log_density).all()
        assert np.isfinite(renewed.log_density).all()


def test_beyond_the_largest_coordinate_is_the_largest_coordinate(sva, form):
    prior, rules = sva.prior(form, 2), sva.rules()
    x = sva.clusters(60, 2, seed=1)
    x[30] = [1e150, -1e120]
    clipped = np.clip(x, -LARGEST_COORDINATE, LARGEST_COORDINATE)
    assert sva.same_bits(sva.drive(prior, rules, x), sva.drive(prior, rules, clipped))
    assert x[30, 0] == 1e150  # the caller's points are left alone


def test_products_of_many_features_that_overflow(sva):
    """2,000 features, each far out: the product of the diagonal form overflows and logarithms are summed instead."""
    prior = NormalInverseGamma.weak(2_000)
    rng = np.random.default_rng(0)
    x = 30.0 * rng.normal(size=(40, 2_000))
    result = sva.drive(prior, sva.rules("none"), x)
    first = prior.log_predictive(prior.posterior(prior.empty_stats(1)), x[:1])[0, 0]
    assert result.log_density[0] == pytest.approx(first, rel=1e-12)
    mixture = prior.log_predictive(prior.posterior(result.components.stats), x[-1:])
    assert np.isfinite(mixture).all()
    assert np.isfinite(result.log_density).all()


def test_duplicates(sva, form):
    """One point a thousand times over is one component with all the mass, its scatter zero."""
    prior = sva.prior(form, 3)
    x = np.tile([[0.3, -1.7, 2.9]], (1_000, 1))
    result = sva.drive(prior, sva.rules(), x)
    assert result.labels.max() == 0
    assert result.components.stats.mass[0] == pytest.approx(1_000, rel=1e-3)
    np.testing.assert_allclose(result.components.stats.mean[0], x[0], rtol=1e-14)
    np.testing.assert_allclose(result.components.stats.scatter[0], 0.0, atol=1e-12)


def test_a_far_outlier_costs_no_digits():
    """log |Psi| against exact rationals. Psi^-1 kept by rank-one corrections is left indefinite by such a point."""
    d = 3
    prior = NormalInverseWishart(np.zeros(d), 0.0625, d + 2.0, np.eye(d))
    components = new_components(prior, 2)
    rng = np.random.default_rng(0)
    x = np.concatenate([1e9 + rng.normal(size=(1, d)), rng.normal(size=(40, d))])
    rules = PassRules(1.0, 0.999999, 1e-3, "none", 1)
    log_density = np.empty(len(x))
    result = one_pass_inplace(prior, rules, components, 0, 0, Piece(x, np.empty(len(x), dtype=np.int64), log_density))
    assert (result.n_components, components.stats.mass[0]) == (1, len(x))
    assert components.cache.log_det[0] == pytest.approx(exact_log_det(x, Fraction(prior.mean_strength)), rel=1e-9)
    assert np.isfinite(log_density).all()


def exact_log_det(x, mean_strength):
    """log |I + scatter + kappa n / (kappa + n) mean mean'| of points x (N, D) under a prior of mean 0 and scale I."""
    rows = [[Fraction(value) for value in row] for row in x.tolist()]
    n, d = x.shape
    mean = [sum(row[a] for row in rows) / n for a in range(d)]
    pull = mean_strength * n / (mean_strength + n)
    psi = [
        [
            (a == b) + sum((row[a] - mean[a]) * (row[b] - mean[b]) for row in rows) + pull * mean[a] * mean[b]
            for b in range(d)
        ]
        for a in range(d)
    ]
    log_det = 0.0
    for a in range(d):
        log_det += float(np.log(float(psi[a][a])))
        for b in range(a + 1, d):
            factor = psi[b][a] / psi[a][a]
            psi[b] = [u - factor * v for u, v in zip(psi[b], psi[a], strict=True)]
    return log_det
