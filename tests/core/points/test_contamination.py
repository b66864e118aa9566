"""The test for absurd values: its false rate under the heaviest tail allowed, and its power beside."""

import numpy as np
import pytest

from shoal.points.contamination import absurd_values


def test_heaviest_tail_is_rarely_called_absurd():
    """Warm-ups of Student t with 2 degrees of freedom: at most 1e-3 of them, so at most 4 of 400 but once in 5,000."""
    rng = np.random.default_rng(0)
    found = sum(absurd_values(rng.standard_t(2.0, (1_000, 2))).any() for _ in range(400))
    assert found <= 4


@pytest.mark.parametrize("draw", ["normal", "lognormal", "exponential", "clusters"])
def test_usual_rows_hold_nothing_absurd(draw):
    rng = np.random.default_rng(1)
    for _ in range(50):
        if draw == "clusters":
            x = rng.normal(0.0, 50.0, (12, 3))[rng.integers(12, size=1_000)] + rng.normal(size=(1_000, 3))
        else:
            x = getattr(rng, draw)(size=(1_000, 3))
        assert not absurd_values(x).any()


@pytest.mark.parametrize("size", [1e6, 1e4])
@pytest.mark.parametrize("n_absurd", [1, 5, 50])
def test_absurd_values_are_found_and_no_others(n_absurd, size):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(1_000, 4))
    rows = rng.choice(1_000, n_absurd, replace=False)
    x[rows, 2] = size * (1.0 + rng.random(n_absurd)) * rng.choice([-1.0, 1.0], n_absurd)
    found = absurd_values(x)
    assert found[rows, 2].all()
    assert found.sum() == n_absurd


def test_more_than_a_tenth_is_a_cluster():
    x = np.concatenate([np.random.default_rng(3).normal(size=(850, 1)), np.full((150, 1), 1e6)])
    assert not absurd_values(x).any()


def test_feature_that_is_constant_but_for_some_values_has_no_scale():
    x = np.zeros((1_000, 1))
    x[7] = 1e6
    assert not absurd_values(x).any()


def test_masses_count_as_repetitions():
    rng = np.random.default_rng(4)
    values, mass = np.append(rng.normal(size=40), 1e7)[:, None], np.append(rng.integers(1, 50, 40), 1.0)
    found = absurd_values(values, mass.astype(float))
    np.testing.assert_array_equal(found.ravel(), np.arange(41) == 40)
    repeated = absurd_values(np.repeat(values, mass.astype(int), axis=0))
    np.testing.assert_array_equal(repeated.ravel(), np.repeat(found.ravel(), mass.astype(int)))
