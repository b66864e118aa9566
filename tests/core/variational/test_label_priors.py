"""The label priors against their definitions, the papers' numbers as put right, and brute force over orders."""

from itertools import permutations, product

import numpy as np
import pytest
from scipy.special import gammaln

from shoal.points.arrays import Array
from shoal.variational.label_priors import Labels, Sticks, Symmetric, best_stick_order, plugged_in

ALPHAS = (0.3, 1.0, 4.0)


def log_joint(labels: Labels, counts: Array) -> float:
    """log p(z) of label counts, as the library has it."""
    counts = np.asarray(counts, dtype=float)
    return plugged_in(labels.terms(np.zeros(counts.size), counts.sum()), counts)


def log_sticks(counts: Array, alpha: float) -> float:
    """ERRATA 2.1, factor by factor, nothing cancelled."""
    value = 0.0
    for i in range(len(counts) - 1):
        own, later = counts[i], sum(counts[i + 1 :])
        value += np.log(alpha) + gammaln(1 + own) + gammaln(alpha + later) - gammaln(1 + alpha + own + later)
    return float(value)


def log_symmetric(counts: Array, alpha: float) -> float:
    share, n = alpha / len(counts), sum(counts)
    value = gammaln(alpha) - gammaln(alpha + n)
    return float(value + sum(gammaln(share + m) - gammaln(share) for m in counts))


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("counts", [[4], [3, 2], [0, 0, 5], [3, 2, 1], [1, 0, 4, 2, 0]])
def test_terms_are_the_models_log_probability(counts: list[int], alpha: float) -> None:
    assert log_joint(Sticks(alpha), np.array(counts)) == pytest.approx(log_sticks(np.array(counts), alpha), abs=1e-12)
    assert log_joint(Symmetric(alpha), np.array(counts)) == pytest.approx(
        log_symmetric(np.array(counts), alpha), abs=1e-12
    )


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("model", [Sticks, Symmetric])
@pytest.mark.parametrize("n_labels", [1, 2, 3, 4])
def test_label_vectors_sum_to_one(model: type[Labels], n_labels: int, alpha: float) -> None:
    vectors = product(range(n_labels), repeat=5)
    values = [log_joint(model(alpha), np.bincount(z, minlength=n_labels)) for z in vectors]
    assert np.exp(values).sum() == pytest.approx(1.0, abs=1e-12)


def test_conditional_of_the_last_label_has_no_factor_of_its_own() -> None:
    """ERRATA 2.2: counts 3, 2, 1, alpha 1.5."""
    weights = np.exp(Sticks(1.5).log_mean_weight(np.array([3.0, 2.0, 1.0])))
    np.testing.assert_allclose(weights, [0.471, 0.289, 0.241], atol=6e-4)
    assert weights.sum() == pytest.approx(1.0, abs=1e-14)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("model", [Sticks, Symmetric])
def test_mean_weights_are_ratios_of_joints(model: type[Labels], alpha: float) -> None:
    counts = np.array([3.0, 0.0, 2.0, 5.0])
    ratios = [log_joint(model(alpha), counts + np.eye(4)[i]) - log_joint(model(alpha), counts) for i in range(4)]
    np.testing.assert_allclose(model(alpha).log_mean_weight(counts), ratios, atol=1e-12)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("model", [Sticks, Symmetric])
@pytest.mark.parametrize("mass", [[1.5], [2.5, 0.25], [0.2, 3.1, 1.7, 0.9, 2.2]])
def test_expected_log_weights_are_the_gradient_of_the_bound(
    model: type[Labels], mass: list[float], alpha: float
) -> None:
    """The bound's label term is a log normaliser: its slope in a count is the expected log weight."""
    step = 1e-5
    at = np.array(mass)
    slope = [
        (log_joint(model(alpha), at + step * e) - log_joint(model(alpha), at - step * e)) / (2 * step)
        for e in np.eye(len(mass))
    ]
    np.testing.assert_allclose(model(alpha).expected_log_weight(at), slope, atol=1e-8)


def test_counts_that_are_given_add_to_those_of_the_points() -> None:
    base, mass = np.array([0.5, 2.0, 1.0, 0.0]), np.array([1.0, 0.0, 2.0, 0.5])
    for labels in (Sticks(2.0), Symmetric(2.0)):
        assert plugged_in(labels.terms(base, mass.sum()), mass) == pytest.approx(
            log_joint(labels, base + mass), abs=1e-12
        )


def test_best_order_above_one_is_not_descending() -> None:
    """ERRATA 2.11: counts (5, 3, 1), alpha 3."""
    counts = np.array([5.0, 3.0, 1.0])
    order = best_stick_order(counts, 3.0)
    np.testing.assert_array_equal(counts[order], [3.0, 1.0, 5.0])
    assert log_joint(Sticks(3.0), counts[order]) == pytest.approx(-9.6703, abs=1e-4)
    assert log_joint(Sticks(3.0), counts) == pytest.approx(-11.3649, abs=1e-4)


@pytest.mark.parametrize("alpha", [0.05, 0.3, 1.0, 1.01, 3.0, 4.0, 30.0])
def test_best_order_beats_every_permutation(alpha: float) -> None:
    rng = np.random.default_rng(5)
    for _ in range(12):
        mass = rng.gamma(0.5, 4.0, size=rng.integers(1, 6))
        best = max(log_joint(Sticks(alpha), mass[list(order)]) for order in permutations(range(mass.size)))
        assert log_joint(Sticks(alpha), mass[best_stick_order(mass, alpha)]) == pytest.approx(best, abs=1e-11)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_best_order_keeps_what_is_in_order(alpha: float) -> None:
    mass = np.random.default_rng(1).gamma(1.0, 3.0, size=40)
    ordered = mass[best_stick_order(mass, alpha)]
    np.testing.assert_array_equal(best_stick_order(ordered, alpha), np.arange(40))
    np.testing.assert_array_equal(best_stick_order(np.zeros(5), alpha), np.arange(5))
