"""Components and points at an absurd distance, which decide neither the directions nor the noise."""

import numpy as np

from shoal.families.subspace.projection import squares
from shoal.families.subspace.types import SubspaceStats
from shoal.points.arrays import Array, BoolArray
from shoal.points.contamination import absurd_values


def absurd_components(stats: SubspaceStats) -> BoolArray:
    """True (K,) for components whose mean, or whose mean squared distance from the subspace, is absurd."""
    outside = stats.outside / np.where(stats.mass > 0.0, stats.mass, 1.0)
    return np.asarray(absurd_values(np.column_stack([stats.mean, outside]), stats.mass).any(axis=1))


def limit_distances_inplace(offset: Array, weight: Array) -> None:
    """Bring points at an absurd distance to the distance of the farthest other one, in the direction where they are.

    `offset` (N, D) from the center, `weight` (N,) > 0. So one of them turns no directions, and many of them in one
    direction, as those of a small far cluster, do.
    """
    distance = np.sqrt(squares(offset))
    absurd = absurd_values(distance[:, None], weight)[:, 0]
    if absurd.any():
        offset[absurd] *= (distance[~absurd].max() / distance[absurd])[:, None]
