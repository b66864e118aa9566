"""The families of counts beside SciPy's distributions, and beside sums where SciPy's own log-gamma loses digits."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats as sps
from scipy.special import gammaln

from shoal.errors import SettingError
from shoal.families import BetaBernoulli, BetaNegativeBinomial, DirichletMultinomial, GammaPoisson, log_marginal
from shoal.points.rows import SparseRows

RNG = np.random.default_rng(5)
D = 4


def some_stats(family, x):
    resp = np.random.default_rng(1).dirichlet(np.ones(2), len(x))
    return family.suffstats(x, resp), resp


def test_multinomial_predictive_is_dirichlet_multinomial():
    family = DirichletMultinomial(RNG.uniform(0.2, 3.0, D))
    x = RNG.integers(0, 9, (30, D))
    stats, resp = some_stats(family, x)
    density = family.log_predictive(family.posterior(stats), x)
    for k in range(2):
        pseudo_counts = family.pseudo_counts + resp[:, k] @ x
        assert_allclose(density[:, k], sps.dirichlet_multinomial.logpmf(x, pseudo_counts, x.sum(axis=1)), rtol=1e-11)


def test_multinomial_likelihood_is_scipys():
    family = DirichletMultinomial(RNG.uniform(0.2, 3.0, D))
    draw = family.sample_parameters(family.posterior(family.empty_stats(2)), RNG)
    x = RNG.integers(0, 9, (30, D))
    for k in range(2):
        exact = sps.multinomial.logpmf(x, x.sum(axis=1), np.exp(draw.log_probability[k]))
        assert_allclose(family.log_likelihood(draw, x)[:, k], exact, rtol=1e-9)


@pytest.mark.parametrize("kind", [np.asarray, SparseRows.of])
def test_poisson_likelihood_is_scipys(kind):
    family = GammaPoisson(RNG.uniform(0.2, 3.0, D), RNG.uniform(0.1, 2.0, D))
    draw = family.sample_parameters(family.posterior(family.empty_stats(2)), RNG)
    x = RNG.integers(0, 9, (30, D))
    for k in range(2):
        exact = sps.poisson.logpmf(x, np.exp(draw.log_intensity[k])).sum(axis=1)
        assert_allclose(family.log_likelihood(draw, kind(x))[:, k], exact, rtol=1e-9)


@pytest.mark.parametrize("kind", [np.asarray, SparseRows.of])
def test_bernoulli_likelihood_is_scipys(kind):
    family = BetaBernoulli(RNG.uniform(0.2, 3.0, D), RNG.uniform(0.2, 3.0, D))
    draw = family.sample_parameters(family.posterior(family.empty_stats(2)), RNG)
    x = RNG.integers(0, 2, (30, D))
    for k in range(2):
        exact = sps.bernoulli.logpmf(x, np.exp(draw.log_one[k])).sum(axis=1)
        assert_allclose(family.log_likelihood(draw, kind(x))[:, k], exact, rtol=1e-9)


def test_poisson_predictive_is_negative_binomial():
    family = GammaPoisson(RNG.uniform(0.2, 3.0, D), RNG.uniform(0.1, 2.0, D))
    x = RNG.integers(0, 9, (30, D))
    stats, resp = some_stats(family, x)
    density = family.log_predictive(family.posterior(stats), x)
    for k in range(2):
        shape, rate = family.shape + resp[:, k] @ x, family.rate + resp[:, k].sum()
        assert_allclose(density[:, k], sps.nbinom.logpmf(x, shape, rate / (rate + 1)).sum(axis=1), rtol=1e-11)


def test_bernoulli_evidence_is_beta_binomial():
    """Of n rows the number of ones is beta-binomial; each order of them is as likely as any other."""
    family = BetaBernoulli(RNG.uniform(0.2, 3.0, D), RNG.uniform(0.2, 3.0, D))
    x = RNG.integers(0, 2, (11, D))
    ones = x.sum(axis=0)
    exact = sps.betabinom.logpmf(ones, 11, family.a, family.b) - np.log(sps.binom.pmf(ones, 11, 0.5) * 2.0**11)
    assert_allclose(log_marginal(family, family.suffstats(x, np.ones((11, 1))))[0], exact.sum(), rtol=1e-11)


@pytest.mark.parametrize("posterior", [1.0, 1e3, 1e9, 1e14])
def test_predictives_keep_their_digits_at_large_counts(posterior):
    """log G(b + x) - log G(b) by a sum of x logarithms; the plain difference has an error of 1e2 at b = 1e14."""
    x = np.array([[3.0, 200.0, 20_000.0]])
    stats = GammaPoisson(np.ones(3), 1.0).empty_stats(1)
    stats = stats._replace(mass=np.array([1.0]), total=np.full((1, 3), posterior))
    poisson, multinomial = GammaPoisson(np.ones(3), 1.0), DirichletMultinomial(np.ones(3))
    rising = [math.fsum(math.log(posterior + 1.0 + j) for j in range(int(v))) for v in x[0]]
    factorials = gammaln(x[0] + 1.0)
    exact = sum(rising) - factorials.sum() - x.sum() * math.log(3.0) - 3.0 * (posterior + 1.0) * math.log(1.5)
    got = poisson.log_predictive(poisson.posterior(stats), x)[0, 0]
    assert got == pytest.approx(exact, rel=1e-14, abs=1e-8)
    n, total = x.sum(), 3.0 * (posterior + 1.0)
    length = math.fsum(math.log(total + j) for j in range(int(n)))
    exact = math.fsum([*rising, -length, float(gammaln(n + 1.0)), *(-factorials)])
    kind = multinomial.empty_stats(1)
    kind = kind._replace(mass=np.array([1.0]), total=stats.total)
    got = multinomial.log_predictive(multinomial.posterior(kind), x)[0, 0]
    assert got == pytest.approx(exact, abs=2e-9)  # terms of 1e6 cancel to 1e4


def test_totals_of_large_counts_are_exact():
    x = np.array([[2**24 + 1, 1], [2**24 + 1, 0], [2**52, 3]], dtype=np.int64)
    for family in (DirichletMultinomial(np.ones(2)), GammaPoisson(np.ones(2), 1.0)):
        stats = family.suffstats(SparseRows.of(x), np.ones((3, 1)))
        assert stats.total[0].tolist() == x.sum(axis=0).tolist()


def test_a_document_without_words_says_nothing():
    family = DirichletMultinomial([0.5, 2.0])
    stats = family.suffstats(np.array([[4.0, 1.0], [0.0, 0.0]]), np.eye(2))
    assert family.log_predictive(family.posterior(stats), np.zeros((1, 2))).tolist() == [[0.0, 0.0]]
    assert log_marginal(family, stats)[1] == 0.0


def test_draws_of_tiny_shapes_are_probabilities():
    """Most probabilities are below the least float; none is NaN, and they sum to one."""
    rng = np.random.default_rng(3)
    family = DirichletMultinomial(np.full(1_000, 1e-4))
    draw = family.sample_parameters(family.posterior(family.empty_stats(3)), rng)
    assert np.isfinite(draw.log_probability).all()
    assert_allclose(np.exp(draw.log_probability).sum(axis=1), 1.0, rtol=1e-9)
    binary = BetaBernoulli(np.full(50, 1e-4), 1e-4)
    both = binary.sample_parameters(binary.posterior(binary.empty_stats(1)), rng)
    assert_allclose(np.exp(both.log_one) + np.exp(both.log_zero), 1.0, rtol=1e-12)


def test_hyperparameters_are_checked():
    assert BetaBernoulli(np.ones(3), 2.0) == BetaBernoulli(np.ones(3), np.full(3, 2.0))
    assert GammaPoisson(1.0, np.ones(3)).n_features == 3
    for make in (
        lambda: DirichletMultinomial(0.5),
        lambda: DirichletMultinomial([1.0, 0.0]),
        lambda: BetaBernoulli(1.0, 1.0),
        lambda: GammaPoisson([1.0, 1.0], [1.0, 1.0, 1.0]),
    ):
        with pytest.raises(SettingError):
            make()


@pytest.mark.parametrize("kind", [np.asarray, SparseRows.of])
def test_negative_binomial_is_scipys(kind):
    family = BetaNegativeBinomial(RNG.uniform(1.2, 3.0, D), RNG.uniform(0.2, 3.0, D), RNG.uniform(0.3, 6.0, D))
    draw = family.sample_parameters(family.posterior(family.empty_stats(2)), RNG)
    x = RNG.integers(0, 40, (30, D))
    for k in range(2):
        exact = sps.nbinom.logpmf(x, family.dispersion, np.exp(draw.log_success[k])).sum(axis=1)
        assert_allclose(family.log_likelihood(draw, kind(x))[:, k], exact, rtol=1e-9)
    family = BetaNegativeBinomial(family.a, family.b, RNG.integers(1, 7, D))  # SciPy has whole ones alone
    stats, resp = some_stats(family, x)
    density = family.log_predictive(family.posterior(stats), kind(x))
    for k in range(2):
        a, b = family.a + resp[:, k].sum() * family.dispersion, family.b + resp[:, k] @ x
        assert_allclose(density[:, k], sps.betanbinom.logpmf(x, family.dispersion, a, b).sum(axis=1), rtol=1e-9)


def test_moments_of_the_negative_binomial_predictive_are_scipys():
    family = BetaNegativeBinomial([2.5, 4.0], [1.0, 3.0], [1.0, 5.0])
    params = family.posterior(family.empty_stats(1))
    mean, variance = sps.betanbinom.stats(family.dispersion, family.a, family.b, moments="mv")
    assert_allclose(family.predictive_mean(params)[0], mean)
    assert_allclose(family.predictive_variance(params)[0], variance)
    heavy = BetaNegativeBinomial([0.9, 1.5], 1.0, 1.0)
    params = heavy.posterior(heavy.empty_stats(1))
    assert np.isnan(heavy.predictive_mean(params)[0, 0])
    assert np.isinf(heavy.predictive_variance(params)).all()


def test_expected_log_probabilities_of_counts_near_the_largest_keep_their_digits():
    """psi(b) - psi(a + b) had one digit left, or none: times such a count, every component lost its points."""
    family = BetaNegativeBinomial([9.0], [2e15], [32.0])
    params = family.posterior(family.suffstats(np.full((50, 1), 2.0**53 - 1.0), np.ones((50, 1))))
    a, b = params.a[0, 0], params.b[0, 0]
    exact = -math.fsum(1.0 / (b + i) for i in range(int(a)))  # a is a whole number
    assert family.mean_params(params)[0, 1] == pytest.approx(exact, rel=1e-12, abs=0.0)
