"""The predictive cache made again by the kernel is that of NumPy and LAPACK."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from shoal.families import NormalInverseGamma, NormalInverseWishart
from shoal.families.located.renewal_kernel import renew_diagonal, renew_gaussian
from shoal.families.predictive_cache import empty_cache, kernel_prior, refresh


def arguments(prior: NormalInverseWishart):
    return prior.mean, prior.mean_strength, prior.dof, prior.scale_matrix


@pytest.mark.parametrize("d", [1, 2, 7, 32])
@pytest.mark.parametrize("spread", [1.0, 1e-4])
def test_the_kernel_agrees_with_lapack(d: int, spread: float) -> None:
    """The last component is empty, the first has one point; digits as the condition of the matrices lets keep."""
    rng = np.random.default_rng(d)
    scale = np.diag(np.geomspace(spread, 1.0, d)) + 0.1 * spread
    prior = NormalInverseWishart(rng.normal(size=d), 0.3, d + 1.5, scale)
    resp = rng.dirichlet(np.ones(5), size=80)
    resp[:, 0], resp[:, 4] = 0.0, 0.0
    resp[3, 0] = 1.0
    stats = prior.suffstats(rng.normal(size=(80, d)), resp)
    expected = refresh(prior, stats)
    cache = empty_cache(prior, 5)
    assert renew_gaussian(stats, *arguments(prior), cache, 5)
    for name, field, wanted in zip(cache._fields, cache, expected, strict=True):
        assert_allclose(field, wanted, rtol=1e-9, atol=1e-9 * np.abs(wanted).max(), err_msg=name)
    for k in range(5):
        psi = prior.posterior(stats).scale[k]
        assert_allclose(cache.root[k] @ psi @ cache.root[k].T, np.eye(d), atol=1e-9)
        assert np.array_equal(cache.root[k], np.tril(cache.root[k]))


@pytest.mark.parametrize("d", [1, 6, 300])
def test_the_diagonal_kernel_agrees_with_numpy(d: int) -> None:
    rng = np.random.default_rng(d)
    prior = NormalInverseGamma(rng.normal(size=d), 0.3, 1.7, rng.uniform(0.1, 2.0, size=d))
    resp = rng.dirichlet(np.ones(4), size=80)
    resp[:, 3] = 0.0
    stats = prior.suffstats(rng.normal(size=(80, d)), resp)
    cache = empty_cache(prior, 4)
    renew_diagonal(stats, prior.mean, prior.mean_strength, prior.shape, prior.rate, cache, 4)
    for name, field, wanted in zip(cache._fields, cache, refresh(prior, stats), strict=True):
        assert_allclose(field, wanted, rtol=1e-12, atol=1e-12, err_msg=name)


def test_a_matrix_without_a_factor_is_told() -> None:
    prior = NormalInverseWishart.weak(2)
    stats = prior.empty_stats(1)._replace(mass=np.ones(1), scatter=np.full((1, 2, 2), -9.0))
    assert not renew_gaussian(stats, *arguments(prior), empty_cache(prior, 1), 1)


def test_the_empty_component_of_a_diagonal_prior_is_that_of_a_full_one_to_the_bit() -> None:
    rng = np.random.default_rng(0)
    for d in (1, 2, 5, 16, 40):
        for _ in range(20):
            scale = np.diag(rng.gamma(1.0, size=d))
            prior = NormalInverseWishart(rng.normal(size=d), rng.gamma(1.0), d - 1 + 50.0 * rng.gamma(1.0), scale)
            rebuilt = refresh(prior, prior.empty_stats(2))  # of one row the quick way is taken here, too
            for quick, whole in zip(kernel_prior(prior).empty, rebuilt, strict=True):
                np.testing.assert_array_equal(quick, whole[:1])
            assert kernel_prior(prior).constants.diagonal
    full = NormalInverseWishart(np.zeros(2), 1.0, 3.0, np.array([[2.0, 0.5], [0.5, 1.0]]))
    assert not kernel_prior(full).constants.diagonal
