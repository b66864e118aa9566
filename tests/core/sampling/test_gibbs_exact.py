"""Gibbs sampling against the exact posterior over all partitions of six points, by enumeration."""

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import chi2, t

from shoal.mixture import BatchFit, log_density
from shoal.points.arrays import IntArray
from shoal.sampling import component_stats, fit_gibbs, log_joint, pool_samples, start_chain, sweep_inplace

N = 6


@pytest.fixture(params=("gaussian", "diagonal", "spherical", "shared", "subspace"))
def form(request: pytest.FixtureRequest) -> str:
    """Each predictive cache that takes points out, in turn."""
    return str(request.param)


class Exact:
    """The posterior over the 203 partitions of six points."""

    def __init__(self, samplers: SimpleNamespace, form: str, concentration: float) -> None:
        self.family, self.x, self.concentration = samplers.prior(form, 2), samplers.points(N, 2, 7), concentration
        self.partitions = samplers.partitions(N)
        values = [log_joint(self.family, concentration, self.stats(labels)) for labels in self.partitions]
        self.log_evidence = float(logsumexp(values))
        self.probability = np.exp(np.array(values) - self.log_evidence)
        self.place = {tuple(labels): row for row, labels in enumerate(self.partitions.tolist())}

    def stats(self, labels: IntArray) -> Any:
        return component_stats(self.family, self.x, labels)


_exact: dict[str, Exact] = {}


@cache
def long_chain(exact: Exact, n_samples: int) -> BatchFit:
    """Run once for each form."""
    rng = np.random.default_rng(13)
    return fit_gibbs(exact.family, exact.x, concentration=exact.concentration, n_samples=n_samples, rng=rng)


@pytest.fixture
def exact(form: str, samplers: SimpleNamespace) -> Exact:
    """Worked out once for each form."""
    if form not in _exact:
        _exact[form] = Exact(samplers, form, 1.3)
    return _exact[form]


@pytest.mark.parametrize("runs", [1500, pytest.param(20_000, marks=pytest.mark.slow)])
def test_a_sweep_leaves_the_posterior_as_it_is(exact: Exact, runs: int, samplers: SimpleNamespace) -> None:
    """From exact draws of the posterior, independent ones again, and different ones: chi-squared over partitions.

    Cells expecting fewer than five are joined. False-alarm rate 1e-4 for another seed.
    """
    rng = np.random.default_rng(11)
    starts = rng.choice(len(exact.partitions), size=runs, p=exact.probability)
    counts = np.zeros(len(exact.partitions))
    moved = 0
    for start in starts:
        chain = start_chain(exact.family, exact.partitions[start])
        sweep_inplace(exact.family, exact.concentration, chain, exact.x, rng.random(N))
        end = exact.place[samplers.spelled(chain.labels)]
        counts[end] += 1
        moved += end != start
    expected = runs * exact.probability
    rare = expected < 5.0
    observed = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    statistic = float(((observed - expected) ** 2 / expected).sum())
    assert chi2.sf(statistic, observed.size - 1) > 1e-4
    assert moved > runs / 10


def test_first_draw_of_all_points_has_its_own_law(exact: Exact) -> None:
    """A chain started from nothing draws each point given those before it, which is the law of x_1..i exactly for i=2.

    The probability that the first two points share a component, over 2000 starts; 4.5 standard errors, false alarm
    7e-6.
    """
    rng = np.random.default_rng(12)
    together = 0
    for _ in range(2000):
        chain = start_chain(exact.family, np.full(2, -1))
        sweep_inplace(exact.family, exact.concentration, chain, exact.x[:2], rng.random(2))
        together += chain.n_components == 1
    two = [
        log_joint(exact.family, exact.concentration, component_stats(exact.family, exact.x[:2], np.array(labels)))
        for labels in ([0, 0], [0, 1])
    ]
    p = 1.0 / (1.0 + np.exp(two[1] - two[0]))
    assert abs(together / 2000 - p) < 4.5 * np.sqrt(p * (1 - p) / 2000)


@pytest.mark.parametrize("n_samples", [2_000, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.short_form("gaussian-*")
def test_co_clustering_probabilities(exact: Exact, n_samples: int) -> None:
    """Of all 15 pairs, from one long chain: batch means of 50 batches, Student t; false alarm 1e-4 in all."""
    fit = long_chain(exact, n_samples)
    first, second = np.triu_indices(N, 1)
    samples = fit.extra["samples"]
    shared = (samples[:, first] == samples[:, second]).reshape(50, -1, first.size).mean(axis=1)
    together = exact.partitions[:, first] == exact.partitions[:, second]
    error = shared.mean(axis=0) - exact.probability @ together
    score = error / np.maximum(shared.std(axis=0, ddof=1) / np.sqrt(50), 1e-4)
    assert np.abs(score).max() < t.isf(1e-4 / 2 / first.size, 49)
    assert fit.elbo <= exact.log_evidence


@pytest.mark.short_form("gaussian")
def test_pooled_density_is_the_posterior_predictive(exact: Exact) -> None:
    """p(y | x) by enumeration of the partitions, within 2.5 %: two and a half times the largest Monte Carlo error
    of these forms, 1.0 %."""
    fit = long_chain(exact, 2_000)
    y = np.array([[0.3, -0.2], [2.0, 1.0], [-5.0, 4.0]])
    ours = log_density(exact.family, pool_samples(exact.family, exact.x, fit), y)
    truth = np.zeros(len(y))
    empty = exact.family.empty_stats(1)
    for labels, p in zip(exact.partitions, exact.probability, strict=True):
        stats = exact.stats(labels)
        stats = type(stats)(*(np.concatenate([a, b]) for a, b in zip(stats, empty, strict=True)))
        weight = np.append(stats[0][:-1], exact.concentration) / (exact.concentration + N)
        truth += p * (np.exp(exact.family.log_predictive(exact.family.posterior(stats), y)) @ weight)
    np.testing.assert_allclose(np.exp(ours), truth, rtol=0.025)
