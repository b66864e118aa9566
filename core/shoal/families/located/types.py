"""Named tuples that the kernels of the Gaussian families share."""

from typing import NamedTuple

from shoal.points.arrays import Array


class WeightedMoments(NamedTuple):
    """Weighted moments of T sets of points, each about a centre of its own."""

    centre: Array  # (T, D)
    mass: Array  # (T,)
    first: Array  # (T, D)
    second: Array  # (T, D, D) the lower triangle, or (T, D) the diagonal
