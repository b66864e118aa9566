"""From the units of the data to those in which components are learnt and asked."""

from typing import Any

import numpy as np

from shoal.points.arrays import LARGEST_COORDINATE, Array, largest_magnitude
from shoal.points.rows import Points, SparseRows


def standardised(x: Points, location: Array, scale: Array) -> Any:
    """(x - location) / scale, x (N, D), of magnitude at most 1e100 so that squares stay finite; x itself where that
    changes nothing, and sparse rows, which are of no located domain."""
    if isinstance(x, SparseRows):
        return x
    if not location.any() and bool((scale == 1.0).all()):
        z = x
    else:
        with np.errstate(over="ignore"):
            z = x - location
            z /= scale
    return z if largest_magnitude(z) <= LARGEST_COORDINATE else z.clip(-LARGEST_COORDINATE, LARGEST_COORDINATE)
