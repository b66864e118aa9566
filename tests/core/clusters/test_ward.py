"""Ward's tree over points with masses, against SciPy's over points repeated as often as their mass says."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.cluster.hierarchy import fcluster, is_monotonic, is_valid_linkage, ward
from sklearn.metrics import adjusted_rand_score

from shoal.clusters.ward import weighted_ward


def drawn(seed: int, n: int = 14, d: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return 5.0 * rng.standard_normal((n, d)), rng.integers(1, 7, n).astype(float)


@pytest.mark.parametrize("seed", range(8))
def test_points_of_mass_one_are_scipys(seed: int) -> None:
    x, _ = drawn(seed, 30)
    expected, found = ward(x), weighted_ward(x, np.ones(30))
    assert_array_equal(found[:, [0, 1, 3]], expected[:, [0, 1, 3]])
    assert_allclose(found[:, 2], expected[:, 2], rtol=1e-10)


@pytest.mark.parametrize("seed", range(8))
def test_a_mass_counts_as_so_many_points_at_one_place(seed: int) -> None:
    """Copies join at height zero first, so the last K - 1 joins of the repeated points are those of the masses."""
    x, mass = drawn(seed)
    copies = np.repeat(np.arange(14), mass.astype(int))
    expected, found = ward(x[copies]), weighted_ward(x, mass)
    assert_allclose(found[:, 2], expected[-13:, 2], rtol=1e-10)
    for k in range(1, 15):
        here = fcluster(found, k, "maxclust")[copies]
        assert adjusted_rand_score(here, fcluster(expected, k, "maxclust")) == 1.0


@pytest.mark.parametrize("seed", range(4))
def test_the_joins_add_up_to_the_sum_of_squares(seed: int) -> None:
    x, mass = drawn(seed, 40)
    about = x - np.average(x, axis=0, weights=mass)
    tree = weighted_ward(x, mass)
    assert 0.5 * np.sum(tree[:, 2] ** 2) == pytest.approx(mass @ np.sum(about**2, axis=1), rel=1e-12)
    assert is_valid_linkage(tree)
    assert is_monotonic(tree)


def test_ties_and_copies_give_a_valid_tree_and_the_same_each_time() -> None:
    grid = np.stack(np.meshgrid(np.arange(5.0), np.arange(5.0)), axis=-1).reshape(-1, 2)
    x = np.concatenate([grid, grid, grid[:3]])
    tree = weighted_ward(x, np.ones(len(x)))
    assert is_valid_linkage(tree)
    assert is_monotonic(tree)
    assert np.count_nonzero(tree[:, 2] < 1e-6) == 28
    assert_array_equal(weighted_ward(x.copy(), np.ones(len(x))), tree)


def test_a_shift_and_a_common_factor_of_the_masses_change_no_join() -> None:
    x, mass = drawn(3, 25)
    tree = weighted_ward(x, mass)
    other = weighted_ward(x + 1e6, 9.0 * mass)
    assert_array_equal(other[:, [0, 1, 3]], tree[:, [0, 1, 3]])
    assert_allclose(other[:, 2], 3.0 * tree[:, 2], rtol=1e-6)


def test_components_without_mass_have_a_place() -> None:
    x, mass = drawn(4)
    mass[[2, 5]] = 0.0
    tree = weighted_ward(x, mass)
    assert is_valid_linkage(tree)
    assert np.isfinite(tree).all()
    kept = np.flatnonzero(mass > 0)
    assert_allclose(np.sort(tree[:, 2])[2:], weighted_ward(x[kept], mass[kept])[:, 2], rtol=1e-5)
    assert is_valid_linkage(weighted_ward(x, np.zeros(14)))


@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_points_have_no_join(n: int) -> None:
    assert weighted_ward(np.zeros((n, 2)), np.ones(n)).shape == (0, 4)
