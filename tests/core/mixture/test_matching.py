"""Who is who between two labelings: relabelled, merged, split, vanished and new."""

import itertools

import numpy as np
import pytest

from shoal.mixture import carried_ids, match, shared_mass


def test_shared_mass_counts_pairs_of_labels() -> None:
    old, new = np.array([0, 0, 1, 2, 2, -1, 1]), np.array([1, 1, 0, 0, 1, 0, -1])
    expected = np.zeros((3, 2))
    for a, b in zip(old, new, strict=True):
        if a >= 0 and b >= 0:
            expected[a, b] += 1
    np.testing.assert_array_equal(shared_mass(old, 3, new, 2), expected)


@pytest.mark.parametrize("seed", range(5))
def test_a_relabelling_is_found_out(seed: int) -> None:
    rng = np.random.default_rng(seed)
    old = rng.integers(8, size=400)
    relabel = rng.permutation(8)
    new = relabel[old]
    noisy = np.where(rng.uniform(size=400) < 0.1, rng.integers(8, size=400), new)
    matching = match(shared_mass(old, 8, noisy, 8))
    np.testing.assert_array_equal(matching.new_of_old, relabel)
    np.testing.assert_array_equal(matching.old_of_new[relabel], np.arange(8))
    ids, next_id = carried_ids(matching, np.arange(100, 108), 200)
    np.testing.assert_array_equal(ids[relabel], np.arange(100, 108))
    assert next_id == 200


def test_of_two_that_merged_the_larger_goes_on_and_the_other_has_an_heir() -> None:
    old = np.repeat([0, 1, 2], [5, 9, 4])
    new = np.repeat([0, 0, 1], [5, 9, 4])
    matching = match(shared_mass(old, 3, new, 2))
    assert matching.new_of_old.tolist() == [-1, 0, 1]
    assert matching.successor_of_old.tolist() == [0, 0, 1]
    assert carried_ids(matching, np.array([7, 8, 9]), 10) == (pytest.approx(np.array([8, 9])), 10)


def test_of_the_parts_of_a_split_the_larger_keeps_the_id_and_the_other_knows_its_parent() -> None:
    old = np.repeat([0, 1], [10, 6])
    new = np.repeat([2, 0, 1], [3, 7, 6])
    matching = match(shared_mass(old, 2, new, 3))
    assert matching.old_of_new.tolist() == [0, 1, -1]
    assert matching.parent_of_new.tolist() == [0, 1, 0]
    ids, next_id = carried_ids(matching, np.array([4, 5]), 6)
    assert ids.tolist() == [4, 5, 6]
    assert next_id == 7


def test_what_shares_nothing_is_not_matched() -> None:
    matching = match(np.array([[0.0, 0.0], [0.0, 3.0]]))
    assert matching.new_of_old.tolist() == [-1, 1]
    assert matching.old_of_new.tolist() == [-1, 1]
    assert matching.successor_of_old.tolist() == [-1, 1]
    assert matching.parent_of_new.tolist() == [-1, 1]


@pytest.mark.parametrize(("n_old", "n_new"), [(0, 3), (3, 0), (0, 0)])
def test_an_empty_side_matches_nothing(n_old: int, n_new: int) -> None:
    matching = match(np.zeros((n_old, n_new)))
    assert matching.old_of_new.tolist() == [-1] * n_new
    assert matching.new_of_old.tolist() == [-1] * n_old
    ids, next_id = carried_ids(matching, np.arange(n_old), 50)
    assert ids.tolist() == list(range(50, 50 + n_new))
    assert next_id == 50 + n_new


@pytest.mark.parametrize("seed", range(5))
def test_the_mass_in_common_is_the_largest_there_is(seed: int) -> None:
    shared = np.random.default_rng(seed).gamma(0.5, size=(4, 5))
    matching = match(shared)
    rows = np.flatnonzero(matching.new_of_old >= 0)
    found = shared[rows, matching.new_of_old[rows]].sum()
    best = max(sum(shared[i, c] for i, c in enumerate(columns)) for columns in itertools.permutations(range(5), 4))
    assert found == pytest.approx(best, rel=1e-12)
