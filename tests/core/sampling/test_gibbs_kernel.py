"""The kernel of collapsed Gibbs against the plain sweep, point by point, and what taking points out leaves behind."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from shoal.families import FAMILIES, NormalInverseGamma, NormalInverseWishart, take
from shoal.families.predictive_cache import refresh
from shoal.sampling import Chain, component_stats, start_chain, sweep_inplace
from shoal.sampling.chain import SWEEPS_BETWEEN_REBUILDS, live_stats
from shoal.sampling.reference import reference_sweep


def check_stats(family: Any, chain: Chain, x: Any, rtol: float = 1e-10) -> None:
    """The chain's statistics are those of its labels, its predictive cache theirs, and no variance is below zero."""
    for carried, fresh in zip(live_stats(chain), component_stats(family, x, chain.labels), strict=True):
        assert_allclose(carried, fresh, rtol=rtol, atol=rtol * np.abs(x).max() ** 2)
    cache = take(chain.cache, slice(0, chain.n_components))
    for carried, fresh in zip(cache, refresh(family, component_stats(family, x, chain.labels)), strict=True):
        assert_allclose(carried, fresh, rtol=rtol, atol=rtol * max(1.0, np.abs(fresh).max()))
    scatter = live_stats(chain).scatter
    assert np.all((np.diagonal(scatter, axis1=1, axis2=2) if scatter.ndim == 3 else scatter) >= 0.0)


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.short_form("gaussian-2", "diagonal-1", "spherical-5", "shared-2")
def test_labels_agree_with_the_plain_sweep(form: str, d: int, samplers: SimpleNamespace) -> None:
    """Same uniform numbers, same labels: a disagreement of the scores by 1e-10 shows once in 1e8 draws."""
    family, x = samplers.prior(form, d), samplers.points(50, d)
    rng = np.random.default_rng(1)
    chain = start_chain(family, np.full(50, -1))
    plain = chain.labels.copy()
    for _ in range(10):
        uniforms = rng.random(50)
        sweep_inplace(family, 2.0, chain, x, uniforms)
        plain = reference_sweep(family, 2.0, plain, x, uniforms)
        assert_array_equal(chain.labels, plain)
    assert chain.n_components == plain.max() + 1


def test_statistics_stay_those_of_the_labels(form: str, samplers: SimpleNamespace) -> None:
    family, x = samplers.prior(form, 3), samplers.points(80, 3)
    rng = np.random.default_rng(2)
    chain = start_chain(family, rng.integers(0, 30, 80))  # more rows than a chain begins with: the arrays grow
    for _ in range(3 * SWEEPS_BETWEEN_REBUILDS - 1):
        sweep_inplace(family, 1.0, chain, x, rng.random(80))
        check_stats(family, chain, x)


@pytest.mark.parametrize("name", ["gaussian", "diagonal"])
def test_far_shifted_data_lose_no_more_than_the_shift_costs(name: str, samplers: SimpleNamespace) -> None:
    """At an offset of 1e6 points themselves are known to 1e-10; the statistics are as good as made again."""
    family = FAMILIES[name].weak(3)
    x = samplers.points(60, 3) + 1e6
    rng = np.random.default_rng(3)
    chain = start_chain(family, rng.integers(0, 4, 60))
    for _ in range(SWEEPS_BETWEEN_REBUILDS - 1):
        sweep_inplace(family, 1.0, chain, x, rng.random(60))
    for carried, fresh in zip(live_stats(chain)[1:], component_stats(family, x, chain.labels)[1:], strict=True):
        assert_allclose(carried, fresh, rtol=1e-8, atol=1e-7)


@pytest.mark.parametrize(
    "family",
    [NormalInverseWishart(np.zeros(2), 1.0, 4.0, np.eye(2)), NormalInverseGamma(np.zeros(2), 1.0, 2.0, np.ones(2))],
    ids=lambda family: family.name,
)
def test_component_that_one_point_made_wide_is_made_again_without_it(family: Any, samplers: SimpleNamespace) -> None:
    """Without the outlier variances fall by 1e12: a downdate would keep four digits."""
    x = np.vstack([0.1 * samplers.points(9, 2), [[1e6, 1e6]]])
    chain = start_chain(family, np.zeros(10, dtype=np.int64))
    uniforms = np.zeros(10)  # zero draws the first row: the nine stay, whatever they would rather do
    uniforms[9] = 0.5
    sweep_inplace(family, 1.0, chain, x, uniforms)
    assert chain.labels.tolist() == [0] * 9 + [1]
    check_stats(family, chain, x, rtol=1e-11)
    covariance = np.cov(x[:9].T)
    truth = covariance if family.name == "gaussian" else np.diag(covariance)
    assert_allclose(chain.stats.scatter[0], 8 * truth, rtol=1e-12)


def test_capacity_does_not_matter(form: str, samplers: SimpleNamespace) -> None:
    """From few rows, grown on the way, and from many: the same labels to the last."""
    family, x = samplers.prior(form, 2), samplers.points(60, 2)
    rng = np.random.default_rng(5)
    uniforms = rng.random((3, 60))
    few, many = start_chain(family, np.full(60, -1)), start_chain(family, np.arange(60))
    many.labels[:] = -1
    many.n_components = 0
    for row in uniforms:
        sweep_inplace(family, 30.0, few, x, row)
        sweep_inplace(family, 30.0, many, x, row)
    assert few.n_components > 16
    assert_array_equal(few.labels, many.labels)


def test_one_point(form: str, samplers: SimpleNamespace) -> None:
    family, x = samplers.prior(form, 2), samplers.points(1, 2)
    chain = start_chain(family, np.array([-1]))
    for uniform in (0.0, 0.5, 1.0 - 2**-53):
        sweep_inplace(family, 1.0, chain, x, np.array([uniform]))
        assert chain.n_components == 1
        assert chain.labels.tolist() == [0]
