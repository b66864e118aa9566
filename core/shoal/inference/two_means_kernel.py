"""Rounds of two means, compiled: in NumPy they took a quarter of a refinement in few features."""

import numpy as np

from shoal.kernels.math import REORDER
from shoal.points.arrays import Array
from shoal.runtime.kernels import compiled, kernel


@kernel(fastmath=REORDER)
def divide_by_two_means(x: Array, share: Array, drawn: Array, rounds: int, least: float, side: Array) -> None:
    """Write 1 into `side` (m,), 0 at first, where a row of x (m, E) is nearer to the second of two means.

    Distances are in units of the features' deviations. `share` (m,) are weights that sum to one, and rows are seen from
    their mean. The two numbers `drawn` from [0, 1) choose the rows that are the first means.
    """
    (m, e), far = x.shape, np.zeros(x.shape[0])
    precision = np.zeros(e)
    for i in range(m):
        for a in range(e):
            precision[a] += share[i] * x[i, a] * x[i, a]
    for a in range(e):
        precision[a] = 1.0 / precision[a] if precision[a] > 0.0 else 1.0
    first, total = x[_row_drawn(share, drawn[0])].copy(), 0.0
    for i in range(m):
        for a in range(e):
            far[i] += share[i] * precision[a] * (x[i, a] - first[a]) ** 2
        total += far[i]
    if total > 0.0:
        second = x[_row_drawn(far, drawn[1])].copy()
        _move_means(x, share, precision, first, second, np.zeros((3, e)), rounds, least, side)


@compiled()
def _row_drawn(weight: Array, drawn: float) -> int:
    """The index in which `drawn` times the sum of weights (m,) >= 0 falls."""
    left, last = drawn * weight.sum(), 0
    for i in range(weight.size):
        if weight[i] > 0.0:
            last = i
            left -= weight[i]
            if left < 0.0:
                break
    return last


@compiled(fastmath=REORDER)
def _move_means(
    x: Array,
    share: Array,
    precision: Array,
    first: Array,
    second: Array,
    scratch: Array,
    rounds: int,
    least: float,
    side: Array,
) -> None:
    """Rounds from given means (E,), overwritten; the last is the first that moves no row or leaves a side too little.

    `scratch` is (3, E), zeros.
    """
    (m, e), normal, sums, all_rows = x.shape, scratch[0], scratch[1], scratch[2]
    for i in range(m):
        for a in range(e):
            all_rows[a] += share[i] * x[i, a]  # zero but for rounding, which is all that a constant feature has
    for done in range(rounds):
        threshold, mass, moved = 0.0, 0.0, False
        for a in range(e):
            normal[a] = (second[a] - first[a]) * precision[a]
            threshold += 0.5 * (second[a] + first[a]) * normal[a]
            sums[a] = 0.0
        for i in range(m):
            along = 0.0
            for a in range(e):
                along += x[i, a] * normal[a]
            now = 1.0 if along > threshold else 0.0
            moved = moved or now != side[i]
            side[i] = now
            if now > 0.0:
                mass += share[i]
                for a in range(e):
                    sums[a] += share[i] * x[i, a]
        if min(mass, 1.0 - mass) <= least or (done > 0 and not moved):
            break
        for a in range(e):
            second[a] = sums[a] / mass
            first[a] = (all_rows[a] - sums[a]) / (1.0 - mass)
