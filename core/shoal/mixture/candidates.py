"""Which pairs of components are worth valuing for a merge: near ones and overlapping ones, at most four a component."""

from typing import Any

import numpy as np

from shoal.families import AnyFamily
from shoal.points.arrays import Array, BoolArray, IntArray

_CHUNK_ROWS = 256


def candidate_pairs(
    family: AnyFamily, stats: Any, pairs: Array, fresh: BoolArray | None = None
) -> tuple[IntArray, IntArray]:
    """Rows (i, j), i < j, each pair once, in order: every component with its two nearest by `family.positions`, and
    with the two of largest running pair sum (K, K), where above zero.

    fresh (K,): only of these are the partners looked for (among all); None: of all.
    Cost K^2 D for the distances (one matrix product in chunks) and K^2 for the pair sums; memory O(K) beside the input.
    With F fresh ones, F K D.
    """
    n = len(stats[0])
    asking = np.arange(n) if fresh is None else np.flatnonzero(fresh)
    if asking.size == 0:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    points = family.positions(stats)
    norms = np.einsum("kd,kd->k", points, points)
    found = []
    for start in range(0, asking.size, _CHUNK_ROWS):
        rows = asking[start : start + _CHUNK_ROWS]
        near = norms[None, :] - 2.0 * (points[rows] @ points.T)  # |b|^2 - 2 a'b orders the others as the distance does
        near[np.arange(rows.size), rows] = np.inf
        found += [_two_least(near, rows, np.inf), _two_least(-pairs[rows], rows, 0.0)]
    i, j = np.concatenate(found, axis=1)
    codes = np.unique(np.minimum(i, j) * n + np.maximum(i, j))
    return codes // n, codes % n


def _two_least(values: Array, rows: IntArray, below: float) -> IntArray:
    """(2, M) pairs of a row and each of its two least columns, where less than `below`; `values` is consumed."""
    own = np.arange(len(rows))
    found = []
    for _ in range(2):
        columns = values.argmin(axis=1)
        good = values[own, columns] < below
        found.append(np.stack([rows[good], columns[good]]))
        values[own, columns] = np.inf
    return np.concatenate(found, axis=1)
