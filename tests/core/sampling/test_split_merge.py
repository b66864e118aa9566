"""Split-merge moves against the exact posterior of six points, and their proposals' densities by other roads."""

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from scipy.stats import chi2, t

from shoal.errors import SettingError
from shoal.families import take
from shoal.families.predictive_cache import empty_cache, kernel_points, kernel_prior, refresh
from shoal.sampling import component_stats, fit_split_merge, log_joint, start_chain
from shoal.sampling.chain import live_stats
from shoal.sampling.split_merge import Proposals, propose_inplace
from shoal.sampling.split_merge_kernel import divide_pair

FORMS = ("gaussian", "diagonal", "spherical", "shared")
N = 6
ALPHA = 1.3
WAYS = {
    "restricted": Proposals("restricted", 2),
    "no scans": Proposals("restricted", 0),
    "sequential": Proposals("sequential"),
}


@pytest.fixture(params=WAYS)
def how(request: pytest.FixtureRequest) -> Proposals:
    return WAYS[request.param]


def chain_at(family: Any, x: Any, labels: Any) -> Any:
    """A chain at a partition, its statistics and predictive cache in place."""
    chain = start_chain(family, labels)
    stats = component_stats(family, x, chain.labels)
    for field, rows in zip((*chain.stats, *chain.cache), (*stats, *refresh(family, stats)), strict=True):
        field[: chain.n_components] = rows
    return chain


def exact(samplers: SimpleNamespace, family: Any, x: Any) -> tuple[Any, Any, float]:
    """Every partition, its probability, the log evidence."""
    every = samplers.partitions(len(x))
    values = np.array([log_joint(family, ALPHA, component_stats(family, x, labels)) for labels in every])
    return every, np.exp(values - logsumexp(values)), float(logsumexp(values))


@pytest.mark.parametrize(
    ("form", "runs"),
    [
        *((form, 250) for form in ("gaussian", "spherical")),
        *(pytest.param(form, 20_000, marks=pytest.mark.slow) for form in FORMS),
    ],
)
@pytest.mark.short_form("restricted-gaussian-250", "sequential-spherical-250")
def test_moves_leave_the_posterior_as_it_is(form: str, how: Proposals, runs: int, samplers: SimpleNamespace) -> None:
    """Moves alone, from exact draws: exact draws again. Chi-squared over partitions; false alarm 1e-4 a case. The moves
    are the same for every form."""
    family, x = samplers.prior(form, 2), samplers.points(N, 2, 7)
    every, probability, _ = exact(samplers, family, x)
    place = {tuple(labels): row for row, labels in enumerate(every.tolist())}
    rng = np.random.default_rng(21)
    counts = np.zeros(len(every))
    accepted = np.zeros(2)
    for start in rng.choice(len(every), size=runs, p=probability):
        chain = chain_at(family, x, every[start])
        for _ in range(2):
            made = propose_inplace(family, ALPHA, chain, x, rng, how)
            accepted[int(made.split)] += made.accepted
        counts[place[samplers.spelled(chain.labels)]] += 1
    expected = runs * probability
    rare = expected < 5.0
    observed = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    assert chi2.sf(float(((observed - expected) ** 2 / expected).sum()), observed.size - 1) > 1e-4
    assert accepted.min() > runs / 30


@pytest.mark.short_form("gaussian-restricted", "diagonal-sequential", "shared-no scans")
def test_statistics_stay_those_of_the_labels(form: str, how: Proposals, samplers: SimpleNamespace) -> None:
    family, x = samplers.prior(form, 3), samplers.points(60, 3)
    rng = np.random.default_rng(22)
    chain = chain_at(family, x, rng.integers(0, 15, 60))
    moved = 0
    for _ in range(200):
        moved += propose_inplace(family, 20.0, chain, x, rng, how).accepted
        assert_array_equal(np.unique(chain.labels), np.arange(chain.n_components))
    assert moved > 10
    fresh = component_stats(family, x, chain.labels)
    cache = take(chain.cache, slice(0, chain.n_components))
    for carried, rebuilt in zip((*live_stats(chain), *cache), (*fresh, *refresh(family, fresh)), strict=True):
        assert_allclose(carried, rebuilt, rtol=1e-9, atol=1e-9 * max(1.0, np.abs(rebuilt).max()))


def divided(family: Any, x: Any, uniforms: Any, target: Any, scans: int, sequential: bool) -> tuple[float, Any]:
    prior, sides = kernel_prior(family), np.empty(len(x), dtype=np.int64)
    stats, cache = family.empty_stats(3), empty_cache(family, 3)
    target = np.array(target, dtype=np.int64)
    log_q = divide_pair(
        kernel_points(family, x), uniforms, target, scans, sequential, prior.empty, prior.constants, stats, cache, sides
    )
    return float(log_q), sides


@pytest.mark.parametrize("sequential", [False, True])
def test_densities_of_all_divisions_sum_to_one(form: str, sequential: bool, samplers: SimpleNamespace) -> None:
    """From one launch state: the same numbers bring every target there."""
    family, x = samplers.prior(form, 2), samplers.points(7, 2)
    uniforms = np.random.default_rng(3).random(7 * 5)
    targets = [(0, 1, *rest) for rest in itertools.product((0, 1), repeat=5)]
    log_q = [divided(family, x, uniforms, target, 3, sequential)[0] for target in targets]
    assert np.exp(log_q).sum() == pytest.approx(1.0, rel=1e-12)
    free, sides = divided(family, x, uniforms, (), 3, sequential)
    assert free == log_q[targets.index(tuple(sides.tolist()))]


def test_sequential_density_by_predictives(form: str, samplers: SimpleNamespace) -> None:
    """The product of size times predictive over the sum of both, by the family's own functions."""
    family, x = samplers.prior(form, 2), samplers.points(6, 2)
    target = np.array([0, 1, 1, 0, 1, 1])
    log_q = 0.0
    for i in range(2, 6):
        stats = component_stats(family, x[:i], target[:i])
        log_p = np.log(stats[0]) + family.log_predictive(family.posterior(stats), x[i : i + 1])[0]
        log_q += log_p[target[i]] - logsumexp(log_p)
    assert divided(family, x, np.zeros(6), target, 0, True)[0] == pytest.approx(log_q, rel=1e-10)


@pytest.mark.parametrize("scans", [3, 5])
def test_restricted_scans_part_two_distant_groups(scans: int, samplers: SimpleNamespace) -> None:
    """From odds of a half a point, the anchors in either group: what single moves would take long for."""
    rng = np.random.default_rng(5)
    two = 0.5 * rng.normal(size=(80, 2)) + np.repeat([[0.0, 0.0], [8.0, 8.0]], 40, axis=0)
    rows = np.array([3, 70, *rng.permutation(np.delete(np.arange(80), [3, 70]))])
    _, sides = divided(samplers.prior("spherical", 2), two[rows], rng.random(80 * (scans + 2)), (), scans, False)
    assert_array_equal(sides, rows >= 40)


def test_halves_of_one_group_join(how: Proposals, samplers: SimpleNamespace) -> None:
    family, rng = samplers.prior("spherical", 2), np.random.default_rng(6)
    one = 0.5 * rng.normal(size=(30, 2))
    chain = chain_at(family, one, np.arange(30) % 2)
    for _ in range(300):
        propose_inplace(family, 0.1, chain, one, rng, how)
        if chain.n_components == 1:
            return
    raise AssertionError("two halves have not joined in 300 proposals")


@pytest.mark.parametrize("n_samples", [500, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.short_form("gaussian-*")
def test_co_clustering_probabilities(form: str, n_samples: int, samplers: SimpleNamespace) -> None:
    """Of all 15 pairs, from one long chain of moves and sweeps: batch means of 50, Student t; false alarm 1e-4."""
    family, x = samplers.prior(form, 2), samplers.points(N, 2, 7)
    every, probability, evidence = exact(samplers, family, x)
    fit = fit_split_merge(family, x, concentration=ALPHA, n_samples=n_samples, rng=np.random.default_rng(23))
    first, second = np.triu_indices(N, 1)
    samples = fit.extra["samples"]
    shared = (samples[:, first] == samples[:, second]).reshape(50, -1, first.size).mean(axis=1)
    together = probability @ (every[:, first] == every[:, second])
    independent = np.sqrt(together * (1.0 - together) / n_samples)  # a pair never seen together has no spread
    error = shared.mean(axis=0) - together
    score = error / np.maximum(shared.std(axis=0, ddof=1) / np.sqrt(50), independent)
    assert np.abs(score).max() < t.isf(1e-4 / 2 / first.size, 49)
    assert fit.elbo <= evidence
    assert fit.extra["proposals"][:, 0].sum() == n_samples + 100
    assert np.all(fit.extra["effective_sample_size"] > n_samples / 25)


@pytest.mark.parametrize("n", [1, 2])
def test_fewest_points(n: int, form: str, samplers: SimpleNamespace) -> None:
    family, x = samplers.prior(form, 2), samplers.points(n, 2)
    for allocation in ("restricted", "sequential"):
        fit = fit_split_merge(family, x, allocation=allocation, n_samples=5, rng=np.random.default_rng(0))
        assert fit.extra["samples"].shape == (5, n)


def test_unknown_allocation_is_named(samplers: SimpleNamespace) -> None:
    with pytest.raises(SettingError, match="allocation is 'greedy'"):
        fit_split_merge(samplers.prior("shared", 2), np.zeros((3, 2)), allocation="greedy", rng=np.random.default_rng())
