"""Rounds of two-means, compiled: of few points NumPy's calls take longer than their work."""

import numpy as np

from shoal._numba import kernel
from shoal.arrays import Array
from shoal.families.math_kernel import REORDER


@kernel(fastmath=REORDER)
def two_means_rounds(z: Array, share: Array, first: Array, second: Array, rounds: int, least: float) -> Array:
    """(m,) 1 where a place z (m, E) is nearer to the second of two means, 0 where it is not, after some rounds from
    given means (E,).

    share: (m,) weights that sum to one. The last round is the first that moves no place, or leaves a side a share of
    `least` or less.
    """
    m, e = z.shape
    first, second = first.copy(), second.copy()  # they may be rows of z
    total, ahead, across, side = np.zeros(e), np.empty(e), np.empty(e), np.zeros(m)
    for i in range(m):
        for a in range(e):
            total[a] += share[i] * z[i, a]
    for done in range(rounds):
        middle, mass, moved = 0.0, 0.0, False
        for a in range(e):
            across[a] = second[a] - first[a]
            middle += 0.5 * (second[a] * second[a] - first[a] * first[a])
            ahead[a] = 0.0
        for i in range(m):
            along = 0.0
            for a in range(e):
                along += z[i, a] * across[a]
            now = 1.0 if along > middle else 0.0
            moved = moved or now != side[i]
            side[i] = now
            if now > 0.0:
                mass += share[i]
                for a in range(e):
                    ahead[a] += share[i] * z[i, a]
        if min(mass, 1.0 - mass) <= least or (done > 0 and not moved):
            break
        for a in range(e):
            second[a] = ahead[a] / mass
            first[a] = (total[a] - ahead[a]) / (1.0 - mass)
    return side
