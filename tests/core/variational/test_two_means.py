"""Rounds of two-means against NumPy's, and what they leave alone."""

import numpy as np
import pytest

from shoal.variational.splits import Part, _drawn, two_means_start
from shoal.variational.two_means_kernel import two_means_rounds


def in_numpy(z: np.ndarray, share: np.ndarray, first: np.ndarray, second: np.ndarray, rounds: int) -> np.ndarray:
    """Lloyd's rounds, distances worked out one by one."""
    side = np.zeros(len(z), dtype=bool)
    for done in range(rounds):
        before = side
        side = np.linalg.norm(z - second, axis=1) < np.linalg.norm(z - first, axis=1)
        if side.all() or not side.any() or (done > 0 and np.array_equal(before, side)):
            break
        first = np.average(z[~side], axis=0, weights=share[~side])
        second = np.average(z[side], axis=0, weights=share[side])
    return side.astype(float)


@pytest.mark.parametrize("rounds", [1, 2, 8])
@pytest.mark.parametrize("e", [1, 2, 9])
def test_rounds_are_lloyd_s(e: int, rounds: int) -> None:
    rng = np.random.default_rng(e)
    for _ in range(20):
        z, share = rng.normal(size=(60, e)) + 2.0 * rng.integers(2, size=60)[:, None], rng.random(60)
        share /= share.sum()
        first, second = (z[i] for i in rng.choice(60, 2, replace=False))
        kept = z.copy()
        found = two_means_rounds(z, share, first, second, rounds, 1e-9)
        np.testing.assert_array_equal(found, in_numpy(kept, share, first.copy(), second.copy(), rounds))
        np.testing.assert_array_equal(z, kept)  # the means are rows of it


def test_a_start_tells_two_groups_apart_and_one_place_is_not_divided() -> None:
    rng = np.random.default_rng(0)
    side = np.repeat([0.0, 1.0], 40)
    places = rng.normal(size=(80, 3)) + 20.0 * side[:, None]
    found = two_means_start(Part(np.empty((0, 0)), places, None, rng.uniform(0.5, 1.0, 80)), rng)
    assert np.array_equal(found, side) or np.array_equal(found, 1.0 - side)
    same = two_means_start(Part(np.empty((0, 0)), np.ones((5, 2)), None, np.ones(5)), rng)
    assert not same.any()


def test_places_are_drawn_as_numpy_draws_them() -> None:
    ours, theirs = np.random.default_rng(5), np.random.default_rng(5)
    for m in (1, 2, 7, 300):
        weight = ours.random(m) * (theirs.random(m) < 2.0)  # both move on alike
        weight[m // 2 :] *= 3.0
        for _ in range(200):
            assert _drawn(weight, ours) == theirs.choice(m, p=weight / weight.sum())
