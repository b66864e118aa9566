"""Points with missing values under each family that takes them, by quadrature and by enumeration."""

import itertools
import re
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import multivariate_normal, poisson

from shoal.errors import SettingError
from shoal.families import FAMILIES
from shoal.families.bernoulli import BetaBernoulli
from shoal.families.categorical import DirichletCategorical
from shoal.families.diagonal import NormalInverseGamma
from shoal.families.gaussian import NormalInverseWishart
from shoal.families.holes import (
    check_takes_holes,
    drawn_missing,
    expected_stats,
    marginal_log_predictive,
    rows_with_holes,
    takes_holes,
)
from shoal.families.known_covariance import KnownCovariance
from shoal.families.poisson import GammaPoisson
from shoal.families.product.types import parted
from shoal.points.rows import SparseRows

RNG = np.random.default_rng(5)
ROOT = np.array([[1.0, 0.0, 0.0], [0.7, 0.8, 0.0], [-0.4, 0.5, 0.9]])
MEAN = np.array([0.3, -0.2, 0.1])
PRIORS: dict[str, Any] = {
    "gaussian": NormalInverseWishart(MEAN, 0.4, 5.5, ROOT @ ROOT.T),
    "diagonal": NormalInverseGamma(MEAN, 0.4, 2.1, np.array([0.4, 0.9, 1.3])),
    "spherical": KnownCovariance(MEAN, 2.0, 0.5),
    "shared": KnownCovariance(MEAN, 2.0 * np.eye(3) + 0.3, ROOT @ ROOT.T),
    "bernoulli": BetaBernoulli(np.array([0.5, 1.2, 0.8]), np.array([0.7, 0.4, 1.1])),
    "poisson": GammaPoisson(np.array([0.5, 1.2, 2.8]), np.array([0.7, 0.4, 1.1])),
}
MIXED = FAMILIES['{"0,2":"gaussian","1":"categorical"}'](
    NormalInverseWishart(MEAN[:2], 0.4, 5.5, (ROOT @ ROOT.T)[:2, :2]), DirichletCategorical([3], [0.5, 1.2, 0.8])
)
PRIORS["categorical"] = DirichletCategorical([2, 3, 2], [0.5, 1.2, 0.8, 0.3, 0.9, 0.7, 0.4])
PRIORS["mixed"] = MIXED
REAL = ("gaussian", "diagonal", "spherical", "shared")
NAN = np.nan
HOLED = {
    "real": [[0.7, NAN, -0.4], [NAN, 0.2, 0.9], [1.5, -0.6, NAN]],
    "count": [[1, NAN, 0], [NAN, 0, 1], [1, 1, NAN]],
    "mixed": [[0.7, NAN, -0.4], [NAN, 2, 0.9], [1.5, 0, NAN], [NAN, 1, NAN]],
}


def params_of(name: str) -> Any:
    """Posteriors of the prior itself and of two components that have seen points."""
    prior = PRIORS[name]
    x = RNG.normal(size=(40, 3)) @ ROOT.T if name in REAL else RNG.integers(0, 2 if name == "bernoulli" else 5, (40, 3))
    if name == "mixed":
        x = np.stack([RNG.normal(size=40), RNG.integers(0, 3, 40), RNG.normal(size=40)], axis=1)
    resp = np.stack([np.zeros(40), RNG.random(40), RNG.random(40) * 0.1], axis=1)
    return prior.posterior(prior.suffstats(prior.domain.convert(x.astype(float)), resp))


def holed(name: str) -> np.ndarray:
    return np.array(HOLED["real" if name in REAL else name if name in HOLED else "count"], float)


@pytest.mark.parametrize("name", PRIORS)
def test_without_holes_the_marginal_is_the_predictive(name: str) -> None:
    params, x = params_of(name), np.nan_to_num(holed(name), nan=1.0)
    full = PRIORS[name].log_predictive(params, PRIORS[name].domain.convert(x))
    np.testing.assert_allclose(marginal_log_predictive(PRIORS[name], params, x), full, rtol=1e-10)


@pytest.mark.parametrize("name", REAL)
@pytest.mark.short_form("diagonal", "shared")
def test_the_marginal_is_the_integral_of_the_predictive(name: str) -> None:
    prior, params = PRIORS[name], params_of(name)
    for x in holed(name):
        missing = int(np.flatnonzero(np.isnan(x))[0])

        def density(value: float, k: int, x: Any = x, missing: int = missing) -> float:
            point = np.where(np.arange(3) == missing, value, x)
            return float(np.exp(prior.log_predictive(params, point[None])[0, k]))

        found = np.exp(marginal_log_predictive(prior, params, x[None])[0])
        whole = [quad(density, -np.inf, np.inf, args=(k,), epsabs=1e-12)[0] for k in range(3)]
        np.testing.assert_allclose(found, whole, rtol=1e-7)


def test_the_marginal_of_mixed_columns_sums_and_integrates_those_that_are_missing() -> None:
    """The last row lacks a whole block, the others a part of one or a category. Integrals over the real line are those
    over an interval, value = tan(angle), where the density of any number of degrees of freedom is smooth."""
    params = params_of("mixed")
    nodes, steps = np.polynomial.legendre.leggauss(120)
    values, steps = np.tan(nodes * np.pi / 2), steps * np.pi / 2 / np.cos(nodes * np.pi / 2) ** 2
    for x in holed("mixed"):
        reals = [column for column in (0, 2) if np.isnan(x[column])]
        levels = range(3) if np.isnan(x[1]) else [x[1]]
        points, volumes = np.tile(x, (len(nodes) ** len(reals), 1)), np.ones(1)
        for column, grid in zip(reals, np.meshgrid(*[values] * len(reals)), strict=True):
            points[:, column] = grid.ravel()
            volumes = np.outer(volumes, steps).ravel()
        whole = np.zeros(3)
        for level in levels:
            points[:, 1] = level
            whole += volumes @ np.exp(MIXED.log_predictive(params, points))
        found = np.exp(marginal_log_predictive(MIXED, params, x[None])[0])
        np.testing.assert_allclose(found, whole, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "values"), [("bernoulli", range(2)), ("poisson", range(3_000)), ("categorical", range(3))]
)
def test_the_marginal_is_the_sum_of_the_predictive(name: str, values: range) -> None:
    prior, params = PRIORS[name], params_of(name)
    for x in holed(name):
        own = values[: int(prior.levels[np.isnan(x)][0])] if name == "categorical" else values
        points = np.array([np.where(np.isnan(x), value, x) for value in own])
        whole = np.exp(prior.log_predictive(params, prior.domain.convert(points))).sum(axis=0)
        np.testing.assert_allclose(np.exp(marginal_log_predictive(prior, params, x[None])[0]), whole, rtol=1e-6)


def mean_parameters(name: str, params: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of points under the posterior mean of the parameters, from their definitions."""
    prior = PRIORS[name]
    if name == "gaussian":
        return params.mean[k], params.scale[k] / (params.dof[k] - 4.0)
    if name == "diagonal":
        return params.mean[k], np.diag(params.rate[k] / (params.shape[k] - 1.0))
    return params.mean[k], np.eye(3) * 0.5 if name == "spherical" else np.asarray(prior.covariance)


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("missing", [(1,), (0, 2)])
def test_expected_statistics_are_those_of_many_complete_points(name: str, missing: tuple[int, ...]) -> None:
    """The missing features on a fine grid, each point with its conditional probability: statistics of the grid."""
    prior, params, resp = PRIORS[name], params_of(name), np.array([0.2, 1.7, 0.6])
    x = np.array([0.7, 0.4, -0.4])
    x[list(missing)] = NAN
    found = expected_stats(prior, params, x[None], resp)
    for k in range(3):
        mean, covariance = mean_parameters(name, params, k)
        width = np.sqrt(np.diag(covariance))
        axes = [mean[j] + width[j] * np.linspace(-12.0, 12.0, 241) for j in missing]
        grid = np.array(list(itertools.product(*axes)))
        points = np.tile(x, (len(grid), 1))
        points[:, list(missing)] = grid
        weight = multivariate_normal(mean, covariance).pdf(points)
        own = prior.suffstats(points, resp[k] * (weight / weight.sum())[:, None])
        for field, whole in zip(found, own, strict=True):
            np.testing.assert_allclose(field[k], whole[0], rtol=1e-6, atol=1e-9)


def test_expected_counts_are_sums_over_their_values() -> None:
    prior, params, resp = PRIORS["bernoulli"], params_of("bernoulli"), np.array([0.2, 1.7, 0.6])
    for x in holed("bernoulli"):
        found = expected_stats(prior, params, x[None], resp)
        points = np.array([np.where(np.isnan(x), value, x) for value in (0.0, 1.0)])
        for k in range(3):
            one = (params.a / (params.a + params.b))[k, np.isnan(x)][0]
            own = prior.suffstats(prior.domain.convert(points), resp[k] * np.array([[1.0 - one], [one]]))
            for field, whole in zip(found, own, strict=True):
                np.testing.assert_allclose(field[k], whole[0], rtol=1e-12)
    prior, params = PRIORS["categorical"], params_of("categorical")
    for x in holed("categorical"):
        found = expected_stats(prior, params, x[None], resp)
        missing = int(np.flatnonzero(np.isnan(x))[0])
        share = prior.level_probabilities(params)[missing]
        points = np.array([np.where(np.isnan(x), value, x) for value in range(share.shape[1])])
        for k in range(3):
            own = prior.suffstats(points, resp[k] * share[k][:, None])
            for field, whole in zip(found, own, strict=True):
                np.testing.assert_allclose(field[k], whole[0], rtol=1e-12)
    prior, params = PRIORS["poisson"], params_of("poisson")
    for x in holed("poisson"):
        found = expected_stats(prior, params, x[None], resp)
        values = np.arange(200.0)
        points = np.array([np.where(np.isnan(x), value, x) for value in values])
        for k in range(3):
            weight = poisson((params.shape / params.rate)[k, np.isnan(x)][0]).pmf(values)
            own = prior.suffstats(prior.domain.convert(points), resp[k] * weight[:, None])
            np.testing.assert_allclose(found.mass[k], own.mass[0], rtol=1e-12)
            np.testing.assert_allclose(found.total[k], own.total[0], rtol=1e-12)


def test_expected_statistics_of_mixed_columns_are_those_of_the_blocks() -> None:
    params, resp = params_of("mixed"), np.array([0.2, 1.7, 0.6])
    blocks = list(zip(MIXED.blocks, [[0, 2], [1]], parted(params), strict=True))
    for x in holed("mixed"):
        found = parted(expected_stats(MIXED, params, x[None], resp))
        for (block, columns, own), stats in zip(blocks, found, strict=True):
            for field, whole in zip(stats, expected_stats(block, own, x[None, columns], resp), strict=True):
                np.testing.assert_allclose(field, whole, rtol=1e-12)


@pytest.mark.parametrize("name", ["diagonal", "spherical", "bernoulli", "poisson", "categorical"])
def test_what_a_point_says_nothing_of_stays_where_it_was(name: str) -> None:
    """The posterior mean of a missing feature that is independent of the observed ones does not move."""
    prior, x = PRIORS[name], holed(name)[1]
    before = prior.suffstats(prior.domain.convert(np.nan_to_num(holed(name), nan=1.0)), RNG.random((3, 3)))
    start = prior.posterior(before)
    after = prior.posterior(prior.add(before, expected_stats(prior, start, x[None], np.ones(3))))
    np.testing.assert_allclose(prior.predictive_mean(after)[:, 0], prior.predictive_mean(start)[:, 0], rtol=1e-9)


@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.short_form("gaussian", "categorical", "poisson", "diagonal", "bernoulli")
def test_draws_keep_what_was_observed_and_have_the_expected_statistics(name: str) -> None:
    prior, params = PRIORS[name], params_of(name)
    one = type(params)(*(field[1:2] for field in params))
    x, rng = holed(name)[0], np.random.default_rng(0)
    draws = np.array([drawn_missing(prior, one, x, rng) for _ in range(2_000)])
    np.testing.assert_array_equal(draws[:, [0, 2]], np.tile(x[[0, 2]], (2_000, 1)))
    found = prior.suffstats(prior.domain.convert(draws), np.full((2_000, 1), 1 / 2_000))
    expected = expected_stats(prior, one, x[None], np.ones(1))
    for field, whole in zip(found[1:2], expected[1:2], strict=True):  # of 2,000 draws, five standard errors at most
        np.testing.assert_allclose(field, whole, atol=5 * draws[:, 1].std() / np.sqrt(2_000))
    if name in REAL and name not in ("spherical", "shared"):
        np.testing.assert_allclose(found.scatter, expected.scatter, rtol=0.12, atol=1e-6)


@pytest.mark.parametrize(
    "name",
    [
        "multinomial",
        "negative_binomial",
        "dirichlet",
        "von_mises_fisher",
        "subspace",
        '{"0":"gaussian","1":"negative_binomial"}',
    ],
)
def test_other_families_refuse(name: str) -> None:
    assert not takes_holes(FAMILIES[name])
    with pytest.raises(SettingError, match=re.escape(f"'{name}' cannot learn points with missing values")):
        check_takes_holes(FAMILIES[name])


def test_rows_with_holes_are_found_in_tables_and_sparse_rows() -> None:
    x = np.array([[0.0, 1.0], [NAN, 0.0], [0.0, 0.0], [1.0, NAN], [NAN, NAN]])
    for rows in (x, SparseRows.of(x)):
        np.testing.assert_array_equal(rows_with_holes(rows), [False, True, False, True, True])


def test_a_hole_beside_features_that_rounding_makes_equal() -> None:
    """Points far out along one line: the covariance of the observed features is singular in floating point."""
    prior = NormalInverseWishart(np.zeros(3), 0.1, 6.0, np.eye(3))
    params = prior.posterior(prior.suffstats(np.outer([1e12, -2e12, 3e12], np.ones(3)), np.ones((3, 1))))
    one = expected_stats(prior, params, np.array([[2e12, 2e12, NAN]]), np.ones(1))
    np.testing.assert_allclose(one.mean, 2e12, rtol=1e-6)
