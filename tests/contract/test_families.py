"""What every conjugate family must satisfy, whatever it is. A new family is one line in CASES.

Data are drawn from the family's own prior, so nothing here knows what a point looks like. The roads are other than the
code's: chain rule, finite differences, quadrature, duality, repetition. SciPy's densities are in tests/core/families.
"""

import ast
import copy
import itertools
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array

import shoal
from shoal.errors import SettingError
from shoal.families import (
    FAMILIES,
    AnyFamily,
    BetaBernoulli,
    BetaNegativeBinomial,
    DirichletCategorical,
    DirichletMultinomial,
    DirichletObservations,
    GammaPoisson,
    KnownCovariance,
    MultivariateStudent,
    NormalInverseGamma,
    NormalInverseWishart,
    SubspaceGaussian,
    VonMisesFisher,
    expected_bound,
    is_conjugate,
    join_gain,
    kl,
    known_family,
    log_marginal,
    take,
)
from shoal.families.capabilities import absorbed, fitted_suffstats, has_latent_variables, suffstats_given


def covariance(d: int, rng: np.random.Generator) -> np.ndarray:
    root = rng.standard_normal((d, d + 2))
    return root @ root.T / (d + 2) + 0.1 * np.eye(d)


def mean(d: int, rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal(d)


def direction(d: int, rng: np.random.Generator) -> np.ndarray:
    u = rng.standard_normal(d)
    return np.asarray(u / np.linalg.norm(u))


CASES: dict[str, Callable[[int, np.random.Generator], AnyFamily]] = {
    "gaussian": lambda d, rng: NormalInverseWishart(mean(d, rng), 0.7, d + 4.5, covariance(d, rng)),
    "student": lambda d, rng: MultivariateStudent(mean(d, rng), 0.7, d + 6.5, covariance(d, rng), 9.0),
    "diagonal": lambda d, rng: NormalInverseGamma(mean(d, rng), 0.4, 2.7, rng.uniform(0.3, 3.0, d)),
    "known spherical": lambda d, rng: KnownCovariance(mean(d, rng), 3.0, 0.6),
    "known full": lambda d, rng: KnownCovariance(mean(d, rng), covariance(d, rng), covariance(d, rng)),
    "known mixed": lambda d, rng: KnownCovariance(mean(d, rng), 2.5, covariance(d, rng)),
    "multinomial": lambda d, rng: DirichletMultinomial(rng.uniform(0.3, 2.0, max(d, 2))),  # of one term there is no KL
    "categorical": lambda d, rng: DirichletCategorical(np.full(d, 3), rng.uniform(0.3, 2.0, 3 * d)),
    "bernoulli": lambda d, rng: BetaBernoulli(rng.uniform(0.4, 2.0, d), rng.uniform(0.4, 2.0, d)),
    "poisson": lambda d, rng: GammaPoisson(rng.uniform(0.5, 3.0, d), rng.uniform(0.5, 2.0, d)),
    "negative binomial": lambda d, rng: BetaNegativeBinomial(
        rng.uniform(1.5, 4.0, d), rng.uniform(0.5, 3.0, d), rng.uniform(0.5, 4.0, d)
    ),
    "subspace": lambda d, rng: SubspaceGaussian(
        mean(d, rng),
        np.linalg.qr(rng.standard_normal((d, rank := (d + 1) // 2)))[0],
        0.4,
        mean(rank, rng),
        0.7,
        rank + 4.5,
        covariance(rank, rng),
    ),
    "von mises fisher": lambda d, rng: VonMisesFisher(direction(d + 1, rng), 1.3, 4.0, 0.4),
    "von mises fisher, known": lambda d, rng: VonMisesFisher(direction(d + 1, rng), 0.0, 7.0),
    "dirichlet": lambda d, rng: DirichletObservations(9.0 * d, rng.uniform(0.8, 3.0, d + 1), 0.4),
    "product": lambda d, rng: FAMILIES[
        known_family({f"0,2-{d + 1}": "gaussian", "1": "poisson", d + 2: "categorical"})
    ](
        NormalInverseWishart(mean(d + 1, rng), 0.7, d + 5.5, covariance(d + 1, rng)),
        GammaPoisson([2.0], [0.7]),
        DirichletCategorical([3], rng.uniform(0.3, 2.0, 3)),
    ),
}
K = 3


class Setup(NamedTuple):
    family: AnyFamily
    x: np.ndarray  # (N, D) points of K components
    resp: np.ndarray  # (N, K) soft
    rng: np.random.Generator

    @property
    def stats(self) -> Any:
        return self.family.suffstats(self.x, self.resp)

    @property
    def params(self) -> Any:
        return self.family.posterior(self.stats)


def cases(*dimensions: int, names: Any = CASES) -> Any:
    """Every family, or those named, in each of the dimensions."""
    chosen = list(itertools.product(names, dimensions))
    return pytest.mark.parametrize("s", chosen, ids=[f"{name}-{d}" for name, d in chosen], indirect=True)


def latent(*dimensions: int) -> Any:
    """Every family with a latent variable at each point."""
    return cases(*dimensions, names=[name for name in CASES if _is_latent(name)])


def exact(*dimensions: int) -> Any:
    """Every family without: its evidence is exact."""
    return cases(*dimensions, names=[name for name in CASES if not _is_latent(name)])


def _is_latent(name: str) -> bool:
    return has_latent_variables(CASES[name](1, np.random.default_rng(0)))


@pytest.fixture(params=itertools.product(CASES, (1, 2, 5)), ids=lambda case: f"{case[0]}-{case[1]}")
def s(request: pytest.FixtureRequest) -> Setup:
    name, d = request.param
    rng = np.random.default_rng([d, *name.encode()])
    family = CASES[name](d, rng)
    prior = family.posterior(family.empty_stats(K))
    of_length = {"length": rng.integers(0, 12, 8)} if name == "multinomial" else {}
    x = family.sample_points(family.sample_parameters(prior, rng), 8, rng, **of_length).reshape(-1, family.n_features)
    return Setup(family, x, rng.dirichlet(np.ones(K), len(x)), rng)


def close(a: Any, b: Any, rtol: float = 1e-10, atol: float = 1e-10) -> None:
    """Both NamedTuples, field by field."""
    assert type(a) is type(b)
    for name, left, right in zip(a._fields, a, b, strict=True):
        assert_allclose(left, right, rtol=rtol, atol=atol, err_msg=name)


def test_every_family_has_a_case() -> None:
    made = {type(make(2, np.random.default_rng(0))) for name, make in CASES.items() if name != "product"}
    assert made == {family for family in FAMILIES.values() if is_conjugate(family)}
    assert all(name == family.name for name, family in FAMILIES.items())


# Evidence and prediction


@exact(1, 2, 5)
def test_chain_rule_of_predictives_is_the_log_marginal(s: Setup) -> None:
    stats, total = s.family.empty_stats(1), 0.0
    for n in range(len(s.x)):
        total += float(s.family.log_predictive(s.family.posterior(stats), s.x[n : n + 1])[0, 0])
        stats = s.family.add(stats, s.family.suffstats(s.x[n : n + 1], np.ones((1, 1))))
        assert_allclose(log_marginal(s.family, stats), total, rtol=1e-11, atol=1e-10)


@exact(1, 2, 5)
def test_predictive_is_a_ratio_of_evidences_for_soft_statistics(s: Setup) -> None:
    density = s.family.log_predictive(s.params, s.x)
    for n in (0, 7, 20):
        one = s.family.suffstats(s.x[n : n + 1], np.ones((1, K)))
        gain = log_marginal(s.family, s.family.add(s.stats, one)) - log_marginal(s.family, s.stats)
        assert_allclose(density[n], gain, rtol=1e-10, atol=1e-10)


def test_predictive_may_be_precomputed_and_its_rows_taken(s: Setup) -> None:
    whole = s.family.log_predictive(s.params, s.x)
    assert whole.shape == (len(s.x), K)
    predictive = s.family.predictive(s.params)
    assert_array_equal(s.family.log_predictive_from(predictive, s.x), whole)
    rows = np.array([2, 0])
    assert_allclose(s.family.log_predictive_from(take(predictive, rows), s.x), whole[:, rows], rtol=1e-12)
    for n in range(len(s.x)):
        assert_allclose(s.family.log_predictive_from(predictive, s.x[n : n + 1])[0], whole[n], rtol=1e-11, atol=1e-11)


def real_line(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights for integrals over the line: x = t / (1 - t^2) on Gauss and Legendre's points of (-1, 1)."""
    t, w = np.polynomial.legendre.leggauss(n)
    return t / (1 - t * t), w * (1 + t * t) / (1 - t * t) ** 2


def located(*dimensions: int) -> Any:
    return cases(*dimensions, names=[name for name in CASES if CASES[name](1, np.random.default_rng(0)).domain.located])


def grid(values: np.ndarray, d: int) -> np.ndarray:
    """(len(values)^d, d) every combination."""
    return np.stack(np.meshgrid(*[values] * d, indexing="ij"), axis=-1).reshape(-1, d)


SUPPORT: dict[str, Callable[[int], np.ndarray]] = {
    "multinomial": lambda d: np.eye(d),  # documents of one word, which moments are of
    "bernoulli": lambda d: grid(np.arange(2.0), d),
    "categorical": lambda d: grid(np.arange(3.0), d),
    "poisson": lambda d: grid(np.arange(300.0 if d == 1 else 120.0), d),
}
"""Every point there is, or all but a negligible part."""


@cases(1, 2, names=SUPPORT)
def test_probabilities_sum_to_one_and_to_their_moments(s: Setup) -> None:
    points = SUPPORT[s.family.name](s.x.shape[1])
    share = np.exp(s.family.log_predictive(s.params, points))
    assert_allclose(share.sum(axis=0), 1.0, rtol=1e-12)
    assert_allclose(share.T @ points, s.family.predictive_mean(s.params), rtol=1e-12)
    for k, middle in enumerate(s.family.predictive_mean(s.params)):
        exact = s.family.predictive_covariance(take(s.params, [k]))[0]
        assert_allclose((share[:, [k]] * (points - middle)).T @ (points - middle), exact, rtol=1e-9, atol=1e-12)


@cases(2, 3, names=["multinomial"])
def test_documents_of_a_length_sum_to_one(s: Setup) -> None:
    words = grid(np.arange(7.0), s.x.shape[1])
    for length in (0, 1, 4, 6):
        documents = words[words.sum(axis=1) == length]
        assert_allclose(np.exp(s.family.log_predictive(s.params, documents)).sum(axis=0), 1.0, rtol=1e-12)


@cases(1, 2, names=["bernoulli", "categorical", "multinomial"])
def test_evidence_of_three_points_sums_to_one(s: Setup) -> None:
    points, total = SUPPORT[s.family.name](s.x.shape[1]), 0.0
    for triple in itertools.product(range(len(points)), repeat=3):
        total += float(np.exp(log_marginal(s.family, s.family.suffstats(points[list(triple)], np.ones((3, 1))))[0]))
    assert total == pytest.approx(1.0, rel=1e-12)


@cases(1, 2, 5, names=[name for name in SUPPORT if CASES[name](1, np.random.default_rng(0)).domain.sparse])
def test_sparse_rows_are_the_same_points(s: Setup) -> None:
    rows = csr_array(s.x)
    for held in (rows, s.family.domain.points(rows), s.family.domain.points(s.x)):
        close(s.family.suffstats(held, s.resp), s.stats, rtol=0, atol=0)
        assert_array_equal(s.family.log_predictive(s.params, held), s.family.log_predictive(s.params, s.x))
        expected = s.family.expected_log_likelihood(s.params, s.x)
        assert_array_equal(s.family.expected_log_likelihood(s.params, held), expected)


@located(1, 2)
def test_predictive_integrates_to_one_and_to_its_moments(s: Setup) -> None:
    d = s.x.shape[1]
    u, w = real_line(300)
    middle, spread = s.family.predictive_mean(s.params), np.sqrt(s.family.predictive_variance(s.params))
    for k in range(K):
        grid = np.stack(np.meshgrid(*[u] * d, indexing="ij"), axis=-1).reshape(-1, d)
        weight = np.prod(np.stack(np.meshgrid(*[w] * d, indexing="ij"), axis=-1), axis=-1).ravel()
        density = np.exp(s.family.log_predictive(take(s.params, [k]), middle[k] + spread[k] * grid)[:, 0])
        share = weight * density * np.prod(spread[k])
        assert_allclose(share.sum(), 1.0, rtol=1e-7)
        assert_allclose(share @ grid, 0.0, atol=1e-6)
        exact = s.family.predictive_covariance(take(s.params, [k]))[0] / np.outer(spread[k], spread[k])
        assert_allclose((share[:, None] * grid).T @ grid, exact, atol=1e-5)


@located(1)
@pytest.mark.short_form("gaussian-1", "diagonal-1", "known*")
def test_evidence_of_two_points_integrates_to_one(s: Setup) -> None:
    u, w = real_line(150)
    prior = s.family.posterior(s.family.empty_stats(1))
    spread = float(np.sqrt(s.family.predictive_variance(prior)[0, 0]))
    nodes = float(s.family.predictive_mean(prior)[0, 0]) + spread * u
    first = s.family.suffstats(nodes[:, None], np.eye(nodes.size))
    evidence = np.empty((nodes.size, nodes.size))
    for row, node in zip(evidence, nodes, strict=True):
        second = s.family.suffstats(np.array([[node]]), np.ones((1, nodes.size)))
        row[:] = np.exp(log_marginal(s.family, s.family.add(first, second)))
    total = w @ evidence @ w * spread**2
    if has_latent_variables(s.family):
        assert 0.5 < total < 1.0  # of a lower bound
    else:
        assert_allclose(total, 1.0, rtol=1e-6)


@pytest.mark.parametrize("n", [8_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_moments_of_the_predictive_are_those_of_samples(s: Setup, n: int) -> None:
    """Each of 2 x 5 to 30 z-scores of n samples within 5.5: a false alarm in 4e-8 of them, 3e-5 over all cases.

    Of 8,000 samples of a normal law, a variance that is 10 % wrong has a z-score of 6.
    """
    many = take(s.family.posterior(s.family.scale(s.stats, 10.0)), np.repeat([1], n))
    draws = s.family.sample_points(s.family.sample_parameters(many, s.rng), 1, s.rng)[:, 0, :]
    centre = s.family.predictive_mean(many)[0]
    spread = s.family.predictive_covariance(many)[0]
    assert_allclose(s.family.predictive_variance(many)[0], np.diag(spread), rtol=1e-12)
    products = (draws - centre)[:, :, None] * (draws - centre)[:, None, :]
    for sample, exact in ((draws, centre), (products, spread)):
        z = (sample.mean(axis=0) - exact) / (sample.std(axis=0) / np.sqrt(len(sample)))
        assert np.max(np.abs(z)) < 5.5


# The exponential family


def test_gradient_of_the_log_partition_is_the_mean_parameters(s: Setup) -> None:
    params = take(s.params, [0])
    natural = s.family.natural(params)
    gradient = np.empty(natural.shape[1])
    for p in range(natural.shape[1]):

        def slope(step: float, p: int = p) -> float:
            moved = np.repeat(natural, 2, axis=0)
            moved[:, p] += [step, -step]
            up, down = s.family.log_partition(s.family.from_natural(moved))
            return float(up - down) / (2 * step)

        h = 2e-3 * max(1.0, abs(float(natural[0, p])) ** 0.5) / 4
        gradient[p] = (4 * slope(h) - slope(2 * h)) / 3  # Richardson: the error falls to the fourth power of the step
    assert_allclose(s.family.mean_params(params)[0], gradient, rtol=1e-6, atol=1e-7)


def test_natural_parameters_round_trip(s: Setup) -> None:
    close(s.family.from_natural(s.family.natural(s.params)), s.params)


def test_natural_parameters_add(s: Setup) -> None:
    """Posterior given a and b = posterior given a + posterior given b - prior, in natural parameters."""
    a, b = s.family.suffstats(s.x[:9], s.resp[:9]), s.family.suffstats(s.x[9:], s.resp[9:])
    parts = [s.family.natural(s.family.posterior(stats)) for stats in (a, b, s.family.empty_stats(K))]
    joined = s.family.natural(s.family.posterior(s.family.add(a, b)))
    assert_allclose(joined, parts[0] + parts[1] - parts[2], rtol=1e-10, atol=1e-10)


def test_expected_log_likelihood_is_the_dual_product(s: Setup) -> None:
    expected = s.family.expected_log_likelihood(s.params, s.x)
    assert expected.shape == (len(s.x), K)
    prior = s.family.natural(s.family.posterior(s.family.empty_stats(1)))
    for k, slope in enumerate(s.family.mean_params(s.params)):
        alike = take(s.params, np.full(len(s.x), k))
        one = suffstats_given(s.family, alike, s.x, np.eye(len(s.x)))
        statistic = s.family.natural(s.family.posterior(one)) - prior
        assert_allclose(expected[:, k], statistic @ slope + s.family.log_carrier(one), rtol=1e-9, atol=1e-9)


def test_expected_log_likelihood_is_below_the_predictive(s: Setup) -> None:
    """Jensen; of a document without words both are zero."""
    empty = ~s.x.any(axis=1) & (s.family.name == "multinomial")
    gap = s.family.log_predictive(s.params, s.x) - s.family.expected_log_likelihood(s.params, s.x)
    assert np.all(gap[~empty] > 0.0)
    assert np.all(gap[empty] == 0.0)


def test_kl_to_the_prior_closes_the_bound(s: Setup) -> None:
    prior = s.family.posterior(s.family.empty_stats(K))
    expected = (s.resp * s.family.expected_log_likelihood(s.params, s.x)).sum(axis=0)
    bound = expected - kl(s.family, s.params, prior)
    if has_latent_variables(s.family):
        assert np.all(bound > log_marginal(s.family, s.stats))  # here the latent variables are at their best
    else:
        assert_allclose(bound, log_marginal(s.family, s.stats), rtol=1e-10, atol=1e-9)


def test_kl_is_zero_at_equality_and_positive_elsewhere(s: Setup) -> None:
    assert_allclose(kl(s.family, s.params, s.params), 0.0, atol=1e-11)
    assert np.all(kl(s.family, s.params, take(s.params, [1, 2, 0])) > 1e-6)


def test_bound_is_below_the_evidence_by_the_kl(s: Setup) -> None:
    other = take(s.params, [1, 2, 0])
    assert_allclose(expected_bound(s.family, s.stats, s.params), log_marginal(s.family, s.stats), rtol=1e-12)
    prior = s.family.posterior(s.family.empty_stats(K))
    expected = (s.resp * s.family.expected_log_likelihood(other, s.x)).sum(axis=0) - kl(s.family, other, prior)
    stats = suffstats_given(s.family, other, s.x, s.resp)
    assert_allclose(expected_bound(s.family, stats, other), expected, rtol=1e-9, atol=1e-9)
    assert np.all(expected_bound(s.family, stats, other) <= log_marginal(s.family, stats))


def test_join_gain_is_the_change_of_evidence(s: Setup) -> None:
    i, j = np.array([0, 2, 1, 0]), np.array([1, 0, 2, 1])
    for gain, a, b in zip(join_gain(s.family, s.stats, i, j), i, j, strict=True):
        together = s.family.suffstats(s.x, s.resp[:, [a]] + s.resp[:, [b]])
        exact = log_marginal(s.family, together)[0] - log_marginal(s.family, take(s.stats, [a, b])).sum()
        assert_allclose(gain, exact, rtol=1e-10, atol=1e-9)


def test_results_do_not_depend_on_the_blocks(s: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    stats, other, i = s.stats, take(s.params, [1, 2, 0]), np.array([0, 1])
    whole = [log_marginal(s.family, stats), kl(s.family, s.params, other), join_gain(s.family, stats, i, i + 1)]
    monkeypatch.setattr("shoal.families.derived.BLOCK_ELEMENTS", 1)
    parts = [log_marginal(s.family, stats), kl(s.family, s.params, other), join_gain(s.family, stats, i, i + 1)]
    for a, b in zip(whole, parts, strict=True):
        assert_allclose(a, b, rtol=1e-12, atol=1e-12)


# Latent variables


@latent(1, 2, 5)
def test_rounds_of_latent_variables_and_parameters_raise_the_bound(s: Setup) -> None:
    stats, bounds = s.stats, [log_marginal(s.family, s.stats)]
    for _ in range(40):
        stats = suffstats_given(s.family, s.family.posterior(stats), s.x, s.resp)
        bounds.append(log_marginal(s.family, stats))
    assert np.diff(bounds, axis=0).min() > -1e-12
    fitted = log_marginal(s.family, fitted_suffstats(s.family, s.x, s.resp))
    assert np.all((fitted > bounds[0]) & (fitted <= bounds[-1]))
    assert_allclose(fitted, bounds[-1], atol=0.05)


@latent(1, 2, 5)
def test_statistics_given_parameters_add(s: Setup) -> None:
    whole = suffstats_given(s.family, s.params, s.x, s.resp)
    parts = [suffstats_given(s.family, s.params, s.x[rows], s.resp[rows]) for rows in (slice(0, 9), slice(9, None))]
    close(s.family.add(*parts), whole)
    close(s.family.subtract(whole, parts[0]), parts[1], rtol=1e-9, atol=1e-9)
    assert_allclose(whole.mass, s.resp.sum(axis=0), rtol=1e-14)


@latent(1, 2, 5)
def test_a_point_is_absorbed_with_its_latent_variable_at_its_best(s: Setup) -> None:
    """After the rounds another changes next to nothing, and the bound is above that of a typical point."""
    point, resp = s.x[:1], np.array([[1.0, 0.4, 1e-3]])
    after = absorbed(s.family, s.stats, point, resp)
    again = s.family.add(s.stats, suffstats_given(s.family, s.family.posterior(after), point, resp))
    gain = log_marginal(s.family, again) - log_marginal(s.family, after)
    assert np.all((gain > -1e-12) & (gain < 1e-4 * resp[0]))
    typical = s.family.add(s.stats, s.family.suffstats(point, resp))
    assert np.all(log_marginal(s.family, after) >= log_marginal(s.family, typical))


# Statistics


def test_add_is_concatenation_in_any_order(s: Setup) -> None:
    a, b = s.family.suffstats(s.x[:5], s.resp[:5]), s.family.suffstats(s.x[5:], s.resp[5:])
    close(s.family.add(a, b), s.stats)
    close(s.family.add(b, a), s.stats)
    order = s.rng.permutation(len(s.x))
    close(s.family.suffstats(s.x[order], s.resp[order]), s.stats)


def test_add_then_subtract_restores(s: Setup) -> None:
    a, b = s.family.suffstats(s.x[:5], s.resp[:5]), s.family.suffstats(s.x[5:], s.resp[5:])
    close(s.family.subtract(s.family.add(a, b), b), a, rtol=1e-9, atol=1e-9)
    close(s.family.subtract(s.family.add(a, b), a), b, rtol=1e-9, atol=1e-9)


def test_subtracting_everything_leaves_nothing(s: Setup) -> None:
    close(s.family.subtract(s.stats, s.stats), s.family.empty_stats(K), rtol=0, atol=0)
    thirds = s.family.scale(s.stats, 1 / 3)
    rest = s.family.subtract(s.family.subtract(s.family.subtract(s.stats, thirds), thirds), thirds)
    close(rest, s.family.empty_stats(K), rtol=0, atol=0)


def test_whole_weights_are_repetitions(s: Setup) -> None:
    repeats = s.rng.integers(0, 4, len(s.x))
    repeated = s.family.suffstats(np.repeat(s.x, repeats, axis=0), np.ones((repeats.sum(), 1)))
    close(s.family.suffstats(s.x, repeats[:, None].astype(float)), repeated)


def test_scale_is_a_factor_on_every_weight(s: Setup) -> None:
    close(s.family.scale(s.stats, 2.5), s.family.suffstats(s.x, 2.5 * s.resp))
    factors = np.array([0.0, 1.0, 3.0])
    close(s.family.scale(s.stats, factors), s.family.suffstats(s.x, s.resp * factors))


def test_mass_is_the_first_field_and_the_sum_of_responsibilities(s: Setup) -> None:
    assert s.stats._fields[0] == "mass"
    assert_allclose(s.stats.mass, s.resp.sum(axis=0), rtol=1e-14)


def test_a_component_without_mass_is_the_prior(s: Setup) -> None:
    """pytest makes every warning an error, so nothing is divided by zero on the way."""
    resp = s.resp * np.array([1.0, 0.0, 1.0])
    stats, empty = s.family.suffstats(s.x, resp), s.family.empty_stats(K)
    close(take(stats, [1]), take(empty, [1]), rtol=0, atol=0)
    close(s.family.add(stats, empty), stats, rtol=0, atol=0)
    close(s.family.add(empty, stats), stats, rtol=1e-15, atol=1e-15)
    close(s.family.subtract(stats, empty), stats, rtol=0, atol=0)
    close(s.family.scale(empty, 0.5), empty, rtol=0, atol=0)
    prior = s.family.from_arrays(s.family.to_arrays()).posterior(s.family.empty_stats(1))
    close(take(s.family.posterior(stats), [1]), prior, rtol=0, atol=0)
    assert log_marginal(s.family, empty).tolist() == [0.0] * K
    assert join_gain(s.family, stats, np.array([0]), np.array([1]))[0] == pytest.approx(0.0, abs=1e-12)
    assert np.all(np.isfinite(s.family.log_predictive(s.family.posterior(stats), s.x)))


def test_no_points_and_no_components(s: Setup) -> None:
    d = s.x.shape[1]
    close(s.family.suffstats(np.empty((0, d)), np.empty((0, K))), s.family.empty_stats(K), rtol=0, atol=0)
    none = s.family.posterior(s.family.empty_stats(0))
    assert s.family.log_predictive(none, s.x).shape == (len(s.x), 0)
    assert s.family.expected_log_likelihood(s.params, np.empty((0, d))).shape == (0, K)
    assert log_marginal(s.family, s.family.empty_stats(0)).shape == (0,)


# The family as a value


def test_equal_by_value_and_hashable(s: Setup) -> None:
    same = s.family.from_arrays({key: np.array(value) for key, value in s.family.to_arrays().items()})
    assert same == s.family
    assert hash(same) == hash(s.family)
    arrays = s.family.to_arrays()
    key = max(arrays.keys() - {"version"})  # a number of few values
    assert s.family.from_arrays({**arrays, key: arrays[key] * 1.25 + 0.25}) != s.family
    assert s.family != "a family"


def test_pickle_copy_and_arrays_round_trip(s: Setup) -> None:
    for twin in (pickle.loads(pickle.dumps(s.family)), copy.deepcopy(s.family), copy.copy(s.family)):
        assert twin == s.family
        assert_array_equal(twin.log_predictive(s.params, s.x), s.family.log_predictive(s.params, s.x))
    assert all(value.dtype == np.float64 for value in s.family.to_arrays().values())


def test_hyperparameters_cannot_change(s: Setup) -> None:
    with pytest.raises(AttributeError, match="immutable"):
        s.family.mean = np.zeros(1)
    for value in vars(s.family).values():
        if isinstance(value, np.ndarray):
            with pytest.raises(ValueError, match="read-only"):
                value[...] = 0.0


def test_arrays_of_another_family_are_refused(s: Setup) -> None:
    with pytest.raises(SettingError, match="give exactly"):
        s.family.from_arrays({**s.family.to_arrays(), "spin": np.ones(1)})


def test_repr_names_the_constructor_and_its_arguments(s: Setup) -> None:
    assert repr(s.family).startswith(type(s.family).__name__)
    assert all(f"{key}=" in repr(s.family) for key in s.family.to_arrays())


def test_weak_prior_takes_any_standardised_data(s: Setup) -> None:
    d = s.x.shape[1]
    weak = type(s.family).weak(d, **({"within_variance": 0.2} if s.family.domain.located else {}))
    assert weak.n_features == d == s.family.n_features
    assert weak.n_free_parameters == s.family.n_free_parameters >= d - (s.family.name == "multinomial")
    assert np.all(np.isfinite(log_marginal(weak, weak.suffstats(s.x, s.resp))))


def test_no_module_outside_the_families_names_one() -> None:
    """By its class or its name; examples that are shown to users may."""
    root = Path(shoal.__file__).parents[2]
    classes = {kind.__name__ for kind in FAMILIES.values()}
    any_name = re.compile("|".join([*FAMILIES, *classes]))
    shown = {"stream_settings.py", "registry.py"}
    found = []
    for path in (*root.glob("core/**/*.py"), *root.glob("service/**/*.py"), *root.glob("docker/*.py")):
        source = path.read_text()
        if root / "core/shoal/families" in path.parents or not any_name.search(source):
            continue
        for node in ast.walk(ast.parse(source)):
            named = isinstance(node, ast.Name | ast.alias) and (getattr(node, "id", "") or node.name) in classes
            text = isinstance(node, ast.Constant) and node.value in FAMILIES and path.name not in shown
            found += [f"{path.relative_to(root)}:{node.lineno}"] if named or text else []
    assert found == []
