"""Each family beside SciPy's densities and the textbook's formulas in plain inverses.

Monte Carlo limits are 5.5 standard errors: a false alarm in 4e-8 a value. Seeds are fixed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats as sps

from shoal.families import AnyFamily, KnownCovariance, NormalInverseGamma, NormalInverseWishart, kl, log_marginal, take

LIMIT = 5.5


class Reference(NamedTuple):
    """A family's densities through SciPy; `row` is one row of Params, `draw` one row of a draw of parameters."""

    log_prior: Callable[[AnyFamily, Any, Any], float]
    log_likelihood: Callable[[AnyFamily, Any, np.ndarray], np.ndarray]
    log_predictive: Callable[[AnyFamily, Any, np.ndarray], np.ndarray]
    statistic: Callable[[AnyFamily, Any], tuple[np.ndarray, float]]  # of one draw: (P,), and the log base measure


def niw_statistic(family: AnyFamily, draw: Any) -> tuple[np.ndarray, float]:
    precision = np.linalg.inv(draw.covariance)
    log_det = np.linalg.slogdet(precision)[1]
    first = precision @ draw.mean
    upper = precision[np.triu_indices(family.n_features)]
    return np.r_[first, -draw.mean @ first / 2, log_det / 2, -upper / 2], (family.n_features + 2) / 2 * log_det


def nig_statistic(_: AnyFamily, draw: Any) -> tuple[np.ndarray, float]:
    r, m = 1 / draw.variance, draw.mean
    return np.r_[r * m, -r @ m**2 / 2, np.log(r).sum() / 2, -r / 2], 1.5 * float(np.log(r).sum())


def known_statistic(family: Any, draw: Any) -> tuple[np.ndarray, float]:
    theta = family.basis @ draw.mean
    return np.r_[theta, -(theta**2) / 2], float(np.linalg.slogdet(family.basis)[1])


def niw_log_prior(_: AnyFamily, row: Any, draw: Any) -> float:
    covariance = sps.invwishart.logpdf(draw.covariance, row.dof, row.scale)
    return float(covariance + sps.multivariate_normal.logpdf(draw.mean, row.mean, draw.covariance / row.mean_strength))


def niw_log_predictive(family: AnyFamily, row: Any, x: np.ndarray) -> np.ndarray:
    dof = row.dof - family.n_features + 1
    shape = row.scale * (row.mean_strength + 1) / (row.mean_strength * dof)
    return np.atleast_1d(sps.multivariate_t(row.mean, shape, dof).logpdf(x))


def nig_log_prior(_: AnyFamily, row: Any, draw: Any) -> float:
    variance = sps.invgamma.logpdf(draw.variance, row.shape, scale=row.rate)
    return float(np.sum(variance + sps.norm.logpdf(draw.mean, row.mean, np.sqrt(draw.variance / row.mean_strength))))


def nig_log_predictive(_: AnyFamily, row: Any, x: np.ndarray) -> np.ndarray:
    width = np.sqrt(row.rate * (row.mean_strength + 1) / (row.mean_strength * row.shape))
    return sps.t.logpdf(x, 2 * row.shape, row.mean, width).sum(axis=1)


def as_matrix(covariance: np.ndarray, d: int) -> np.ndarray:
    return covariance if covariance.ndim == 2 else covariance * np.eye(d)


def posterior_covariance(family: Any, row: Any) -> np.ndarray:
    """By way of the mass, which the basis hides: precision = prior precision + mass in every coordinate."""
    mass = float(np.mean(row.precision - family.prior_precision))
    d = family.n_features
    within, prior = as_matrix(family.covariance, d), as_matrix(family.prior_covariance, d)
    return np.linalg.inv(np.linalg.inv(prior) + mass * np.linalg.inv(within))


REFERENCES: dict[str, Reference] = {
    "gaussian": Reference(
        niw_log_prior,
        lambda _, draw, x: np.atleast_1d(sps.multivariate_normal(draw.mean, draw.covariance).logpdf(x)),
        niw_log_predictive,
        niw_statistic,
    ),
    "diagonal": Reference(
        nig_log_prior,
        lambda _, draw, x: sps.norm.logpdf(x, draw.mean, np.sqrt(draw.variance)).sum(axis=1),
        nig_log_predictive,
        nig_statistic,
    ),
    "known_covariance": Reference(
        lambda family, row, draw: float(
            sps.multivariate_normal.logpdf(draw.mean, row.mean, posterior_covariance(family, row))
        ),
        lambda family, draw, x: np.atleast_1d(
            sps.multivariate_normal(draw.mean, as_matrix(family.covariance, len(draw.mean))).logpdf(x)
        ),
        lambda family, row, x: np.atleast_1d(
            sps.multivariate_normal(
                row.mean, posterior_covariance(family, row) + as_matrix(family.covariance, len(row.mean))
            ).logpdf(x)
        ),
        known_statistic,
    ),
}


def some_covariance(d: int, rng: np.random.Generator) -> np.ndarray:
    root = rng.standard_normal((d, d + 1))
    return root @ root.T + 0.3 * np.eye(d)


def families(d: int) -> list[AnyFamily]:
    rng = np.random.default_rng(d)
    centre = rng.standard_normal(d)
    return [
        NormalInverseWishart(centre, 0.6, d + 3.2, some_covariance(d, rng)),
        NormalInverseGamma(centre, 0.6, 2.2, rng.uniform(0.5, 2.0, d)),
        KnownCovariance(centre, 4.0, 0.5),
        KnownCovariance(centre, some_covariance(d, rng), some_covariance(d, rng)),
    ]


ALL = [(family, d) for d in (1, 2, 5) for family in families(d)]
every_family = pytest.mark.parametrize(
    ("family", "d"), ALL, ids=[f"{f.name}-{'s' if getattr(f, 'spherical', False) else 'f'}-{d}" for f, d in ALL]
)


def some_posterior(family: AnyFamily, d: int, n: int = 12) -> tuple[Any, np.ndarray, np.ndarray]:
    """Stats of two components, and the points and responsibilities behind them."""
    rng = np.random.default_rng(d + 17)
    x = rng.standard_normal((n, d)) * 1.5 + rng.standard_normal(d)
    resp = rng.dirichlet(np.ones(2), n)
    return family.suffstats(x, resp), x, resp


@every_family
def test_log_likelihood_of_drawn_parameters(family: AnyFamily, d: int) -> None:
    """Of each point under each of several draws, carrier included."""
    stats, x, _ = some_posterior(family, d)
    params = family.posterior(stats)
    draws = family.sample_parameters(params, np.random.default_rng(3))
    got = family.log_likelihood(draws, x)
    for k in range(2):
        assert_allclose(got[:, k], REFERENCES[family.name].log_likelihood(family, take(draws, k), x), rtol=1e-9)


@every_family
def test_predictive_density(family: AnyFamily, d: int) -> None:
    stats, x, _ = some_posterior(family, d)
    params = family.posterior(stats)
    density = family.log_predictive(params, x)
    for k in range(2):
        assert_allclose(density[:, k], REFERENCES[family.name].log_predictive(family, take(params, k), x), rtol=1e-10)


@every_family
def test_prior_density_in_natural_form(family: AnyFamily, d: int) -> None:
    """natural . statistic - log partition + log base measure, at draws of the parameter, is SciPy's log density."""
    reference = REFERENCES[family.name]
    params = family.posterior(some_posterior(family, d)[0])
    draws = family.sample_parameters(params, np.random.default_rng(9))
    for k in range(2):
        statistic, log_measure = reference.statistic(family, take(draws, k))
        log_density = family.natural(params)[k] @ statistic - family.log_partition(params)[k] + log_measure
        assert_allclose(log_density, reference.log_prior(family, take(params, k), take(draws, k)), rtol=1e-9, atol=1e-9)


@every_family
def test_bayes_theorem_with_all_constants(family: AnyFamily, d: int) -> None:
    """log posterior - log prior = log likelihood - log evidence, wherever the parameter lies."""
    reference = REFERENCES[family.name]
    stats, x, resp = some_posterior(family, d)
    prior, posterior = take(family.posterior(family.empty_stats(1)), 0), family.posterior(stats)
    draws = family.sample_parameters(posterior, np.random.default_rng(3))
    for k in range(2):
        draw = take(draws, k)
        likelihood = resp[:, k] @ reference.log_likelihood(family, draw, x)
        ratio = reference.log_prior(family, take(posterior, k), draw) - reference.log_prior(family, prior, draw)
        assert_allclose(log_marginal(family, take(stats, [k]))[0], likelihood - ratio, rtol=1e-9)


def repeated_draws(family: AnyFamily, params: Any, n: int, seed: int) -> Any:
    """n draws of the first component's parameter."""
    return family.sample_parameters(take(params, np.zeros(n, dtype=int)), np.random.default_rng(seed))


def z_score(samples: np.ndarray, exact: np.ndarray | float) -> float:
    error = np.std(samples, axis=0, ddof=1) / np.sqrt(len(samples))
    return float(np.max(np.abs(np.mean(samples, axis=0) - exact) / error))


@every_family
@pytest.mark.short_form("gaussian-f-2", "diagonal-f-5", "known_covariance-s-1", "known_covariance-f-2")
def test_expected_log_likelihood_by_monte_carlo(family: AnyFamily, d: int) -> None:
    stats, x, _ = some_posterior(family, d)
    params = family.posterior(stats)
    draws = repeated_draws(family, params, 600, seed=4)
    samples = np.array([REFERENCES[family.name].log_likelihood(family, take(draws, s), x[:3]) for s in range(600)])
    assert z_score(samples, family.expected_log_likelihood(params, x[:3])[:, 0]) < LIMIT


@every_family
@pytest.mark.short_form("gaussian-f-2", "diagonal-f-5", "known_covariance-s-1", "known_covariance-f-2")
def test_kl_by_monte_carlo(family: AnyFamily, d: int) -> None:
    log_prior = REFERENCES[family.name].log_prior
    params = family.posterior(some_posterior(family, d)[0])
    p, q = take(params, 0), take(params, 1)
    draws = repeated_draws(family, params, 600, seed=5)
    rows = [take(draws, s) for s in range(600)]
    samples = np.array([log_prior(family, p, row) - log_prior(family, q, row) for row in rows])
    assert z_score(samples, float(kl(family, take(params, [0]), take(params, [1]))[0])) < LIMIT


def goodness(samples: np.ndarray, cdf: Callable[[np.ndarray], np.ndarray]) -> float:
    """p-value of Kolmogorov and Smirnov's test."""
    return float(sps.kstest(samples, cdf).pvalue)


def test_draws_of_the_wishart_family_have_its_marginals() -> None:
    """Each p-value falls below 1e-6 once in a million."""
    family = families(5)[0]
    params = family.posterior(some_posterior(family, 5)[0])
    row, draws = take(params, 0), repeated_draws(family, params, 4000, seed=6)
    shape = (row.dof - 4) / 2
    width = np.sqrt(np.diag(row.scale) / (2 * shape * row.mean_strength))
    for j in range(5):
        variance = sps.invgamma(shape, scale=row.scale[j, j] / 2)
        assert goodness(draws.covariance[:, j, j], variance.cdf) > 1e-6
        assert goodness(draws.mean[:, j], sps.t(2 * shape, row.mean[j], width[j]).cdf) > 1e-6
    log_det = np.linalg.slogdet(draws.covariance)[1]
    exact = -2 * family.mean_params(take(params, [0]))[0, 6]
    assert z_score(log_det, float(exact)) < LIMIT
    assert z_score(draws.covariance.reshape(4000, -1), (row.scale / (row.dof - 6)).ravel()) < LIMIT


def test_draws_of_the_gamma_family_have_its_marginals() -> None:
    """Each p-value falls below 1e-6 once in a million."""
    family = families(2)[1]
    params = family.posterior(some_posterior(family, 2)[0])
    row, draws = take(params, 0), repeated_draws(family, params, 4000, seed=7)
    width = np.sqrt(row.rate / (row.shape * row.mean_strength))
    for j in range(2):
        assert goodness(draws.variance[:, j], sps.invgamma(row.shape, scale=row.rate[j]).cdf) > 1e-6
        assert goodness(draws.mean[:, j], sps.t(2 * row.shape, row.mean[j], width[j]).cdf) > 1e-6


@pytest.mark.parametrize("kind", [2, 3], ids=["spherical", "full"])
def test_posterior_of_a_known_covariance_is_the_textbook_s(kind: int) -> None:
    """Blei and Jordan's: precisions of prior and data add, means are weighted by them, in plain inverses."""
    family: Any = families(5)[kind]
    stats, _, _ = some_posterior(family, 5)
    params = family.posterior(stats)
    within, prior = (np.linalg.inv(as_matrix(c, 5)) for c in (family.covariance, family.prior_covariance))
    for k in range(2):
        precision = prior + stats.mass[k] * within
        mean = np.linalg.solve(precision, prior @ family.mean + stats.mass[k] * within @ stats.mean[k])
        assert_allclose(params.mean[k], mean, rtol=1e-11)
        assert_allclose(family.basis.T @ np.diag(params.precision[k]) @ family.basis, precision, rtol=1e-10, atol=1e-12)


def test_spherical_and_full_agree_where_both_apply() -> None:
    centre = np.array([0.3, -1.0, 2.0])
    spherical, full = KnownCovariance(centre, 3.0, 0.5), KnownCovariance(centre, 3.0 * np.eye(3), 0.5 * np.eye(3))
    assert spherical.spherical
    assert not full.spherical
    one, other = some_posterior(spherical, 3)[0], some_posterior(full, 3)[0]
    x = np.random.default_rng(1).standard_normal((7, 3))
    assert_allclose(log_marginal(spherical, one), log_marginal(full, other), rtol=1e-12)
    for question in ("log_predictive", "expected_log_likelihood"):
        answers = [getattr(f, question)(f.posterior(s), x) for f, s in ((spherical, one), (full, other))]
        assert_allclose(*answers, rtol=1e-11)


def test_wishart_and_gamma_families_agree_in_one_dimension() -> None:
    wishart = NormalInverseWishart([0.7], 0.4, 3.6, [[2.2]])
    gamma = NormalInverseGamma([0.7], 0.4, 1.8, 1.1)
    x = np.random.default_rng(2).standard_normal((9, 1))
    resp = np.random.default_rng(3).dirichlet(np.ones(2), 9)
    one, other = wishart.suffstats(x, resp), gamma.suffstats(x, resp)
    assert_allclose(log_marginal(wishart, one), log_marginal(gamma, other), rtol=1e-12)
    for method in ("natural", "mean_params", "log_partition"):
        answers = [getattr(f, method)(f.posterior(s)) for f, s in ((wishart, one), (gamma, other))]
        assert_allclose(*answers, rtol=1e-12)
    for question in ("log_predictive", "expected_log_likelihood"):
        answers = [getattr(f, question)(f.posterior(s), x) for f, s in ((wishart, one), (gamma, other))]
        assert_allclose(*answers, rtol=1e-12)


@pytest.mark.parametrize("index", range(4), ids=["gaussian", "diagonal", "spherical", "full"])
@pytest.mark.short_form("diagonal", "spherical", "full")
def test_log_marginal_by_quadrature_over_the_parameter(index: int) -> None:
    """D = 1: prior times likelihood summed over a grid of means (and of log variances), in SciPy's densities."""
    family: Any = families(1)[index]
    stats, x, resp = some_posterior(family, 1, n=6)
    means, logs = np.linspace(-25, 25, 1501), np.linspace(-6, 9, 401)
    if isinstance(family, KnownCovariance):
        deviations, log_prior = np.sqrt(family.covariance.reshape(1, 1)), 0.0
        width, volume = np.sqrt(family.prior_covariance.reshape(1, 1)), means[1] - means[0]
    else:
        deviations = np.exp(logs / 2)[:, None]
        shape, rate = (family.dof / 2, family.scale_matrix.item() / 2) if index == 0 else (family.shape, family.rate[0])
        log_prior = sps.invgamma.logpdf(deviations**2, shape, scale=rate) + logs[:, None]
        width, volume = deviations / np.sqrt(family.mean_strength), (means[1] - means[0]) * (logs[1] - logs[0])
    log_joint = log_prior + sps.norm.logpdf(means, family.mean[0], width)
    for k in range(2):
        weighted = zip(resp[:, k], x[:, 0], strict=True)
        log_likelihood = sum(weight * sps.norm.logpdf(point, means, deviations) for weight, point in weighted)
        integral = np.exp(log_joint + log_likelihood).sum() * volume
        assert_allclose(log_marginal(family, take(stats, [k]))[0], np.log(integral), atol=1e-5)
