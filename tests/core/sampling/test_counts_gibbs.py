"""Samplers of counts: the kernel of Gibbs sampling beside its plain twin, and every partition of a few points."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from scipy.stats import t

import shoal.sampling.chain
import shoal.sampling.split_merge
from shoal.families import BetaBernoulli, BetaNegativeBinomial, DirichletMultinomial, GammaPoisson, log_marginal
from shoal.points.rows import SparseRows
from shoal.process import log_eppf
from shoal.sampling import component_stats, fit_blocked_gibbs, fit_gibbs, fit_split_merge, start_chain
from shoal.sampling.chain import live_stats, sweep_inplace
from shoal.sampling.reference import reference_sweep
from shoal.variational import fit_vdp

ALPHA = 1.3
PRIORS = {
    "multinomial": DirichletMultinomial([0.5, 1.0, 0.7]),
    "bernoulli": BetaBernoulli([0.5, 1.0, 0.7], [0.6, 0.4, 1.5]),
    "poisson": GammaPoisson([0.5, 1.0, 0.7], [0.2, 0.4, 0.3]),
    "negative_binomial": BetaNegativeBinomial([1.5, 2.0, 1.7], [2.0, 1.0, 0.7], [0.5, 2.0, 5.0]),
}


def some_points(family, n):
    rng = np.random.default_rng(n)
    draw = family.sample_parameters(family.posterior(family.empty_stats(3)), rng)
    of_length = {"length": rng.integers(0, 9, n // 3)} if family.name == "multinomial" else {}
    return SparseRows.of(family.sample_points(draw, n // 3, rng, **of_length).reshape(n, 3))


@pytest.fixture(params=PRIORS)
def family(request):
    return PRIORS[request.param]


@pytest.fixture
def without_kernels(monkeypatch):
    """Every family served by NumPy, as one that has no kernels."""
    for module in (shoal.sampling.chain, shoal.sampling.split_merge):
        monkeypatch.setattr(module, "has_sampling_kernels", lambda family: False)


def check_sweeps(family, n):
    rng, x = np.random.default_rng(2), some_points(family, n)
    labels = np.full(len(x), -1)
    chain = start_chain(family, labels)
    for _ in range(5):
        uniforms = rng.random(len(x))
        labels = reference_sweep(family, ALPHA, labels, x, uniforms)
        sweep_inplace(family, ALPHA, chain, x, uniforms)
        assert_array_equal(chain.labels, labels)
    for carried, rebuilt in zip(live_stats(chain), component_stats(family, x, labels), strict=True):
        assert_allclose(carried, rebuilt, rtol=1e-12, atol=1e-10)


def test_kernel_equals_the_reference_sweep(family):
    check_sweeps(family, 45)


def test_numpy_equals_the_reference_sweep(family, without_kernels):
    check_sweeps(family, 18)


def exact_posterior(family, x, partitions):
    joint = [
        float(log_marginal(family, stats).sum()) + log_eppf(stats[0], ALPHA)
        for stats in (component_stats(family, x, labels) for labels in partitions)
    ]
    return np.array(joint), float(logsumexp(joint))


SAMPLERS = {
    "gibbs": fit_gibbs,
    "blocked-gibbs": partial(fit_blocked_gibbs, truncation=12),  # sticks beyond hold (1.3 / 2.3)^11 = .002 on average
    "split-merge": fit_split_merge,
    "sequential": partial(fit_split_merge, allocation="sequential"),
}


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("n", [400, 1_000])
@pytest.mark.short_form(
    "multinomial-400-gibbs",
    "poisson-400-blocked-gibbs",
    "bernoulli-400-split-merge",
    "negative_binomial-400-sequential",
)
def test_samples_are_of_the_exact_posterior(samplers, remember_blocks, family, n, sampler):
    check_samples(family, sampler, samplers.partitions(5), n, remember_blocks)


@pytest.mark.parametrize(
    ("sampler", "n"), [("gibbs", 200), ("split-merge", 100), ("gibbs", 500), ("split-merge", 500), ("sequential", 500)]
)
@pytest.mark.short_form("gibbs-200", "split-merge-100")
def test_samples_of_a_family_without_kernels_too(samplers, remember_blocks, sampler, n, without_kernels):
    check_samples(PRIORS["bernoulli"], sampler, samplers.partitions(5), n, remember_blocks)


def check_samples(family, sampler, partitions, n, remember_blocks):
    """52 partitions of 5 points; co-clustering of the ten pairs by batch means of 50, Student t, false alarm 1e-4."""
    x = some_points(family, 6)[:5]
    remember_blocks(family, x)
    joint, evidence = exact_posterior(family, x, partitions)
    first, second = np.triu_indices(5, 1)
    exact = np.exp(joint - evidence) @ (partitions[:, first] == partitions[:, second])
    fit = SAMPLERS[sampler](family, x, concentration=ALPHA, n_samples=n, rng=np.random.default_rng(1))
    sampled = fit.extra["samples"]
    together = (sampled[:, first] == sampled[:, second]).reshape(50, -1, 10).mean(axis=1)
    independent = np.sqrt(exact * (1.0 - exact) / n)  # a pair never seen together has no spread
    error = np.maximum(together.std(axis=0, ddof=1) / np.sqrt(50), independent)
    assert np.max(np.abs(together.mean(axis=0) - exact) / error) < t.isf(1e-4 / 2 / 10, 49)
    assert sampler == "blocked-gibbs" or fit.elbo <= evidence  # of blocked Gibbs it is of the truncated model


def test_variational_bound_is_below_the_exact_evidence(samplers, family):
    """And rises all the way; it is within five nats of the most probable partition's log joint."""
    x, partitions = some_points(family, 6)[:5], samplers.partitions(5)
    joint, evidence = exact_posterior(family, x, partitions)
    fit = fit_vdp(family, x, concentration=ALPHA, rng=np.random.default_rng(0))
    assert joint.max() - 5.0 < fit.elbo <= evidence
    assert np.all(np.diff(fit.elbo_history) > -1e-9)
