"""The evidence of mean counts beside its mean over every assignment of points, one after another."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import gammaln

from shoal.families import (
    BetaBernoulli,
    DirichletMultinomial,
    GammaPoisson,
    NormalInverseWishart,
    collapsed_log_marginal,
    log_marginal,
)
from shoal.families.counts import mean_log_rises

N, D = 7, 5


def few_counts(name, rng):
    if name == "bernoulli":
        return BetaBernoulli(0.02, 0.5 * np.ones(D)), (rng.random((N, D)) < 0.3).astype(float)
    rows = rng.multinomial(4, rng.dirichlet(np.full(D, 0.3)), size=N).astype(float)
    return (DirichletMultinomial(np.full(D, 0.02)) if name == "multinomial" else GammaPoisson(0.02, np.ones(D))), rows


def exact_mean(family, x, resp):
    """E log m(S(z)) of a component that each point joins with its own probability, resp (N,)."""
    total = 0.0
    for chosen in product((0.0, 1.0), repeat=len(x)):
        z = np.array(chosen)
        weight = float(np.prod(np.where(z == 1.0, resp, 1.0 - resp)))
        total += weight * float(log_marginal(family, family.suffstats(x, z[:, None]))[0])
    return total


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", ["multinomial", "bernoulli", "poisson"])
@pytest.mark.short_form("multinomial-0", "poisson-1", "bernoulli-2")
def test_it_is_nearer_to_the_mean_over_all_assignments_and_hardly_above_it(name, seed):
    rng = np.random.default_rng(seed)
    family, x = few_counts(name, rng)
    resp = np.abs((rng.random(N) < 0.5) - rng.uniform(0.0, 0.05, size=N))  # nearly all or nearly none, as in a pass
    stats = family.suffstats(x, resp[:, None])
    mean_field, collapsed = log_marginal(family, stats)[0], collapsed_log_marginal(family, stats)[0]
    exact = exact_mean(family, x, resp)
    assert mean_field < collapsed
    assert abs(collapsed - exact) < abs(mean_field - exact)
    # Above the mean only by the terms left at it: here the masses and words are 2 to 20, their variances below .2.
    assert collapsed < exact + 0.1


@pytest.mark.parametrize("name", ["multinomial", "bernoulli", "poisson"])
def test_of_whole_counts_it_is_the_evidence(name):
    family, x = few_counts(name, np.random.default_rng(9))
    stats = family.suffstats(x, np.eye(3)[np.arange(N) % 3])
    assert_allclose(collapsed_log_marginal(family, stats), log_marginal(family, stats), rtol=0.0, atol=1e-12)


def test_of_other_families_it_is_the_evidence():
    rng = np.random.default_rng(2)
    family, x = NormalInverseWishart.weak(3), rng.normal(size=(N, 3))
    stats = family.suffstats(x, rng.dirichlet(np.ones(2), size=N))
    assert_allclose(collapsed_log_marginal(family, stats), log_marginal(family, stats), rtol=0.0, atol=0.0)


@pytest.mark.parametrize("a", [1e-3, 0.3, 7.0, 1e9])
def test_the_chord_lies_between_the_function_and_its_mean(a):
    rng = np.random.default_rng(3)
    for _ in range(20):
        probability = rng.beta(0.3, 0.7, size=9)
        count = np.array([1.0])  # the law of the sum of independent zeros and ones
        for p in probability:
            count = np.convolve(count, [1.0 - p, p])
        mean = probability.sum()
        exact = float(count @ (gammaln(a + np.arange(10.0)) - gammaln(a)))
        least = float(gammaln(a + mean) - gammaln(a))
        rounding = 1e-14 * float(gammaln(a + 10.0))
        chord = float(mean_log_rises(np.array([a]), np.array([[mean]]))[0])
        assert least - rounding <= chord <= exact + rounding
        if a < 1.0:
            assert chord > least


def test_a_count_of_nought_or_one_has_no_other_mean():
    """The whole difference, not a part of it: over two nats of a share of .01 under a pseudo count of .001."""
    a, share = 1e-3, 1e-2
    exact = 0.01 * (gammaln(a + 1.0) - gammaln(a))
    assert_allclose(mean_log_rises(np.array([a]), np.array([[share]])), exact, rtol=1e-12)
    assert exact - (gammaln(a + share) - gammaln(a)) == pytest.approx(2.33, abs=0.01)
