"""Standardisation: from the units of the data to the coordinates of the components."""

from typing import Any

import numpy as np

from shoal.points.arrays import LARGEST_COORDINATE, Array, largest_magnitude
from shoal.points.rows import Points, SparseRows


def standardised(x: Points, location: Array, scale: Array) -> Any:
    """(x - location) / scale for x (N, D), clipped to magnitude 1e100 so that squares stay finite.

    It is x itself where nothing changes, and for sparse rows, whose domains have no location.
    """
    if isinstance(x, SparseRows):
        return x
    if not location.any() and bool((scale == 1.0).all()):
        z = x
    else:
        with np.errstate(over="ignore"):
            z = x - location
            z /= scale
    return z if largest_magnitude(z) <= LARGEST_COORDINATE else z.clip(-LARGEST_COORDINATE, LARGEST_COORDINATE)
