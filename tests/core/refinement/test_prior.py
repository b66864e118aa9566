"""The prior that components suggest: no worse than the one in force, near the truth, and at rest once found."""

import numpy as np
import pytest

from harness.refinement_problems import FAMILIES, points_for, sharpened
from shoal.families import (
    BetaBernoulli,
    DirichletMultinomial,
    GammaPoisson,
    KnownCovariance,
    NormalInverseGamma,
    NormalInverseWishart,
    log_marginal,
)
from shoal.families.prior_choices import restated
from shoal.inference import evidence_under, reestimated
from shoal.points.rows import SparseRows


def _components(n: int, d: int, variance: float, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Points of n Gaussians, and which is which."""
    rng = np.random.default_rng(1)
    z = np.repeat(np.arange(n), 60)
    means = rng.normal(0.0, np.sqrt(spread), size=(n, d))
    return means[z] + np.sqrt(variance) * rng.normal(size=(z.size, d)), np.eye(n)[z]


@pytest.mark.parametrize("name", list(FAMILIES))
def test_the_evidence_rises_and_what_was_found_is_kept(name: str) -> None:
    rng = np.random.default_rng(2)
    family = FAMILIES[name]
    x = points_for(name, 300, rng)
    stats = family.suffstats(x, sharpened(rng, 300, 5))
    found = reestimated(family, stats, 1e-3)
    assert evidence_under(found, family, stats) >= evidence_under(family, family, stats)
    again = restated(found, stats, family)
    assert reestimated(found, again, 1e-3) == found


@pytest.mark.parametrize("name", list(FAMILIES))
def test_two_components_tell_nothing(name: str) -> None:
    rng = np.random.default_rng(3)
    stats = FAMILIES[name].suffstats(points_for(name, 50, rng), sharpened(rng, 50, 2))
    assert reestimated(FAMILIES[name], stats, 0.0) is FAMILIES[name]


def test_the_variance_within_is_found_from_a_guess_that_is_far_off() -> None:
    x, resp = _components(20, 3, 0.04, 1.0)
    for family in (NormalInverseGamma.weak(3, within_variance=5.0), NormalInverseWishart.weak(3, within_variance=5.0)):
        found = reestimated(family, family.suffstats(x, resp), 0.0)
        draws = found.sample_parameters(found.posterior(found.empty_stats(4_000)), np.random.default_rng(0))
        variances = draws.variance if hasattr(draws, "variance") else np.diagonal(draws.covariance, axis1=1, axis2=2)
        assert 0.02 < float(np.median(variances)) < 0.08


def test_a_known_variance_is_found_and_statistics_are_restated_in_its_units() -> None:
    x, resp = _components(20, 3, 0.04, 1.0)
    family = KnownCovariance(np.zeros(3), 4.0, 1.0)
    stats = family.suffstats(x, resp)
    found = reestimated(family, stats, 0.0)
    assert float(found.covariance) == pytest.approx(0.04, rel=0.1)
    assert 0.4 < float(found.prior_covariance) < 3.0
    for told, rebuilt in zip(restated(found, stats, family), found.suffstats(x, resp), strict=True):
        np.testing.assert_allclose(told, rebuilt, rtol=1e-9)


def test_firmness_is_no_more_than_one_degree_of_freedom_a_component() -> None:
    x, resp = _components(5, 2, 0.04, 1.0)
    family = NormalInverseGamma.weak(2)
    found = reestimated(family, family.suffstats(x, resp), 0.0)
    assert 2.0 * (found.shape - 1.0) <= 5.0


def test_how_far_components_of_counts_spread_is_found() -> None:
    rng = np.random.default_rng(4)
    z = np.repeat(np.arange(30), 40)
    share = rng.beta(6.0, 2.0, size=(30, 20))  # worth 8 rows
    x = SparseRows.of((rng.random((1_200, 20)) < share[z]).astype(float))
    bernoulli = BetaBernoulli.weak(20)
    found = reestimated(bernoulli, bernoulli.suffstats(x, np.eye(30)[z]), 0.0)
    assert float((found.a + found.b).mean()) in (4.0, 8.0, 16.0)
    rates = rng.gamma(4.0, 0.5, size=(30, 20))  # shape 4
    counts = SparseRows.of(rng.poisson(rates[z]).astype(float))
    poisson = GammaPoisson.weak(20)
    assert float(reestimated(poisson, poisson.suffstats(counts, np.eye(30)[z]), 0.0).shape[0]) in (2.0, 4.0, 8.0)
    terms = rng.dirichlet(np.full(20, 0.8), size=30)  # 16 pseudo counts
    documents = SparseRows.of(np.array([rng.multinomial(50, terms[k]) for k in z]).astype(float))
    multinomial = DirichletMultinomial.weak(20)
    stats = multinomial.suffstats(documents, np.eye(30)[z])
    best = reestimated(multinomial, stats, 0.0)
    assert float(best.pseudo_counts.sum()) == pytest.approx(16.0, rel=1e-9)
    assert log_marginal(best, stats).sum() > log_marginal(multinomial, stats).sum()
