"""Matching of components between two labelings of the same points, by the mass that they share."""

from typing import NamedTuple

import numpy as np

from shoal.points.arrays import Array, IntArray


class Matching(NamedTuple):
    """Matched rows of an old and a new mixture."""

    old_of_new: IntArray  # (K_new,) the old row whose id each new row inherits, -1: it gets a new id
    new_of_old: IntArray  # (K_old,) inverse, -1: the old one vanished
    parent_of_new: IntArray  # (K_new,) the old row with the largest shared mass, -1: none
    heir_of_old: IntArray  # (K_old,) the new row with the largest shared mass, -1: none


def shared_mass(old: IntArray, n_old: int, new: IntArray, n_new: int) -> Array:
    """(K_old, K_new) shared points of two hard labelings (N,) of the same points by row; -1 is no row."""
    both = (old >= 0) & (new >= 0)
    counts = np.bincount(old[both] * n_new + new[both], minlength=n_old * n_new)
    return counts.reshape(n_old, n_new).astype(np.float64)


def match(shared: Array) -> Matching:
    """Match old rows with new ones, one to one, so that the total shared mass is largest.

    Pairs that share no mass are not matched. `shared` (K_old, K_new) >= 0: `shared_mass`, or old_resp' new_resp of soft
    labelings. Ties are resolved by SciPy's solver, a function of the matrix alone. Cost about K^3.
    """
    n_old, n_new = shared.shape
    from scipy.optimize import linear_sum_assignment  # 0.2 s to import, not needed at a start

    rows, columns = linear_sum_assignment(shared, maximize=True)
    real = shared[rows, columns] > 0.0
    rows, columns = rows[real], columns[real]
    old_of_new, new_of_old = np.full(n_new, -1, dtype=np.int64), np.full(n_old, -1, dtype=np.int64)
    old_of_new[columns], new_of_old[rows] = rows, columns
    return Matching(old_of_new, new_of_old, _largest(shared.T), _largest(shared))


def carried_ids(matching: Matching, old_ids: IntArray, next_id: int) -> tuple[IntArray, int]:
    """Ids (K_new,) of the new rows, and the next free id: matched rows inherit ids, others get new ones in order."""
    fresh = matching.old_of_new < 0
    ids = np.empty(fresh.size, dtype=np.int64)
    ids[~fresh] = old_ids[matching.old_of_new[~fresh]]
    ids[fresh] = next_id + np.arange(int(fresh.sum()))
    return ids, next_id + int(fresh.sum())


def _largest(shared: Array) -> IntArray:
    """Column of the largest element of each row, -1 where the row is zero."""
    if shared.shape[1] == 0:
        return np.full(shared.shape[0], -1, dtype=np.int64)
    best: IntArray = shared.argmax(axis=1).astype(np.int64)
    best[shared[np.arange(len(best)), best] <= 0.0] = -1
    return best
