"""Bounds of how far points are from components, as sweeps keep them: two bytes for a point and a component.

A point is at least `levels` times `unit` less `moved` from a component, in its metric. Where components change, these
two change for all points (`reaches`), and a point's level only where its distance is worked out.
"""

import math
from typing import NamedTuple

import numpy as np

from shoal.families.bounds_kernel import KEPT, LOWEST, rounded_up
from shoal.kernels.math import REORDER
from shoal.points.arrays import Array, BoundArray, IntArray, SingleArray
from shoal.runtime.kernels import compiled, kernel

UNIT = 2.0**-6
"""What a level is worth at first."""
_MOST = 2.0**16 - 1.0
_KEPT = float(KEPT)
"""What rounding of single operations leaves of a distance and of what it lost, and less."""
_LEAST_SQUARE = 1e-30
"""What a product of numbers too small for single precision may be wrong by."""


class Reach(NamedTuple):
    """Least distances of n points from T components."""

    levels: BoundArray  # (n, T)
    unit: SingleArray  # (T,)
    moved: SingleArray  # (T,)


@compiled(makes_arrays=True)
def ceilings_of(constant: Array) -> SingleArray:
    """What scores of components at no distance do not exceed, (T,)."""
    ceiling = np.empty(constant.size, dtype=np.float32)
    for k in range(constant.size):
        ceiling[k] = rounded_up(max(constant[k], LOWEST))
    return ceiling


@compiled()
def _level(distance: float) -> int:
    """The level of so many units, rounded down."""
    return int(distance) if distance < _MOST else int(_MOST)


@compiled()
def far_at_least(reach: Reach, i: int, k: int) -> float:
    """What point i is at least from component k."""
    unit, moved = reach.unit[k], reach.moved[k]
    return max(float(np.float32(reach.levels[i, k]) * unit - moved), 0.0)


@compiled()
def write_down(reach: Reach, i: int, k: int, square: float) -> None:
    """Point i is at least so far from component k, squared: keep it if that is more than was known."""
    if not square >= 0.0:
        return
    level = _level(_KEPT * (math.sqrt(square) + reach.moved[k]) / reach.unit[k])
    if level > reach.levels[i, k]:
        reach.levels[i, k] = level


@compiled(fastmath=REORDER)
def mark_near(ceiling: SingleArray, reach: Reach, i: int, score: float, marks: Array) -> None:
    """Set `marks` (T or more,), bytes, of the components whose score ceiling - distance^2 / 2 may reach `score`."""
    least, half, nothing = -rounded_up(-score), np.float32(0.5), np.float32(0.0)
    yes = np.uint8(1)
    levels = reach.levels[i]
    for k in range(ceiling.size):
        apart = max(np.float32(levels[k]) * reach.unit[k] - reach.moved[k], nothing)
        marks[k] |= yes if ceiling[k] - half * apart * apart >= least else np.uint8(0)


@kernel(fastmath=REORDER)
def least_distances(
    own: Array,
    product: Array,
    squares: Array,
    least: Array,
    slack: float,
    columns: IntArray,
    levels: BoundArray,
) -> None:
    """Into the columns (t,) of `levels` (n, T) what |A_k (x - centre_k)| is at least, in units.

    own: (n,) squares of the rows' lengths; squares: (t,) of the centres'. product: (n, t) of rows and centres, to
    within `slack` times the mean of the two. least: (t,) what |A_k v| / |v| does not go below.
    """
    for i in range(own.size):
        for c in range(columns.size):
            square = (own[i] + squares[c]) * (1.0 - slack) - 2.0 * product[i, c] - _LEAST_SQUARE
            square = square if square > 0.0 else 0.0
            levels[i, columns[c]] = _level(_KEPT * least[c] * math.sqrt(square) / UNIT)


@kernel()
def put_elsewhere(before: BoundArray, column: IntArray, after: BoundArray) -> None:
    """Into `after` (n, T) the levels `before` (n, T') in column[k] for component k; 0 where that is -1."""
    for i in range(before.shape[0]):
        for k in range(column.size):
            after[i, k] = before[i, column[k]] if column[k] >= 0 else 0
