"""Families learnt by stochastic gradient: densities beside SciPy's, gradients beside differences, integrals by
quadrature.

Limits on sampled quantities are five standard errors: a false alarm in 10^6 tests.
"""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats as sps
from scipy.integrate import dblquad
from scipy.special import gammaln, log_softmax, logsumexp, polygamma

from shoal.errors import SettingError
from shoal.families import FAMILIES, DirichletByGradient, EstimatedFamily, EstimateStats, is_conjugate

D = 5


@pytest.fixture
def case():
    """A family, four parameters and six points."""
    rng = np.random.default_rng(7)
    family = DirichletByGradient(30.0, rng.uniform(0.3, 2.0, D))
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


def test_no_step_takes_a_proportion_to_zero(case):
    """Its gradient would be lost: psi(0) is infinite."""
    family, u, x = case
    far = np.append(u[0, :-1], -900.0)
    settled = family.settled(far)
    assert_allclose(settled[:-1], log_softmax(far)[:-1], rtol=1e-12)
    assert np.isfinite(family.log_likelihood_gradient(settled[None], x[0])).all()
    assert np.exp(settled[-1]) > 0.0


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
        drawn = np.random.default_rng(3).dirichlet(30.0 * theta, 2_000)
        gradients = np.array(
            [family.log_likelihood_gradient(row[None], np.maximum(point, 1e-12))[0] for point in drawn]
        )
        along = gradients @ np.arange(D)  # its variance is the information along that direction
        spread = (along - along.mean()) ** 2
        due = np.arange(D) @ information @ np.arange(D)
        assert abs(spread.mean() - due) < 5.0 * spread.std() / np.sqrt(2_000.0) + 1e-3 * due


# The integral of a new component


@pytest.mark.parametrize("counts", [(1.0, 1.0), (0.3, 2.0), (0.1, 0.1)])
@pytest.mark.parametrize("precision", [1.0, 20.0, 500.0])
@pytest.mark.short_form("1.0-counts0", "20.0-counts2", "500.0-counts1")
def test_a_new_component_of_two_proportions_by_quadrature(precision, counts):
    """In u, where the integrand decays like exp(-count |u|): the trapezoid rule is exact to rounding."""
    family = DirichletByGradient(precision, counts)
    u = np.arange(-400.0, 400.0, 2.0**-8)
    grid = np.stack([u, np.zeros_like(u)], axis=1)
    x = np.array([[a, 1.0 - a] for a in (0.5, 0.1, 1e-3, 1.0 - 1e-5)])
    exact = logsumexp(family.log_likelihood(grid, x) + family.log_prior(grid), axis=1) - 8.0 * np.log(2.0)
    assert_allclose(family.log_new(x), exact, atol=0.01)


def test_a_new_component_of_three_proportions_by_quadrature():
    family = DirichletByGradient(12.0, [0.8, 1.5, 1.0])
    log_beta = gammaln(family.pseudo_counts.sum()) - gammaln(family.pseudo_counts).sum()
    thirds = np.full(3, 1.0 / 3.0)
    density = log_beta + (family.pseudo_counts - 1.0) @ np.log(thirds)
    assert density == pytest.approx(sps.dirichlet.logpdf(thirds, family.pseudo_counts))
    for x in ([0.2, 0.3, 0.5], [0.01, 0.04, 0.95]):
        log_x = np.log(x)

        def integrand(b, a, log_x=log_x):
            theta = np.array([a, b, max(1.0 - a - b, 1e-300)])
            alpha = 12.0 * theta
            likelihood = gammaln(12.0) - gammaln(alpha).sum() + (alpha - 1.0) @ log_x
            return np.exp(likelihood + log_beta + (family.pseudo_counts - 1.0) @ np.log(theta))

        value, _ = dblquad(integrand, 1e-9, 1.0 - 1e-9, 1e-9, lambda a: 1.0 - a - 1e-9, epsabs=1e-3, epsrel=1e-4)
        assert_allclose(family.log_new(np.array([x])), np.log(value), atol=0.01)


def test_a_new_component_in_many_features_beside_draws():
    """With a precision near that of the prior, draws do reach the point."""
    rng = np.random.default_rng(8)
    family = DirichletByGradient(8.0, np.linspace(0.5, 1.5, 12))
    draws = family.draw_prior(200_000, rng)
    x = rng.dirichlet(np.ones(12), 3)
    weight = np.exp(family.log_likelihood(draws, x) - family.log_new(x)[:, None])
    error = 5.0 * weight.std(axis=1) / np.sqrt(200_000.0)
    assert (np.abs(weight.mean(axis=1) - 1.0) < error + 0.01).all()
    assert (error < 0.2).all()


def test_the_density_of_a_new_component_integrates_to_one():
    """In the log odds, since it has no bound at the edges; means well inside, so that no mass lies beyond the floor."""
    odds = np.arange(-27.0, 27.0, 2.0**-6)
    x = np.stack([1.0 / (1.0 + np.exp(-odds)), 1.0 / (1.0 + np.exp(odds))], axis=1)
    for precision in (3.0, 40.0):
        density = np.exp(DirichletByGradient(precision, [6.0, 8.0]).log_new(x)) * x[:, 0] * x[:, 1]
        assert_allclose(density.sum() / 64.0, 1.0, atol=0.01)


def test_the_default_integral_is_monte_carlo_from_a_fixed_seed(case):
    _, _, x = case
    wide = DirichletByGradient(4.0, np.ones(D))
    assert_allclose(EstimatedFamily.log_new(wide, x), wide.log_new(x), atol=0.3)
    assert (EstimatedFamily.log_new(wide, x) == EstimatedFamily.log_new(DirichletByGradient(4.0, np.ones(D)), x)).all()


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


def test_moments_of_a_new_component_are_those_of_draws():
    rng, n = np.random.default_rng(6), 40_000
    family = DirichletByGradient(6.0, [0.5, 1.0, 2.0])
    gamma = rng.standard_gamma(6.0 * rng.dirichlet(family.pseudo_counts, n))
    drawn = gamma / gamma.sum(axis=1)[:, None]
    mean, covariance = family.new_moments()
    products = (drawn - mean)[:, :, None] * (drawn - mean)[:, None, :]
    assert (np.abs(drawn.mean(axis=0) - mean) < 5.0 * drawn.std(axis=0) / np.sqrt(n)).all()
    assert (np.abs(products.mean(axis=0) - covariance) < 5.0 * products.std(axis=0) / np.sqrt(n)).all()


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
        lambda: DirichletByGradient(0.0, [1.0, 1.0]),
        lambda: DirichletByGradient(1.0, [1.0]),
        lambda: DirichletByGradient(1.0, [1.0, -1.0]),
        lambda: DirichletByGradient(1.0, [1.0, 1.0], step="paper"),
        lambda: DirichletByGradient(1.0, [1.0, 1.0], step="own"),
        lambda: DirichletByGradient(1.0, [1.0, 1.0], step_power=0.5),
    ]
    for make in refused:
        with pytest.raises(SettingError):
            make()


def test_only_this_one_is_not_conjugate():
    assert {name for name, kind in FAMILIES.items() if not is_conjugate(kind)} == {"dirichlet_gradient"}
