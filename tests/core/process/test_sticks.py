"""The label terms against integration over sticks, and the gain of a join against the terms before and after."""

import numpy as np
import pytest
from scipy import integrate
from scipy.special import betaln

from shoal.process import join_label_ceiling, join_label_gain, log_label_prior


def integrated(counts: list[float], concentration: float) -> float:
    """log of the label vector's probability, each stick integrated numerically under its Beta(1, alpha) prior."""
    total = 0.0
    for i, count in enumerate(counts):
        after = sum(counts[i + 1 :])
        value, _ = integrate.quad(
            lambda v, n=count, r=after: v**n * (1 - v) ** (r + concentration - 1) * concentration,
            0.0,
            1.0,
            epsabs=1e-13,
        )
        total += np.log(value)
    return total


@pytest.mark.parametrize("concentration", [1.0, 2.5])
@pytest.mark.parametrize("counts", [[3.0], [4.0, 2.0, 1.0], [2.5, 0.7, 0.3, 0.05], [1.0, 1.0, 1.0]])
def test_label_terms_are_what_integration_over_the_sticks_gives(counts: list[float], concentration: float) -> None:
    assert log_label_prior(np.array(counts), concentration) == pytest.approx(
        integrated(counts, concentration), abs=1e-9
    )


def test_labels_in_order_are_as_probable_as_drawing_sticks_says() -> None:
    # Draw sticks, take the probability of the labels 1 1 1 2 2 3: the mean over 200,000 draws, false alarm below 1e-6
    # at 5 deviations.
    rng = np.random.default_rng(5)
    sticks = rng.beta(1.0, 1.7, size=(200_000, 3))
    rest = np.cumprod(1 - sticks, axis=1)
    weights = sticks * np.concatenate([np.ones((len(sticks), 1)), rest[:, :-1]], axis=1)
    probability = (weights ** np.array([3, 2, 1])).prod(axis=1)
    error = probability.std() / np.sqrt(len(probability))
    assert abs(probability.mean() - np.exp(log_label_prior(np.array([1.0, 3.0, 2.0]), 1.7))) < 5 * error


@pytest.mark.parametrize("concentration", [0.01, 1.0, 30.0])
def test_the_telescoped_sum_is_the_sum_of_beta_functions(concentration: float) -> None:
    mass = np.sort(np.random.default_rng(0).gamma(0.3, 500.0, size=60))[::-1]
    after = np.concatenate([np.cumsum(mass[::-1])[::-1][1:], [0.0]])
    direct = np.sum(betaln(1 + mass, concentration + after) - betaln(1, concentration))
    assert log_label_prior(mass, concentration) == pytest.approx(direct, rel=1e-12)


def test_order_given_does_not_matter_and_the_descending_one_is_best() -> None:
    rng = np.random.default_rng(1)
    mass = np.array([5.0, 3.0, 1.0, 0.4])
    best = log_label_prior(mass, 1.3)
    for _ in range(10):
        shuffled = rng.permutation(mass)
        after = np.concatenate([np.cumsum(shuffled[::-1])[::-1][1:], [0.0]])
        assert log_label_prior(shuffled, 1.3) == pytest.approx(best, abs=1e-12)
        assert np.sum(betaln(1 + shuffled, 1.3 + after) - betaln(1, 1.3)) <= best + 1e-12


def test_empty_components_cost_nothing() -> None:
    mass = np.array([4.0, 0.25])
    assert log_label_prior(np.append(mass, [0.0, 0.0]), 0.7) == pytest.approx(log_label_prior(mass, 0.7), abs=1e-13)
    assert log_label_prior(np.zeros(0), 0.7) == 0.0


@pytest.mark.parametrize("concentration", [0.02, 1.0, 9.0])
@pytest.mark.parametrize("kind", ["spread", "ties", "light", "zeros"])
def test_gain_of_every_join_is_the_difference_of_the_terms(kind: str, concentration: float) -> None:
    rng = np.random.default_rng(3)
    mass = {
        "spread": rng.gamma(0.4, 300.0, size=25),
        "ties": np.repeat([7.0, 3.0, 1.0], 5),
        "light": rng.uniform(1e-6, 0.3, size=12),
        "zeros": np.array([0.0, 4.0, 0.0, 2.0, 1e-300, 0.0]),
    }[kind]
    i, j = np.triu_indices(len(mass), 1)
    expected = []
    for a, b in zip(i, j, strict=True):
        joined = np.append(np.delete(mass, [a, b]), mass[a] + mass[b])
        expected.append(log_label_prior(joined, concentration) - log_label_prior(mass, concentration))
    np.testing.assert_allclose(join_label_gain(mass, concentration, i, j), expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(join_label_gain(mass, concentration, j, i), expected, rtol=1e-9, atol=1e-9)
    assert np.all(join_label_ceiling(mass, concentration, i, j) >= np.array(expected) - 1e-9)


def test_gains_are_the_same_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    mass = np.random.default_rng(4).gamma(1.0, 10.0, size=40)
    i, j = np.triu_indices(40, 1)
    whole = join_label_gain(mass, 1.0, i, j)
    monkeypatch.setattr("shoal.process.sticks._CHUNK_ELEMENTS", 100)
    np.testing.assert_allclose(join_label_gain(mass, 1.0, i, j), whole, rtol=0, atol=1e-12)


def test_no_pairs_no_gains() -> None:
    none = np.zeros(0, dtype=np.int64)
    assert join_label_gain(np.array([1.0, 2.0]), 1.0, none, none).size == 0
