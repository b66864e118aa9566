"""A family of one's own learnt by stochastic gradient: densities beside SciPy's, gradients beside differences.

Limits on sampled quantities are five standard errors: a false alarm in 10^6 tests.
"""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats as sps
from scipy.special import log_softmax, logsumexp, polygamma

from harness.gradient_proportions import GradientProportions
from shoal.errors import SettingError
from shoal.families import FAMILIES, EstimateStats, is_conjugate

D = 5


@pytest.fixture
def case():
    """A family, four parameters and six points."""
    rng = np.random.default_rng(7)
    family = GradientProportions(30.0, rng.uniform(0.3, 2.0, D))
    return family, rng.normal(0.0, 1.5, (4, D)), rng.dirichlet(np.full(D, 0.7), 6)


def differences(function, u, h=1e-6):
    """(K, P) central differences of a function of u (K, P) -> (K,)."""
    columns = []
    for j in range(u.shape[1]):
        step = np.zeros(u.shape[1])
        step[j] = h
        columns.append((function(u + step) - function(u - step)) / (2.0 * h))
    return np.stack(columns, axis=1)


def test_gradients_are_those_of_the_functions(case):
    family, u, x = case
    assert_allclose(family.log_prior_gradient(u), differences(family.log_prior, u), rtol=1e-6, atol=1e-7)
    for point in x:
        exact = differences(lambda v, point=point: family.log_likelihood(v, point[None])[0], u)
        assert_allclose(family.log_likelihood_gradient(u, point), exact, rtol=1e-6, atol=1e-6)


def test_likelihoods_are_scipys(case):
    family, u, x = case
    for k in range(4):
        exact = sps.dirichlet.logpdf(x.T, family.precision * np.exp(log_softmax(u[k])))
        assert_allclose(family.log_likelihood(u, x)[:, k], exact, rtol=1e-10)


def test_the_prior_of_proportions_is_a_density_in_u(case):
    """log Dir(theta) and log |d theta / d u| = sum log theta, the last u fixed."""
    family, u, _ = case
    theta = np.exp(log_softmax(u, axis=1))
    exact = [sps.dirichlet.logpdf(t, family.pseudo_counts) + np.log(t).sum() for t in theta]
    assert_allclose(family.log_prior(u), exact, rtol=1e-10)
    for row in range(4):
        jacobian = differences(lambda v: np.exp(log_softmax(v, axis=1))[0, :-1], np.tile(u[row], (D - 1, 1)))
        exact_log = np.linalg.slogdet(_jacobian(u[row]))[1]
        assert jacobian.shape == (D - 1, D)
        assert_allclose(np.log(theta[row]).sum(), exact_log, rtol=1e-6)


def _jacobian(u, h=1e-6):
    """d theta_1..D-1 / d u_1..D-1 by differences."""
    columns = []
    for j in range(D - 1):
        step = np.zeros(D)
        step[j] = h
        columns.append((np.exp(log_softmax(u + step)) - np.exp(log_softmax(u - step)))[:-1] / (2.0 * h))
    return np.stack(columns, axis=1)


# The natural gradient


def test_the_natural_gradient_of_proportions_undoes_the_fisher_information(case):
    family, u, x = case
    for row in u:
        theta = np.exp(log_softmax(row))
        jacobian = np.diag(theta) - np.outer(theta, theta)
        information = jacobian @ np.diag(900.0 * polygamma(1, 30.0 * theta)) @ jacobian
        gradient = family.log_likelihood_gradient(row[None], x[0])[0]
        assert_allclose(information @ family.direction(row, gradient), gradient, rtol=1e-8, atol=1e-8)
        drawn = np.random.default_rng(3).dirichlet(30.0 * theta, 4_000)
        gradients = np.array(
            [family.log_likelihood_gradient(row[None], np.maximum(point, 1e-12))[0] for point in drawn]
        )
        along = gradients @ np.arange(D)  # its variance is the information along that direction
        spread = (along - along.mean()) ** 2
        due = np.arange(D) @ information @ np.arange(D)
        assert abs(spread.mean() - due) < 5.0 * spread.std() / np.sqrt(4_000.0) + 1e-3 * due


def test_the_default_integral_is_monte_carlo_from_a_fixed_seed(case):
    _, _, x = case
    wide = GradientProportions(4.0, np.ones(D))
    draws = wide.draw_prior(200_000, np.random.default_rng(1))
    assert_allclose(wide.log_new(x), logsumexp(wide.log_likelihood(draws, x), axis=1) - np.log(200_000), atol=0.3)
    assert (wide.log_new(x) == GradientProportions(4.0, np.ones(D)).log_new(x)).all()


# Moments and the rest of the contract


def test_moments_are_those_of_draws(case):
    family, u, _ = case
    n = 40_000
    x = np.random.default_rng(1).dirichlet(family.precision * np.exp(log_softmax(u[0])), n)
    params = EstimateStats(np.array([2.0]), u[:1], np.ones(1))
    mean, covariance = family.predictive_mean(params)[0], family.predictive_covariance(params)[0]
    products = (x - mean)[:, :, None] * (x - mean)[:, None, :]
    assert (np.abs(x.mean(axis=0) - mean) < 5.0 * x.std(axis=0) / np.sqrt(n)).all()
    assert (np.abs(products.mean(axis=0) - covariance) < 5.0 * products.std(axis=0) / np.sqrt(n)).all()
    assert_allclose(family.predictive_variance(params)[0], np.diag(covariance), rtol=1e-12)


def test_a_prior_goes_through_arrays_and_pickles(case):
    family, _, _ = case
    paper = type(family)(*list(family.to_arrays().values())[:-3], step="paper", n_points=500.0, step_power=0.8)
    for one in (family, paper):
        assert type(one).from_arrays(one.to_arrays()) == one == pickle.loads(pickle.dumps(one))
    assert (family.step, paper.step, paper.n_points) == ("mass", "paper", 500.0)
    own = {name: value for name, value in family.to_arrays().items() if not name.startswith(("step_", "n_points"))}
    assert type(family).from_arrays(own) == family
    with pytest.raises(SettingError, match="; give"):
        type(family).from_arrays({**own, "colour": np.zeros(())})


def test_settings_out_of_range_are_refused():
    refused = [
        lambda: GradientProportions(0.0, [1.0, 1.0]),
        lambda: GradientProportions(1.0, [1.0, -1.0]),
        lambda: GradientProportions(1.0, [1.0, 1.0], step="paper"),
        lambda: GradientProportions(1.0, [1.0, 1.0], step="own"),
        lambda: GradientProportions(1.0, [1.0, 1.0], step_power=0.5),
    ]
    for make in refused:
        with pytest.raises(SettingError):
            make()


def test_every_family_of_the_registry_has_statistics_that_add():
    assert all(is_conjugate(kind) for kind in FAMILIES.values())
    assert not is_conjugate(GradientProportions)
