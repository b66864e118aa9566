"""Two-means, compiled: of few points NumPy's calls take longer than their work."""

import math

import numpy as np

from shoal.kernels.math import REORDER
from shoal.points.arrays import Array
from shoal.runtime.kernels import compiled, kernel


@kernel(fastmath=REORDER)
def two_means(location: Array, share: Array, middle: Array, drawn: Array, rounds: int, least: float) -> Array:
    """(m,) 1 where a place (m, E) is nearer to the second of two means, 0 where it is not, in units of the spreads.

    share: (m,) weights >= 0 that sum to one, middle (E,) the mean under them. The first means are two of the places:
    one by the shares, one by the shares times the squared distance from it (k-means++, Arthur and Vassilvitskii 2007),
    where two numbers `drawn` from [0, 1) fall. All 0 where the places are one.
    """
    m, e = location.shape
    z, far = np.empty((m, e)), np.empty(m)
    for a in range(e):
        width = 0.0
        for i in range(m):
            z[i, a] = location[i, a] - middle[a]
            width += share[i] * z[i, a] * z[i, a]
        if width > 0.0:
            for i in range(m):
                z[i, a] /= math.sqrt(width)
    first = z[_place(share, drawn[0])].copy()
    total = 0.0
    for i in range(m):
        distance = 0.0
        for a in range(e):
            distance += (z[i, a] - first[a]) ** 2
        far[i] = share[i] * distance
        total += far[i]
    if not total > 0.0:
        return np.zeros(m)
    second = z[_place(far, drawn[1])].copy()
    sides: Array = _sides(z, share, first, second, rounds, least)
    return sides


@compiled()
def _place(weight: Array, drawn: float) -> int:
    """Where `drawn` times the sum of weights (m,) >= 0 falls among them."""
    total = 0.0
    for i in range(weight.size):
        total += weight[i]
    left, last = drawn * total, 0
    for i in range(weight.size):
        if weight[i] > 0.0:
            last = i
            left -= weight[i]
            if left < 0.0:
                break
    return last


@compiled(makes_arrays=True, fastmath=REORDER)
def _sides(z: Array, share: Array, first: Array, second: Array, rounds: int, least: float) -> Array:
    """Rounds from given means (E,), which are overwritten. The last is the first that moves no place, or leaves a side
    a share of `least` or less."""
    m, e = z.shape
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
