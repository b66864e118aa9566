"""Two-means against NumPy's: the places that are drawn, and the rounds from there."""

import numpy as np
import pytest
from shoal.variational.splits import Part, starts_of
from shoal.variational.two_means_kernel import two_means


def lloyd(z: np.ndarray, share: np.ndarray, first: np.ndarray, second: np.ndarray, rounds: int) -> np.ndarray:
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


def drawn_as_numpy_draws(weight: np.ndarray, seed: int, skip: int) -> int:
    """By `choice`, which takes one number from the generator."""
    rng = np.random.default_rng(seed)
    rng.random(skip)
    return int(rng.choice(len(weight), p=weight / weight.sum()))


@pytest.mark.parametrize("rounds", [1, 2, 8])
@pytest.mark.parametrize("e", [1, 2, 9])
def test_two_means_are_drawn_and_moved_as_in_numpy(e: int, rounds: int) -> None:
    rng = np.random.default_rng(e)
    for seed in range(40):
        places = 10.0 ** rng.normal(size=e) * (rng.normal(size=(60, e)) + 2.0 * rng.integers(2, size=60)[:, None])
        share = rng.random(60)
        share[:7] = 0.0  # never drawn
        share /= share.sum()
        middle, kept = share @ places, places.copy()
        z = (places - middle) / np.sqrt(share @ np.square(places - middle))
        first = z[drawn_as_numpy_draws(share, seed, 0)]
        second = z[drawn_as_numpy_draws(share * np.square(z - first).sum(axis=1), seed, 1)]
        found = two_means(places, share, middle, np.random.default_rng(seed).random(2), rounds, 1e-9)
        np.testing.assert_array_equal(found, lloyd(z, share, first, second, rounds))
        np.testing.assert_array_equal(places, kept)


def test_starts_tell_two_groups_apart_and_one_place_is_not_divided() -> None:
    rng = np.random.default_rng(0)
    side = np.repeat([0.0, 1.0], 40)
    places = rng.normal(size=(80, 3)) + 20.0 * side[:, None]
    for found in starts_of(Part(np.empty((0, 0)), places, None, rng.uniform(0.5, 1.0, 80)), rng):
        assert np.array_equal(found, side) or np.array_equal(found, 1.0 - side)
    _, same = starts_of(Part(np.empty((0, 0)), np.full((5, 2), 0.1), None, np.full(5, 0.7)), rng)
    assert not same.any()


def test_a_feature_that_is_constant_divides_nothing() -> None:
    rng = np.random.default_rng(1)
    places = np.column_stack([np.full(50, 0.3), rng.normal(size=50)])
    share, drawn = np.full(50, 0.02), np.array([0.1, 0.9])
    found = two_means(places, share, share @ places, drawn, 8, 1e-9)
    np.testing.assert_array_equal(found, two_means(places[:, 1:].copy(), share, share @ places[:, 1:], drawn, 8, 1e-9))
    assert 0.0 < found.mean() < 1.0
