"""How far rows are from components at least, by their distance from the centres alone.

With s_k the least singular value of A_k, |A_k (x - centre_k)| >= s_k |x - centre_k|, and all the |x - centre_k| come
from one matrix product.
"""

from typing import NamedTuple

import numpy as np

from shoal.points.arrays import Array, BoundArray, IntArray, SingleArray
from shoal.refinement.reach_kernel import least_distances

_SLACK = 1e-12
"""As `_single_slack`, in double precision."""
_LARGEST_SINGLE = 1e30
"""Squares of lengths up to which nothing overflows in single precision."""
_MOST_BLUR = 10.0
"""Nats by which single precision may weaken the bounds of a component like most."""
_MARGIN = 5e-6
"""Rounding of a least singular value, relative to itself."""


class Screen(NamedTuple):
    """What the distances from T components are bounded by."""

    middle: Array  # (D,) of the centres
    centres: Array  # (D, T) less the middle
    squares: Array  # (T,) of their lengths
    least: Array  # (T,) the least singular values, or a little less
    single: SingleArray | None
    """The centres in single precision; None where that would blur the bounds."""


def screen_of(centre: Array, least: Array) -> Screen:
    """Of components with centres (T, D) and least singular values (T,)."""
    middle = centre.mean(axis=0)
    centres, least = centre - middle, least * (1.0 - _MARGIN)
    squares = np.einsum("kd,kd->k", centres, centres)
    blur = _single_slack(len(middle)) * float(np.median(np.square(least)) * squares.mean())
    single = centres.T.astype(np.float32) if squares.max() <= _LARGEST_SINGLE and blur <= _MOST_BLUR else None
    return Screen(middle, centres.T, squares, least, single)


def write_distances(x: Array, screen: Screen, columns: IntArray, levels: BoundArray) -> None:
    """Write into the columns (T,) of `levels` (n, ...) what |A_k (x - centre_k)| is at least, in units."""
    rows = x - screen.middle
    own = np.einsum("nd,nd->n", rows, rows)
    if screen.single is not None and own.max() <= _LARGEST_SINGLE:
        product, slack = rows.astype(np.float32) @ screen.single, _single_slack(rows.shape[1])
    else:
        product, slack = rows @ screen.centres, _SLACK
    least_distances(own, product, screen.squares, screen.least, slack, columns, levels)


def _single_slack(d: int) -> float:
    """Rounding of a squared distance in d dimensions that is taken by a product in single precision, relative to the
    squares that it is the difference of: of both factors and of d sums (Higham 2002, section 3.1)."""
    return (d + 8) * 2.0**-24
