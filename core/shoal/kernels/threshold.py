"""Selection of the ceilings of a point that reach a threshold, block by block, without a branch for each.

A processor cannot predict which components are near, and a wrong prediction costs as much as twenty comparisons. The
largest ceiling of a block shows whether the block needs to be looked through at all. Places are unsigned, since a
signed index is first tested for counting from the end.
"""

from typing import Any

import numpy as np

from shoal.points.arrays import IntArray, SingleArray
from shoal.runtime.kernels import compiled

BLOCK = 16
"""Ceilings of a block. Arrays of them have room to the next multiple, and -inf there."""

_NONE, _ONE, _TWO, _THREE, _FOUR, _BLOCK = (np.uint64(number) for number in (0, 1, 2, 3, 4, BLOCK))


@compiled()
def fill_up(ceiling: SingleArray, n: int) -> None:
    """-inf from row n to the end of its block."""
    for k in range(n, (n + BLOCK - 1) // BLOCK * BLOCK):
        ceiling[k] = -np.inf


@compiled()
def _largest_of_block(ceiling: SingleArray, first: Any) -> Any:
    """The largest ceiling of a block. Four running maxima: each would wait for itself."""
    a, b, c, d = ceiling[first], ceiling[first + _ONE], ceiling[first + _TWO], ceiling[first + _THREE]
    for k in range(first + _FOUR, first + _BLOCK, _FOUR):
        a = ceiling[k] if ceiling[k] > a else a
        b = ceiling[k + _ONE] if ceiling[k + _ONE] > b else b
        c = ceiling[k + _TWO] if ceiling[k + _TWO] > c else c
        d = ceiling[k + _THREE] if ceiling[k + _THREE] > d else d
    return max(max(a, b), max(c, d))


@compiled()
def place_of_largest(ceiling: SingleArray, n: int) -> Any:
    """The first row of the largest of n > 0 finite ceilings."""
    place: Any = _NONE
    largest = ceiling[place]
    for first in range(_NONE, np.uint64(n), _BLOCK):
        of_block = _largest_of_block(ceiling, first)
        place = first if of_block > largest else place
        largest = of_block if of_block > largest else largest
    while ceiling[place] < largest:
        place += _ONE
    return place


@compiled()
def places_from(ceiling: SingleArray, n: int, least: Any, active: IntArray) -> Any:
    """Write the rows k < n with ceiling[k] >= least > -inf, float32, into `active` (n + 1,), in order; how many."""
    count = _NONE
    for first in range(_NONE, np.uint64(n), _BLOCK):
        if _largest_of_block(ceiling, first) >= least:
            for k in range(first, first + _BLOCK):
                active[count] = k
                count += _ONE if ceiling[k] >= least else _NONE
    return count
