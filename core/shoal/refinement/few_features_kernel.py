"""The sweep of `quadratic_kernel` for points of a few features, where no bound is cheaper than the distance itself.

Rows go in tiles, and the loop over a tile's rows is the inner one everywhere: it fills vector registers whatever the
number of components.
"""

import numpy as np

from shoal.kernels.math import REORDER, exp_negative, log_positive
from shoal.points.arrays import Array, IntArray
from shoal.refinement.divide_kernel import LEAST
from shoal.runtime.kernels import compiled, kernel

TILE = 64


@compiled(fastmath=REORDER)
def _score(rows: Array, constant: Array, centre: Array, root: Array, apart: Array, part: Array, value: Array) -> None:
    """Scores of the rows (D, TILE) into `value` (T, TILE). `apart` (D, TILE) and `part` (TILE,) are for scratch."""
    d = rows.shape[0]
    for k in range(constant.size):
        for i in range(TILE):
            value[k, i] = constant[k]
        for a in range(d):
            for i in range(TILE):
                apart[a, i] = rows[a, i] - centre[k, a]
        for a in range(d):
            if root.ndim == 2:
                for i in range(TILE):
                    part[i] = root[k, a] * apart[a, i]
            else:
                for i in range(TILE):
                    part[i] = root[k, a, 0] * apart[0, i]
                for b in range(1, a + 1):
                    for i in range(TILE):
                        part[i] += root[k, a, b] * apart[b, i]
            for i in range(TILE):
                value[k, i] -= 0.5 * part[i] * part[i]


@compiled(fastmath=REORDER)
def _divide(value: Array, weight: Array, log_floor: float, scratch: Array) -> tuple[float, float]:
    """Scores (T, TILE) become shares; their entropy, and the share of those dropped, summed times `weight` (TILE,).

    `scratch` is (4, TILE).
    """
    top, total, surprise, rest = scratch[0], scratch[1], scratch[2], scratch[3]
    for i in range(TILE):
        top[i] = value[0, i]
        total[i] = surprise[i] = rest[i] = 0.0
    for k in range(1, value.shape[0]):
        for i in range(TILE):
            top[i] = max(top[i], value[k, i])
    for k in range(value.shape[0]):
        for i in range(TILE):
            difference = value[k, i] - top[i]
            share = exp_negative(difference)
            kept = share if difference >= log_floor else 0.0
            value[k, i] = kept
            total[i] += kept
            surprise[i] += kept * difference
            rest[i] += share - kept if difference > LEAST else 0.0
    entropy, dropped = 0.0, 0.0
    for i in range(TILE):
        entropy += weight[i] * (log_positive(total[i]) - surprise[i] / total[i])
        dropped += weight[i] * rest[i] / (total[i] + rest[i])
        total[i] = 1.0 / total[i]
    for k in range(value.shape[0]):
        for i in range(TILE):
            value[k, i] *= total[i]
    return entropy, dropped


@compiled(fastmath=REORDER)
def _add(
    rows: Array, value: Array, weight: Array, centre: Array, apart: Array, mass: Array, first: Array, second: Array
) -> None:
    """Count the rows (D, TILE) by their shares (T, TILE), which become weights; of a matrix the lower triangle."""
    d = rows.shape[0]
    for k in range(mass.size):
        total = 0.0
        for i in range(TILE):
            value[k, i] *= weight[i]
            total += value[k, i]
        mass[k] += total
        for a in range(d):
            total = 0.0
            for i in range(TILE):
                apart[a, i] = rows[a, i] - centre[k, a]
                total += value[k, i] * apart[a, i]
            first[k, a] += total
        for a in range(d):
            for b in range(a if second.ndim == 2 else 0, a + 1):
                total = 0.0
                for i in range(TILE):
                    total += value[k, i] * apart[a, i] * apart[b, i]
                if second.ndim == 2:
                    second[k, a] += total
                else:
                    second[k, a, b] += total


@kernel()
def sweep_few_features(
    x: Array,
    constant: Array,
    centre: Array,
    root: Array,
    weights: Array,
    log_floor: float,
    indices: IntArray,
    resp: Array,
    ends: IntArray,
    mass: Array,
    first: Array,
    second: Array,
) -> tuple[int, float, float]:
    """As `quadratic_kernel.sweep_block`, without bounds. `indices` and `resp` need room for T n + 1 entries."""
    (n, d), t = x.shape, constant.size
    rows, apart, weight = np.zeros((d, TILE)), np.empty((d, TILE)), np.zeros(TILE)
    value, scratch = np.empty((t, TILE)), np.empty((4, TILE))
    filled, entropy, dropped = 0, 0.0, 0.0
    for start in range(0, n, TILE):
        m = min(TILE, n - start)
        for i in range(m):
            weight[i] = weights[start + i]
            for a in range(d):
                rows[a, i] = x[start + i, a]
        weight[m:] = 0.0  # the last tile's other rows are those of the one before
        _score(rows, constant, centre, root, apart, scratch[0], value)
        h, lost = _divide(value, weight, log_floor, scratch)
        entropy += h
        dropped += lost
        for i in range(m):
            for k in range(t):  # written in any case: a branch would be mispredicted every third time
                indices[filled] = k
                resp[filled] = value[k, i]
                filled += value[k, i] > 0.0
            ends[start + i] = filled
        _add(rows, value, weight, centre, apart, mass, first, second)
    return filled, entropy, dropped
