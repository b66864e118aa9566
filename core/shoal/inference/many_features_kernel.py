"""The compiled sweep for quadratic log densities of many features: rows are scored only for components near them.

A row's guessed component says what others must reach; lower bounds on distances say which may. Each score that is
computed raises its bound. `e_step` and `m_step` are the plain form, which took 2.5 times as long where components
overlap.
"""

import math

import numpy as np

from shoal.families.capabilities import QuadraticForm
from shoal.families.located.types import WeightedMoments
from shoal.inference.few_features_kernel import Entries
from shoal.kernels.math import REORDER, exp_negative, log_positive
from shoal.points.arrays import Array, IntArray, SingleArray
from shoal.runtime.kernels import compiled, kernel

UNSCORED = -12.0
"""Log of a share, relative to the floor, below which a score need not be computed."""
_BELOW = np.float32(1.0 - 1e-6)


@compiled(fastmath=REORDER)
def _square(x: Array, i: int, centre: Array, root: Array, k: int, most: float, apart: Array) -> float:
    """|root_k (x_i - centre_k)|^2, or a part of it that exceeds `most`; `apart` (D,) is for scratch."""
    total = 0.0
    for a in range(apart.size):
        apart[a] = x[i, a] - centre[k, a]
    for a in range(apart.size):
        part = 0.0
        if root.ndim == 2:
            part = root[k, a] * apart[a]
        else:
            for b in range(a + 1):
                part += root[k, a, b] * apart[b]
        total += part * part
        if total > most:
            break
    return total


@compiled(fastmath=REORDER)
def _add(x: Array, i: int, centre: Array, k: int, weight: float, apart: Array, first: Array, second: Array) -> None:
    """Count the row to component k; of a matrix the lower triangle."""
    for a in range(apart.size):
        apart[a] = x[i, a] - centre[k, a]
    for a in range(apart.size):
        part = weight * apart[a]
        first[k, a] += part
        if second.ndim == 3:
            for b in range(a + 1):
                second[k, a, b] += part * apart[b]
        else:
            second[k, a] += part * apart[a]


@kernel(fastmath=REORDER)
def sweep_near(
    x: Array,
    weights: Array,
    form: QuadraticForm,
    log_floor: float,
    guess: IntArray,
    least: SingleArray,
    entries: Entries,
    sums: WeightedMoments,
) -> tuple[float, float]:
    """An E- and an M-step of rows x (N, D), as `few_features_kernel.sweep_few_features` makes them.

    `guess` (N,) are components near the rows, `least` (N, T) lower bounds on distances, raised in place.
    """
    (n, d), t = x.shape, form.constant.size
    constant, centre, root = form.constant, form.centre, form.root  # out of the loops: each use counts a reference
    mass, first, second = sums.mass, sums.first, sums.second
    columns, resp, starts = entries.columns, entries.resp, entries.starts
    value, apart = np.empty(t), np.empty(d)
    filled, entropy, dropped = 0, 0.0, 0.0
    for i in range(n):
        own = guess[i]
        square = _square(x, i, centre, root, own, math.inf, apart)
        known = constant[own] - 0.5 * square
        top = known
        least[i, own] = np.float32(math.sqrt(square)) * _BELOW
        for k in range(t):
            value[k] = -np.inf
            if k == own:
                value[k] = known
            elif constant[k] - 0.5 * least[i, k] * least[i, k] >= top + log_floor + UNSCORED:
                most = 2.0 * (constant[k] - top - log_floor - UNSCORED)
                square = _square(x, i, centre, root, k, most, apart)
                least[i, k] = np.float32(math.sqrt(square)) * _BELOW
                value[k] = constant[k] - 0.5 * square
                top = max(top, value[k])
        total, rest, surprise, begin = 0.0, 0.0, 0.0, filled
        for k in range(t):
            difference = value[k] - top
            if difference < log_floor + UNSCORED:
                continue
            share = exp_negative(difference)
            if difference >= log_floor:
                columns[filled] = k
                resp[filled] = share
                filled += 1
                total += share
                surprise += share * difference
            else:
                rest += share
        for e in range(begin, filled):
            resp[e] /= total
            counted = weights[i] * resp[e]
            mass[columns[e]] += counted
            _add(x, i, centre, columns[e], counted, apart, first, second)
        starts[i + 1] = filled
        entropy += weights[i] * (log_positive(total) - surprise / total)
        dropped += weights[i] * rest / (total + rest)
    return entropy, dropped
