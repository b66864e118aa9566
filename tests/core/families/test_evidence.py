"""Evidence by kernel, against the families' own log partitions."""

import numpy as np
import pytest
from scipy.special import betaln

from shoal.families import (
    AnyFamily,
    BetaBernoulli,
    KnownCovariance,
    NormalInverseGamma,
    NormalInverseWishart,
    log_marginal,
    take,
)
from shoal.families.base import contiguous
from shoal.families.capabilities import fast_log_marginal, log_partition_with_gradient

SIZES = [(1, 1), (2, 9), (5, 3), (16, 12), (32, 2), (40, 2)]


def families_of(d: int) -> list[AnyFamily]:
    """A prior of each Gaussian family, none of its numbers round."""
    rng = np.random.default_rng(d)
    mean, root = rng.normal(size=d), np.tril(rng.normal(size=(d, d))) + 2.0 * np.eye(d)
    return [
        KnownCovariance(mean, 7.0, 0.6),
        KnownCovariance(mean, root @ root.T, 0.6 * np.eye(d)),
        NormalInverseGamma(mean, 0.13, 1.7, rng.uniform(0.2, 3.0, d)),
        NormalInverseWishart(mean, 0.13, d + 1.3, root @ root.T),
    ]


def close(found: np.ndarray, wanted: np.ndarray, least: float = 1e-11) -> None:
    """Within rounding of the largest terms, which are of the size of a thousand points' log density."""
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=least * max(1.0, float(np.abs(wanted).max())))


@pytest.mark.parametrize(("d", "t"), SIZES)
@pytest.mark.parametrize("place", [0.0, 1e3])
def test_evidence_is_that_of_the_log_partitions(d: int, t: int, place: float) -> None:
    """Far from the prior's mean the scale matrix is as ill-conditioned as the distance squared."""
    rng = np.random.default_rng(t)
    x = place + rng.normal(size=(60, d)) * np.exp(rng.normal(size=d))
    resp = rng.dirichlet(np.full(t, 0.2), size=60)
    for family in families_of(d):
        stats = family.suffstats(x, resp)
        close(fast_log_marginal(family, stats), log_marginal(family, stats), 1e-11 if place == 0.0 else 1e-9)


@pytest.mark.parametrize("d", [1, 3, 16])
def test_of_one_point_the_evidence_is_its_predictive_density(d: int) -> None:
    x = np.random.default_rng(d).normal(size=(1, d))
    for family in families_of(d):
        predictive = family.log_predictive(family.posterior(family.empty_stats(1)), x)
        close(fast_log_marginal(family, family.suffstats(x, np.ones((1, 1)))), predictive[0])


def test_of_no_points_the_evidence_is_one() -> None:
    for family in families_of(4):
        np.testing.assert_array_equal(fast_log_marginal(family, family.empty_stats(3)), np.zeros(3))


def test_points_that_repeat_have_an_evidence() -> None:
    for family in families_of(4):
        stats = family.suffstats(np.full((500, 4), 3.0), np.full((500, 1), 0.37))
        close(fast_log_marginal(family, stats), log_marginal(family, stats))


@pytest.mark.parametrize("family", families_of(3)[2:])
def test_what_is_not_finite_is_not_hidden(family: AnyFamily) -> None:
    stats = family.suffstats(np.random.default_rng(0).normal(size=(9, 3)), np.ones((9, 2)))
    stats.scatter[1] = np.nan
    try:
        found = fast_log_marginal(family, stats)
    except np.linalg.LinAlgError:
        return
    assert np.isfinite(found[0])
    assert np.isnan(found[1])


def test_a_family_without_a_kernel_has_its_evidence_all_the_same() -> None:
    family = BetaBernoulli(np.full(3, 0.7), np.full(3, 0.4))
    stats = family.suffstats(np.eye(3)[:2], np.ones((2, 1)))
    once, never = betaln(1.7, 1.4) - betaln(0.7, 0.4), betaln(0.7, 2.4) - betaln(0.7, 0.4)
    np.testing.assert_allclose(fast_log_marginal(family, stats), [2.0 * once + never], rtol=1e-12)


def test_statistics_of_any_layout_are_taken_and_left_as_they_are() -> None:
    family = families_of(3)[2]
    whole = family.suffstats(np.random.default_rng(0).normal(size=(9, 3)), np.random.default_rng(1).random((9, 4)))
    every_other = type(whole)(*(field[::2] for field in whole))
    for field in every_other:
        field.flags.writeable = False
    close(fast_log_marginal(family, every_other), log_marginal(family, take(whole, [0, 2])))
    assert contiguous(whole) is whole
    by_columns = type(whole)(*map(np.asfortranarray, whole))
    assert all(field.flags.carray for field in contiguous(by_columns))
    close(fast_log_marginal(family, by_columns), log_marginal(family, whole))


def test_log_partition_and_gradient_from_one_factor_are_those_asked_one_by_one() -> None:
    family = NormalInverseWishart(np.zeros(5), 0.5, 7.0, np.eye(5))
    x = np.random.default_rng(3).normal(size=(60, 5))
    params = family.posterior(family.suffstats(x, np.random.default_rng(4).random((60, 3))))
    value, gradient = log_partition_with_gradient(family, params)
    np.testing.assert_array_equal(value, family.log_partition(params))
    np.testing.assert_array_equal(gradient, family.mean_params(params))
