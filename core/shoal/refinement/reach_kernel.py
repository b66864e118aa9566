"""Bounds of distances, of matrix products (`screens`) and of the sweep before (`reaches`), in single precision."""

import math

import numpy as np

from shoal._numba import kernel
from shoal.arrays import Array, IntArray, SingleArray
from shoal.families.bounds_kernel import KEPT, LARGEST_SQUARE
from shoal.families.math_kernel import REORDER

LEAST_SQUARE = 1e-30
"""What a product of numbers too small for single precision may be wrong by."""


@kernel(fastmath=REORDER)
def least_distances(own: Array, product: Array, squares: Array, least: Array, slack: float, out: SingleArray) -> None:
    """Into `out` (n, T) what |A_k (x - centre_k)| is at least.

    own: (n,) squares of the rows' lengths; squares: (T,) of the centres'. product: (n, T) of rows and centres, to
    within `slack` times the mean of the two. least: (T,) what |A_k v| / |v| does not go below.
    """
    for i in range(own.size):
        for k in range(squares.size):
            square = (own[i] + squares[k]) * (1.0 - slack) - 2.0 * product[i, k] - LEAST_SQUARE
            square = min(least[k] * least[k] * max(square, 0.0), LARGEST_SQUARE)
            out[i, k] = KEPT * np.float32(math.sqrt(square))


@kernel(fastmath=REORDER)
def carry_in_place(least: SingleArray, kept: SingleArray, moved: SingleArray) -> None:
    """Leave kept[k] of the distances `least` (n, T), less moved[k]."""
    for i in range(least.shape[0]):
        for k in range(kept.size):
            least[i, k] = max(least[i, k] * kept[k] - moved[k], np.float32(0.0))


@kernel()
def carry(before: SingleArray, column: IntArray, kept: SingleArray, moved: SingleArray, after: SingleArray) -> None:
    """The same of `before` (n, T'), where component k is in column[k], or -1 where it is not, into `after` (n, T)."""
    for i in range(before.shape[0]):
        for k in range(column.size):
            apart = before[i, column[k]] if column[k] >= 0 else np.float32(0.0)
            after[i, k] = max(apart * kept[k] - moved[k], np.float32(0.0))
