"""Truncation-free variational inference: its local step, its bound, and what it finds."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from scipy.stats import chi2
from sklearn.metrics import adjusted_rand_score

from shoal import DPMixture, SettingError
from shoal.errors import NoPointsError
from shoal.families import FAMILIES, KnownCovariance, NormalInverseWishart, is_conjugate
from shoal.sampling import component_stats, log_joint
from shoal.variational.tfv import Globals, Steps, divide, draw_labels, fit_tfv, log_stick_weights, seat

PRIOR = KnownCovariance([0.0, 0.0], 20.0, 1.0)
FAR = np.array([[0, 0], [9, 0], [0, 9], [9, 9]])


def groups(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    z = rng.integers(4, size=n)
    return FAR[z] + rng.normal(size=(n, 2)), z


def partitions(n: int) -> list[list[int]]:
    found = [[]]
    for _ in range(n):
        found = [[*labels, k] for labels in found for k in range(max(labels, default=-1) + 2)]
    return found


def test_weights_are_those_of_free_sticks() -> None:
    """Monte Carlo over the sticks, Beta(1 + n_k, alpha + n_{>k}), within 4.5 standard errors."""
    mass, alpha = np.array([5.0, 2.5, 0.3]), 1.7
    rng = np.random.default_rng(1)
    v = rng.beta(1.0 + mass, alpha + np.array([2.8, 0.3, 0.0]), size=(40_000, 3))
    left = np.cumprod(1.0 - v, axis=1)
    pi = np.column_stack([v * np.column_stack([np.ones(len(v)), left[:, :2]]), left[:, 2]])
    ours = np.exp(log_stick_weights(mass, alpha))
    assert np.all(np.abs(pi.mean(axis=0) - ours) < 4.5 * pi.std(axis=0) / 200)
    assert ours.sum() == pytest.approx(1.0, abs=1e-14)
    assert_allclose(log_stick_weights(np.zeros(0), alpha), [0.0])


def test_points_beyond_sit_as_in_the_restaurant() -> None:
    """Five points without components: their partition has the law of one point drawn given those before.

    Chi-squared over the 52 partitions, cells below five joined; false alarm 1e-4.
    """
    x, runs = groups(5, seed=3)[0] * 0.2, 300
    every = partitions(5)
    place = {tuple(labels): row for row, labels in enumerate(every)}
    law = np.empty(len(every))
    for row, labels in enumerate(every):
        total = 0.0
        for i in range(5):
            resp = (np.array(labels[:i], dtype=int)[:, None] == np.arange(max(labels[:i], default=-1) + 2)) * 1.0
            stats = PRIOR.suffstats(x[:i], resp)
            weight = np.log(np.append(stats[0][:-1], 1.3))
            log_p = weight + PRIOR.log_predictive(PRIOR.posterior(stats), x[i : i + 1])[0]
            total += log_p[labels[i]] - logsumexp(log_p)
        law[row] = np.exp(total)
    assert law.sum() == pytest.approx(1.0)
    counts, rng = np.zeros(len(every)), np.random.default_rng(4)
    for _ in range(runs):
        counts[place[tuple(seat(PRIOR, 1.3, x, rng).tolist())]] += 1
    expected = runs * law
    rare = expected < 5.0
    observed, expected = np.append(counts[~rare], counts[rare].sum()), np.append(expected[~rare], expected[rare].sum())
    assert chi2.sf(float(((observed - expected) ** 2 / expected).sum()), observed.size - 1) > 1e-4


def test_local_step_is_weight_times_predictive() -> None:
    """By the family's own functions, one point at a time; draws follow it."""
    x, z = groups(60)
    found = Globals(PRIOR, 2.0, PRIOR.suffstats(x, np.eye(4)[z]))
    mass = found.stats[0]
    assert_array_equal(mass, np.sort(mass)[::-1])
    point = np.array([[4.0, 0.5]])
    by_hand = [
        np.exp(log_stick_weights(mass, 2.0)[k])
        * np.exp(PRIOR.log_predictive(PRIOR.posterior(type(found.stats)(*(f[k : k + 1] for f in found.stats))), point))
        for k in range(4)
    ]
    by_hand = np.ravel(by_hand)
    assert_allclose(divide(found, point)[0], by_hand / by_hand.sum(), rtol=1e-10)
    new = np.exp(log_stick_weights(mass, 2.0)[-1] + PRIOR.log_predictive(PRIOR.posterior(PRIOR.empty_stats(1)), point))
    p = np.append(by_hand, new)
    p /= p.sum()
    drawn = draw_labels(found, np.repeat(point, 2_000, axis=0), np.random.default_rng(0))
    share = np.bincount(np.minimum(drawn, 4), minlength=5) / 2_000
    assert np.all(np.abs(share - p) < 4.5 * np.sqrt(p * (1 - p) / 2_000) + 1e-12)


def test_a_step_of_one_is_the_statistics_of_the_batch_scaled_up() -> None:
    x, z = groups(40)
    found = Globals(PRIOR, 1.0, PRIOR.empty_stats(0))
    found.move(x, z, 400, 1.0)
    exact = PRIOR.scale(component_stats(PRIOR, x, z), 10.0)
    order = np.argsort(-exact[0], kind="stable")
    for ours, theirs in zip(found.stats, exact, strict=True):
        assert_allclose(ours, theirs[order], rtol=1e-12)
    found.move(x[:5], np.zeros(5, dtype=np.int64), 400, 0.25)
    assert found.stats[0].sum() == pytest.approx(400.0)


def test_steps_meet_the_conditions_of_a_stochastic_gradient() -> None:
    sizes = [Steps().size(t) for t in range(1, 50)]
    assert sizes == sorted(sizes, reverse=True)
    assert 0.0 < sizes[-1] < sizes[0] <= 1.0
    assert 0.5 < Steps().forgetting <= 1.0


def test_bound_is_below_the_evidence_and_exact_for_one_hot() -> None:
    x = groups(6, seed=5)[0] * 0.25
    evidence = logsumexp([log_joint(PRIOR, 1.2, component_stats(PRIOR, x, np.array(p))) for p in partitions(6)])
    fit = fit_tfv(PRIOR, x, concentration=1.2, rng=np.random.default_rng(0))
    assert np.all(fit.elbo_history < evidence)
    assert fit.elbo > evidence - 5.0


@pytest.mark.parametrize("family", [PRIOR, NormalInverseWishart([4.5, 4.5], 0.05, 4.0, np.eye(2))])
@pytest.mark.short_form("family0")
def test_groups_that_are_there_are_found_whatever_their_number(family: Any) -> None:
    """Most seeds end with all four; one pass of a stochastic gradient may leave one split or joined."""
    x, z = groups(2000)
    scores = []
    for seed in range(3):
        fit = fit_tfv(family, x, rng=np.random.default_rng(seed))
        assert fit.resp is not None
        scores.append(adjusted_rand_score(z, fit.resp.argmax(axis=1)))
        assert fit.stats[0].sum() == pytest.approx(2000.0)
        assert np.exp(fit.log_weight).sum() + np.exp(fit.log_new_weight) == pytest.approx(1.0)
        assert_array_equal(fit.stats[0], np.sort(fit.stats[0])[::-1])
    assert np.median(scores) > 0.95


@pytest.mark.parametrize("name", [name for name, kind in FAMILIES.items() if is_conjugate(kind)])
def test_every_conjugate_family(name: str) -> None:
    family, rng = FAMILIES[name].weak(3), np.random.default_rng(0)
    x = rng.poisson(2.0, size=(50, 3)).astype(float)
    x = np.minimum(x, 1.0) if name == "bernoulli" else x
    fit = fit_tfv(family, family.domain.convert(x), max_iter=3, batch_size=16, rng=rng)
    assert np.isfinite(fit.elbo)
    assert len(fit.elbo_history) == 4


def test_settings() -> None:
    x, z = groups(50)
    started = fit_tfv(PRIOR, x, max_iter=0, resp_init=np.eye(4)[z], rng=np.random.default_rng(0))
    assert (
        started.elbo
        == fit_tfv(PRIOR, x, max_iter=3, resp_init=np.eye(4)[z], rng=np.random.default_rng(0)).elbo_history[0]
    )
    assert len(started.log_weight) == 4
    fitted = DPMixture(PRIOR, "tfv", max_iter=4, batch_size=7, random_state=0).fit(x)
    assert fitted.n_iter_ == 4
    assert not fitted.converged_
    with pytest.raises(SettingError, match="batch_size is 0"):
        DPMixture(PRIOR, "tfv", batch_size=0).fit(x)
    with pytest.raises(SettingError, match="tol is set, but method 'tfv'"):
        DPMixture(PRIOR, "tfv", tol=1e-3).fit(x)
    with pytest.raises(NoPointsError):
        fit_tfv(PRIOR, x[:0], rng=np.random.default_rng(0))
