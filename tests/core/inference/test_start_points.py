"""Starts of a division: sides of an axis, and two means against rounds with distances one by one."""

import numpy as np
import pytest

from shoal.inference import start_points
from shoal.inference.start_points import (
    Cloud,
    about_mean,
    power_steps,
    principal_start,
    same_sides,
    starts_of,
    two_means,
    weighted_axis,
)


def lloyd(z: np.ndarray, share: np.ndarray, first: np.ndarray, second: np.ndarray, rounds: int) -> np.ndarray:
    """Lloyd's rounds, distances computed one by one."""
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
def test_two_means_are_drawn_and_moved_as_in_numpy(e: int, rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_points, "_TWO_MEANS_ROUNDS", rounds)
    rng = np.random.default_rng(e)
    for seed in range(40):
        places = 10.0 ** rng.normal(size=e) * (rng.normal(size=(60, e)) + 2.0 * rng.integers(2, size=60)[:, None])
        share = rng.random(60)
        share[:7] = 0.0  # never drawn
        share /= share.sum()
        kept = places.copy()
        z = (places - share @ places) / np.sqrt(share @ np.square(places - share @ places))
        first = z[drawn_as_numpy_draws(share, seed, 0)]
        second = z[drawn_as_numpy_draws(share * np.square(z - first).sum(axis=1), seed, 1)]
        found = two_means(*about_mean(Cloud(places, None, 3.0 * share)), np.random.default_rng(seed).random(2))
        np.testing.assert_array_equal(found, lloyd(z, share, first, second, rounds))
        np.testing.assert_array_equal(places, kept)


def test_starts_separate_two_groups_and_one_place_is_not_divided() -> None:
    rng = np.random.default_rng(0)
    side = np.repeat([0.0, 1.0], 40)
    places = rng.normal(size=(80, 3)) + 20.0 * side[:, None]
    found = starts_of(Cloud(places, None, rng.uniform(0.5, 1.0, 80)), rng)
    assert len(found) == 1, "both starts are the same division"
    assert same_sides(found[0], side)
    assert not two_means(*about_mean(Cloud(np.full((5, 2), 0.1), None, np.full(5, 0.7))), rng.random(2)).any()


def test_a_feature_that_is_constant_divides_nothing() -> None:
    rng = np.random.default_rng(1)
    places = np.column_stack([np.full(50, 0.3), rng.normal(size=50)])
    share, drawn = np.full(50, 0.02), np.array([0.1, 0.9])
    found = two_means(*about_mean(Cloud(places, None, share)), drawn)
    np.testing.assert_array_equal(found, two_means(*about_mean(Cloud(places[:, 1:], None, share)), drawn))
    assert 0.0 < found.mean() < 1.0


@pytest.mark.parametrize("d", [1, 7, 60])
def test_the_power_method_parts_two_groups_as_the_principal_axis_does(d: int) -> None:
    rng = np.random.default_rng(d)
    away = rng.normal(size=d)
    z = rng.integers(2, size=500)
    x = rng.normal(size=(500, d)) + np.outer(z, 8.0 * away / np.linalg.norm(away))
    cloud = Cloud(x, None, rng.uniform(0.5, 1.0, 500))
    middle = np.average(x, axis=0, weights=cloud.weight)
    axis = np.linalg.svd((x - middle) * np.sqrt(cloud.weight)[:, None])[2][0]
    assert same_sides(principal_start(cloud), ((x - middle) @ axis > 0.0).astype(float))
    assert np.mean(principal_start(cloud, 30) == principal_start(cloud)) in (0.0, 1.0)
    assert same_sides(principal_start(cloud, 30), z.astype(float))
    assert principal_start(Cloud(np.ones((5, d)), None, np.ones(5)), 30).sum() == 0.0


@pytest.mark.parametrize("d", [32, 33, 100])
def test_the_steps_that_splits_use_find_an_axis_that_is_little_longer_than_the_others(d: int) -> None:
    """A deviation of 1.6 along the axis and 1 across. With two steps, the cosine was .55 to .99 in 100 features."""
    rng = np.random.default_rng(d)
    axes = np.linalg.qr(rng.normal(size=(d, d)))[0]
    x = rng.normal(size=(1_500, d)) * np.where(np.arange(d) == 0, 1.6, 1.0) @ axes
    share, difference = about_mean(Cloud(x, None, np.ones(1_500)))
    found = weighted_axis(None, share, difference, power_steps(d))
    first = np.linalg.svd(difference, full_matrices=False)[2][0]
    assert abs(found @ first) / np.linalg.norm(found) > 0.999


@pytest.mark.parametrize("n_rows", [9, 29, 30, 60])
def test_few_rows_of_many_features_are_parted_as_their_principal_axis_does(n_rows: int) -> None:
    """With fewer rows than half the features no covariance is formed; 29 and 30 rows of 60 stand on either side."""
    rng = np.random.default_rng(n_rows)
    away, z = rng.normal(size=60), np.arange(n_rows) % 2
    x = rng.normal(size=(n_rows, 60)) + np.outer(z, 30.0 * away / np.linalg.norm(away))
    x[:, 7] = 3.0
    weight = rng.uniform(0.5, 1.0, n_rows)
    share, difference = about_mean(Cloud(x, None, weight))
    weighted = difference * np.sqrt(share)[:, None]
    axis = start_points.power_axis(weighted.T @ weighted, 30)
    found = start_points.power_axis_of_rows(weighted, 30)
    np.testing.assert_allclose(found, axis * np.sign(axis @ found), atol=1e-12)
    first = np.linalg.svd(weighted)[2][0]
    np.testing.assert_allclose(found, first * np.sign(first @ found), atol=1e-8)
    for size in (1e-150, 1.0, 1e100):
        assert same_sides(principal_start(Cloud(size * x, None, weight), 30), z.astype(float))
    assert principal_start(Cloud(np.ones((5, 60)), None, np.ones(5)), 30).sum() == 0.0


@pytest.mark.parametrize("size", [1e-150, 1e-60, 1.0, 1e76, 1e100])
def test_axes_are_found_at_any_scale(size: float) -> None:
    """Steps that were scaled to length one each overflowed from coordinates of 1e76 on."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 40)) + np.outer(rng.integers(2, size=200), 9.0 * np.ones(40))
    plain = principal_start(Cloud(x, None, np.ones(200)))
    assert same_sides(principal_start(Cloud(size * x, None, np.ones(200)), 30), plain)


def test_the_scatter_within_groups_turns_the_axis() -> None:
    """ERRATA 1.17: of four groups on a line, each spread across it by more than they lie apart."""
    location = np.stack([np.arange(4.0), np.array([0.1, -0.1, 0.1, -0.1])], axis=1)
    spread = np.repeat(np.diag([0.0, 50.0])[None], 4, axis=0)
    assert same_sides(principal_start(Cloud(location, None, np.ones(4))), np.array([0.0, 0.0, 1.0, 1.0]))
    assert same_sides(principal_start(Cloud(location, spread, np.ones(4))), np.array([1.0, 0.0, 1.0, 0.0]))
