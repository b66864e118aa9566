"""Shifted, badly scaled, constant, enormous, heavy, many: where a careless formula loses digits or memory."""

import tracemalloc
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from shoal.families import AnyFamily, KnownCovariance, NormalInverseGamma, NormalInverseWishart, kl, log_marginal, take

SHIFT = 1e8


def dyadic(x: np.ndarray) -> np.ndarray:
    """Multiples of 1/1024, which a shift by 1e8 moves without rounding."""
    return np.round(x * 1024) / 1024


CORRELATED = 0.4 * np.eye(3) + 0.6
MAKERS: dict[str, Callable[[float, np.ndarray], AnyFamily]] = {
    "gaussian": lambda m, c: NormalInverseWishart(np.full(3, m), 0.1, 6.0, 6.0 * CORRELATED * np.outer(c, c)),
    "diagonal": lambda m, c: NormalInverseGamma(np.full(3, m), 0.1, 2.0, 2.0 * c**2),
    "spherical": lambda m, c: KnownCovariance(np.full(3, m), 50.0, 0.7),
    "full": lambda m, c: KnownCovariance(np.full(3, m), 9.0 * np.diag(c**2), CORRELATED * np.outer(c, c)),
}
ONES = np.ones(3)
every = pytest.mark.parametrize("name", MAKERS)


def points(n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    resp = rng.dirichlet(np.full(2, 0.4), n)
    return dyadic(rng.standard_normal((n, 3)) + 6.0 * rng.integers(0, 2, n)[:, None]), resp


@every
def test_a_shift_of_1e8_changes_nothing(name: str) -> None:
    """Only means are rounded again, by 1.5e-8: second moments keep nine digits and evidences seven decimals."""
    x, resp = points()
    here, there = MAKERS[name](0.0, ONES), MAKERS[name](SHIFT, ONES)
    a, b = here.suffstats(x, resp), there.suffstats(x + SHIFT, resp)
    assert_allclose(b.mean - SHIFT, a.mean, atol=3e-8)
    assert_allclose(b.scatter, a.scatter, rtol=1e-9, atol=1e-9)
    p, q = here.posterior(a), there.posterior(b)
    assert_allclose(log_marginal(there, b), log_marginal(here, a), atol=2e-7)
    assert_allclose(kl(there, q, take(q, [1, 0])), kl(here, p, take(p, [1, 0])), rtol=1e-6)
    for question in ("log_predictive", "expected_log_likelihood"):
        far, near = getattr(there, question)(q, x + SHIFT), getattr(here, question)(p, x)
        assert_allclose(far, near, atol=1e-5)
    parts = [there.suffstats(x[rows] + SHIFT, resp[rows]) for rows in (slice(0, 9), slice(9, None))]
    assert_allclose(there.add(*parts).scatter, a.scatter, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("full", [False, True])
def test_a_vague_prior_far_from_the_data_costs_no_digits(full: bool) -> None:
    """Evidence of five points near 1e8 under N(0, 1e18), against the same formula in 50 decimals."""
    x = [100_000_000.25, 100_000_001.5, 99_999_998.0, 100_000_000.0, 100_000_003.75]
    shape: Any = np.ones((1, 1)) if full else 1.0
    family = KnownCovariance([0.0], 1e18 * shape, 0.5 * shape)
    stats = family.suffstats(np.array(x)[:, None], np.ones((5, 1)))
    with localcontext() as context:
        context.prec = 50
        exact = [Decimal(value) for value in x]
        mean, s, s0 = sum(exact) / 5, Decimal("0.5"), Decimal(10) ** 18
        scatter = sum((value - mean) ** 2 for value in exact) / s
        pi = Decimal("3.14159265358979323846264338327950288419716939937511")
        log_evidence = -(scatter + 5 * mean**2 / (s + 5 * s0) + 5 * (2 * pi * s).ln() + (1 + 5 * s0 / s).ln()) / 2
    assert_allclose(log_marginal(family, stats)[0], float(log_evidence), rtol=1e-12)
    assert_allclose(family.posterior(stats).mean[0, 0], float(mean), rtol=1e-16, atol=2e-8)


def test_a_posterior_mean_near_the_data_has_the_digits_of_the_data() -> None:
    """Not those of a vague prior at -1e12, where neighbouring numbers lie 1e-4 apart."""
    family = KnownCovariance([-1e12], 1e30, 0.5)
    stats = family.suffstats(np.array([[1.1], [1.7]]), np.ones((2, 1)))
    assert_allclose(family.posterior(stats).mean, [[1.4]], rtol=1e-12)


@pytest.mark.parametrize("name", ["gaussian", "diagonal", "full"])
def test_units_of_the_features_only_move_the_density(name: str) -> None:
    x, resp = points()
    units = np.array([1e-3, 1.0, 1e3])
    plain, scaled = MAKERS[name](0.0, ONES), MAKERS[name](0.0, units)
    a, b = plain.suffstats(x, resp), scaled.suffstats(x * units, resp)
    jacobian = np.log(units).sum()
    assert_allclose(log_marginal(scaled, b) + a.mass * jacobian, log_marginal(plain, a), rtol=1e-10)
    for question in ("log_predictive", "expected_log_likelihood"):
        answers = getattr(scaled, question)(scaled.posterior(b), x * units)
        assert_allclose(answers + jacobian, getattr(plain, question)(plain.posterior(a), x), rtol=1e-9)


@every
def test_constant_columns_and_duplicates_have_no_scatter(name: str) -> None:
    family = MAKERS[name](0.0, ONES)
    x, resp = np.full((1000, 3), 0.1), np.random.default_rng(0).dirichlet(np.ones(2), 1000)
    stats = family.suffstats(x, resp)
    assert_array_equal(stats.scatter, np.zeros_like(stats.scatter))
    assert_array_equal(stats.mean, np.full((2, 3), 0.1))
    assert np.all(np.isfinite(family.log_predictive(family.posterior(stats), x)))


@every
def test_the_largest_points_give_finite_numbers(name: str) -> None:
    """|x| = 1e150 is the most that the library lets in. pytest makes an overflow an error."""
    family = MAKERS[name](0.0, ONES)
    x = np.array([[1e150, 1e150, -1e150], [-1e150, 1e150, 1e150], [0.0, 0.0, 0.0]])
    params = family.posterior(family.suffstats(x[2:], np.ones((1, 1))))
    for question in ("log_predictive", "expected_log_likelihood"):
        answer = getattr(family, question)(params, x)
        assert np.all(np.isfinite(answer))
        assert np.all(answer[:2] < -1000)
    stats = family.suffstats(x, np.ones((3, 1)))
    assert np.all(np.isfinite(log_marginal(family, stats)))
    assert np.all(np.isfinite(family.log_predictive(family.posterior(stats), x)))


@every
def test_a_heavy_component_predicts_as_its_normal(name: str) -> None:
    """Mass 1e12: the Student t is a normal to 1e-9, if its constant is not the difference of two large numbers."""
    family = MAKERS[name](0.0, ONES)
    x, _ = points()
    stats = family.scale(family.suffstats(x, np.ones((len(x), 1))), 1e12 / len(x))
    params = family.posterior(stats)
    plug_in = family.expected_log_likelihood(params, x)
    assert_allclose(family.log_predictive(params, x), plug_in, rtol=1e-9, atol=1e-9)


@every
def test_light_and_heavy_join_and_part(name: str) -> None:
    family = MAKERS[name](0.0, ONES)
    x, _ = points()
    heavy = family.scale(family.suffstats(x, np.ones((len(x), 1))), 1e6)
    light = family.suffstats(x[:3] + 5, np.full((3, 1), 1e-3))
    back = family.subtract(family.add(heavy, light), light)
    assert_allclose(back.mass, heavy.mass, rtol=1e-12)
    assert_allclose(back.scatter, heavy.scatter, rtol=1e-10)
    rest = family.subtract(family.add(heavy, light), heavy)
    assert np.all(np.asarray(rest.mass) >= 0)
    assert np.all(np.isfinite(family.log_predictive(family.posterior(rest), x)))


def test_scatter_of_far_clusters_is_summed_from_differences() -> None:
    """Clusters of width 1e-4 at distance 1e4: raw squares about a common centre keep no digit of the scatter."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 3, 600)
    noise = 1e-4 * rng.standard_normal((600, 2))
    x, resp = noise + 1e4 * labels[:, None], np.eye(3)[labels]
    family = NormalInverseGamma(np.zeros(2), 1, 1, 1)
    exact = [np.square(x[labels == k] - x[labels == k].mean(axis=0)).sum(axis=0) for k in range(3)]
    assert_allclose(family.suffstats(x, resp).scatter, exact, rtol=1e-9)


def test_nearly_singular_posterior_is_factorised() -> None:
    """Two points 1e9 apart under a prior of width 1: the scale matrix is indefinite in float64 as often as not."""
    family = NormalInverseWishart(np.zeros(4), 0.01, 6.0, np.eye(4))
    for seed in range(20):
        x = 1e9 * np.random.default_rng(seed).standard_normal((2, 4))
        stats = family.suffstats(x, np.ones((2, 1)))
        assert np.all(np.isfinite(family.log_predictive(family.posterior(stats), x)))
        assert np.isfinite(log_marginal(family, stats)[0])


def peak_bytes(call: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("question", ["log_predictive", "expected_log_likelihood"])
@pytest.mark.parametrize(
    "family",
    [NormalInverseGamma.weak(64), KnownCovariance.weak(64), NormalInverseWishart.weak(64)],
    ids=lambda f: f.name,
)
@pytest.mark.short_form("known_covariance-*", "gaussian-log_predictive", "diagonal-expected_log_likelihood")
def test_temporaries_are_bounded(family: AnyFamily, question: str) -> None:
    """20,000 points, 50 components, 64 features: all differences at once would be 512 MB."""
    x = np.random.default_rng(0).standard_normal((20_000, 64))
    params = family.posterior(family.suffstats(x[:50], np.eye(50)))
    answer = 20_000 * 50 * 8
    assert peak_bytes(lambda: getattr(family, question)(params, x)) < 3 * answer + 2 * x.nbytes + 10e6


def test_evidence_of_many_components_in_bounded_memory() -> None:
    family = NormalInverseWishart.weak(48)
    stats = family.scale(family.empty_stats(3000), 1.0)
    assert peak_bytes(lambda: log_marginal(family, stats)) < 80e6  # the statistics alone are 55 MB


@pytest.mark.parametrize("question", ["log_predictive", "expected_log_likelihood"])
def test_cholesky_factors_are_made_a_block_at_a_time(question: str, monkeypatch: pytest.MonkeyPatch) -> None:
    family = NormalInverseWishart.weak(40)
    x = np.random.default_rng(0).standard_normal((500, 40))
    params = family.posterior(family.suffstats(x, np.eye(500)))
    whole = getattr(family, question)(params, x[:5])
    monkeypatch.setattr("shoal.families.gaussian.prior.FACTOR_BLOCK", 10 * 40**2)
    assert peak_bytes(lambda: getattr(family, question)(params, x[:5])) < 0.5 * params.scale.nbytes
    assert_allclose(getattr(family, question)(params, x[:5]), whole, rtol=1e-12)


@pytest.mark.parametrize("family", [NormalInverseWishart, NormalInverseGamma, KnownCovariance])
def test_five_hundred_and_twelve_features(family: Any) -> None:
    d = 512
    prior = family.weak(d, within_variance=0.3)
    x = np.random.default_rng(5).standard_normal((30, d))
    resp = np.random.default_rng(6).dirichlet(np.ones(2), 30)
    stats = prior.suffstats(x, resp)
    one = prior.suffstats(x[:1], np.ones((1, 2)))
    gain = log_marginal(prior, prior.add(stats, one)) - log_marginal(prior, stats)
    assert_allclose(prior.log_predictive(prior.posterior(stats), x[:1])[0], gain, rtol=1e-9)


@pytest.mark.parametrize("family", [NormalInverseWishart, NormalInverseGamma, KnownCovariance])
def test_two_thousand_components(family: Any) -> None:
    prior = family.weak(4)
    x = np.random.default_rng(7).standard_normal((2000, 4))
    params = prior.posterior(prior.suffstats(x, np.eye(2000)))
    density = prior.log_predictive(params, x[:20])
    assert_array_equal(density.argmax(axis=1), np.arange(20))
