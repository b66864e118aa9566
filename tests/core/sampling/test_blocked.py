"""Blocked Gibbs sampling against the exact posterior of its truncated model, over all labellings of six points."""

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import chi2, t

from shoal.errors import SettingError
from shoal.mixture import log_density
from shoal.process import (
    default_truncation,
    expected_stick_weights,
    log_truncated_label_prior,
    sample_log_weights,
)
from shoal.sampling import component_stats, fit_blocked_gibbs, pool_samples
from shoal.sampling.blocked import BlockedSampler

N, T, ALPHA = 6, 3, 1.3


def label_weights(counts: np.ndarray, alpha: float) -> np.ndarray:
    """p(next label = i | counts) (T,), by ERRATA 2.2 as regrouped: a chain rule, no log-gammas."""
    above = counts.sum() - np.cumsum(counts)
    stop = (1.0 + counts) / (1.0 + alpha + counts + above)
    go = (alpha + above) / (1.0 + alpha + counts + above)
    stop[-1] = 1.0
    return stop * np.append(1.0, np.cumprod(go[:-1]))


class Exact:
    """The posterior over the 3^6 labellings of six points under three sticks."""

    def __init__(self, samplers: SimpleNamespace, form: str) -> None:
        self.family, self.x = samplers.prior(form, 2), samplers.points(N, 2, 7)
        self.labels = np.array(list(itertools.product(range(T), repeat=N)))
        evidence: dict[tuple[int, ...], float] = {}
        values = []
        for z in self.labels:
            prior, counts, total = 0.0, np.zeros(T), 0.0
            for label in z:
                prior += float(np.log(label_weights(counts, ALPHA)[label]))
                counts[label] += 1
            for k in np.unique(z):
                rows = tuple(np.flatnonzero(z == k))
                if rows not in evidence:
                    evidence[rows] = self.block_evidence(self.x[list(rows)])
                total += evidence[rows]
            values.append(prior + total)
        self.log_joint = np.array(values)
        self.log_evidence = float(logsumexp(values))
        self.probability = np.exp(self.log_joint - self.log_evidence)

    def block_evidence(self, x: np.ndarray) -> float:
        """Chain rule of predictives."""
        total = 0.0
        for i in range(len(x)):
            params = self.family.posterior(self.family.suffstats(x[:i], np.ones((i, 1))))
            total += float(self.family.log_predictive(params, x[i : i + 1])[0, 0])
        return total


_known: dict[str, Exact] = {}


@pytest.fixture
def exact(form: str, samplers: SimpleNamespace) -> Exact:
    """Of each form, worked out once."""
    if form not in _known:
        _known[form] = Exact(samplers, form)
    return _known[form]


def sampler(exact: Exact, labels: Any, rng: np.random.Generator) -> BlockedSampler:
    return BlockedSampler(exact.family, ALPHA, exact.x, labels, T, rng)


def test_log_joint_of_every_labelling(exact: Exact) -> None:
    rng = np.random.default_rng(0)
    for z, value in zip(exact.labels[::23], exact.log_joint[::23], strict=True):
        assert sampler(exact, z, rng).log_joint() == pytest.approx(value, rel=1e-10)


@pytest.mark.parametrize("runs", [400, pytest.param(30_000, marks=pytest.mark.slow)])
@pytest.mark.short_form("gaussian-*")
def test_a_sweep_leaves_the_posterior_as_it_is(exact: Exact, runs: int) -> None:
    """From exact draws, exact ones again and different ones: chi-squared over labellings; false alarm 1e-4."""
    rng = np.random.default_rng(31)
    counts, moved = np.zeros(len(exact.labels)), 0
    for start in rng.choice(len(exact.labels), size=runs, p=exact.probability):
        chain = sampler(exact, exact.labels[start], rng)
        chain.sweep()
        end = int(np.ravel_multi_index(tuple(chain.labels), (T,) * N))
        counts[end] += 1
        moved += end != start
    expected = runs * exact.probability
    rare = expected < 5.0
    observed = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    assert chi2.sf(float(((observed - expected) ** 2 / expected).sum()), observed.size - 1) > 1e-4
    assert moved > runs / 10


@pytest.mark.parametrize(("n_samples", "rtol"), [(500, 0.15), pytest.param(20_000, 0.03, marks=pytest.mark.slow)])
@pytest.mark.short_form("gaussian-*")
def test_co_clustering_and_density_of_a_long_chain(exact: Exact, n_samples: int, rtol: float) -> None:
    """Pairs by batch means of 50, Student t, false alarm 1e-4; the pooled density within `rtol` of the exact one."""
    fit = fit_blocked_gibbs(
        exact.family, exact.x, concentration=ALPHA, truncation=T, n_samples=n_samples, rng=np.random.default_rng(32)
    )
    first, second = np.triu_indices(N, 1)
    samples = fit.extra["samples"]
    shared = (samples[:, first] == samples[:, second]).reshape(50, -1, first.size).mean(axis=1)
    together = exact.probability @ (exact.labels[:, first] == exact.labels[:, second])
    independent = np.sqrt(together * (1.0 - together) / n_samples)  # a pair never seen together has no spread
    error = shared.mean(axis=0) - together
    score = error / np.maximum(shared.std(axis=0, ddof=1) / np.sqrt(50), independent)
    assert np.abs(score).max() < t.isf(1e-4 / 2 / first.size, 49)
    assert fit.elbo > exact.log_joint.max() - 1.5
    assert fit.elbo <= exact.log_evidence

    y = np.array([[0.3, -0.2], [2.0, 1.0], [-5.0, 4.0]])
    bits = 1 << np.arange(N)
    held = ((np.arange(1 << N) & bits[:, None]) > 0).astype(float)  # (N, 2^N) every set of points
    density = np.exp(exact.family.log_predictive(exact.family.posterior(exact.family.suffstats(exact.x, held)), y))
    truth = np.zeros(len(y))
    for z, p in zip(exact.labels, exact.probability, strict=True):
        weight = label_weights(np.bincount(z, minlength=T).astype(float), ALPHA)
        truth += p * (density[:, (z == np.arange(T)[:, None]) @ bits] @ weight)
    ours = np.exp(log_density(exact.family, pool_samples(exact.family, exact.x, fit), y))
    np.testing.assert_allclose(ours, truth, rtol=rtol)


def test_law_of_the_weights() -> None:
    """Means of many draws within 4.5 standard errors (false alarm 3e-5 in all), and as the next label's chain rule."""
    counts = np.array([4.0, 0.0, 7.0, 1.0])
    rng = np.random.default_rng(33)
    draws = np.exp([sample_log_weights(counts, 0.7, rng) for _ in range(8_000)])
    np.testing.assert_allclose(draws.sum(axis=1), 1.0, rtol=1e-12)
    mean = expected_stick_weights(counts, 0.7)
    np.testing.assert_allclose(mean, label_weights(counts, 0.7), rtol=1e-12)
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 4.5 * draws.std(axis=0) / np.sqrt(len(draws)))


def test_label_prior_sums_to_one_and_single_stick_is_certain() -> None:
    total = logsumexp(
        [log_truncated_label_prior(np.bincount(z, minlength=3), 1.7) for z in itertools.product(range(3), repeat=5)]
    )
    assert total == pytest.approx(0.0, abs=1e-12)
    assert log_truncated_label_prior(np.array([5]), 1.7) == 0.0
    assert sample_log_weights(np.array([5.0]), 1.7, np.random.default_rng(0)).tolist() == [0.0]


def test_small_concentration_keeps_weights_finite() -> None:
    """Sticks that take all but 1e-300 and less."""
    rng = np.random.default_rng(1)
    log_weight = sample_log_weights(np.array([50.0, 0.0, 0.0, 0.0]), 1e-3, rng)
    assert np.all(np.isfinite(log_weight))
    assert logsumexp(log_weight) == pytest.approx(0.0, abs=1e-12)


def test_where_a_chain_starts(samplers: SimpleNamespace) -> None:
    family, x = samplers.prior("spherical", 2), samplers.points(30, 2)
    resp = np.eye(4)[np.arange(30) % 4]
    fit = fit_blocked_gibbs(family, x, resp_init=resp, n_samples=3, rng=np.random.default_rng(0))
    stats = component_stats(family, x, np.arange(30) % 4)
    start = BlockedSampler(family, 1.0, x, np.arange(30) % 4, 4, np.random.default_rng(0))
    assert fit.elbo_history[0] == pytest.approx(start.log_joint(), rel=1e-12)
    assert fit.extra["samples"].max() < 4
    assert stats[0].tolist() == start.counts.tolist()
    with pytest.raises(SettingError, match="truncation is 3; it must be at least 1, and at least the 4 columns"):
        fit_blocked_gibbs(family, x, resp_init=resp, truncation=3, rng=np.random.default_rng(0))
    assert fit_blocked_gibbs(family, x, n_samples=2, rng=np.random.default_rng(0)).extra["samples"].max() < (
        default_truncation(30, 1.0)
    )
