"""The compiled sweeps for quadratic log densities: E-step and M-step in one pass over the rows.

    sweep_few_features   For few features no distance bound is cheaper than the distance itself. Rows are read in tiles,
                         and the loop over the rows of a tile is the inner one everywhere: it fills vector registers
                         whatever the number of components.
    sweep_near           For many features rows are scored only for components near them. A row's guessed component says
                         what others must reach; lower bounds on distances say which may. Each score that is computed
                         raises its bound. The plain form took 2.5 times as long where components overlap.

`reference.e_step` and `sweep.m_step` are the plain form.
"""

import math
from typing import NamedTuple

import numpy as np

from shoal.families.capabilities import QuadraticForm
from shoal.families.located.types import WeightedMoments
from shoal.kernels.math import REORDER, exp_negative, log_positive
from shoal.points.arrays import Array, IntArray, SingleArray
from shoal.runtime.kernels import compiled, kernel

TILE = 64
LEAST = -40.0
"""Log of a share below which it does not even count as dropped."""
UNSCORED = -12.0
"""Log of a share, relative to the floor, below which a score need not be computed."""
_BELOW = np.float32(1.0 - 1e-6)


class Entries(NamedTuple):
    """Room for sparse responsibilities (N, T): up to N T + 1 entries."""

    columns: IntArray  # (N T + 1,)
    resp: Array  # (N T + 1,)
    starts: IntArray  # (N + 1,)


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
def _normalize(value: Array, weight: Array, log_floor: float, scratch: Array) -> tuple[float, float]:
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
    x: Array, weights: Array, form: QuadraticForm, log_floor: float, entries: Entries, sums: WeightedMoments
) -> tuple[float, float]:
    """An E- and an M-step of rows x (N, D): `entries` and `sums`, zero at first, are written.

    The constants of `form` include the log weights. Entries below exp(log_floor) of a row's largest are dropped. Back:
    the entropy, and the share that the dropped entries had, both summed over rows times `weights`.
    """
    (n, d), t = x.shape, form.constant.size
    constant, centre, root = form.constant, form.centre, form.root  # out of the loops: each use counts a reference
    mass, first, second = sums.mass, sums.first, sums.second
    columns, resp, starts = entries.columns, entries.resp, entries.starts
    rows, apart, weight = np.zeros((d, TILE)), np.empty((d, TILE)), np.zeros(TILE)
    value, scratch = np.empty((t, TILE)), np.empty((4, TILE))
    filled, entropy, dropped = 0, 0.0, 0.0
    for start in range(0, n, TILE):
        m = min(TILE, n - start)
        for i in range(m):
            weight[i] = weights[start + i]
            for a in range(d):
                rows[a, i] = x[start + i, a]
        weight[m:] = 0.0  # the other rows of the last tile are left from the one before
        _score(rows, constant, centre, root, apart, scratch[0], value)
        h, lost = _normalize(value, weight, log_floor, scratch)
        entropy += h
        dropped += lost
        for i in range(m):
            for k in range(t):  # written in any case: a branch would be mispredicted every third time
                columns[filled] = k
                resp[filled] = value[k, i]
                filled += value[k, i] > 0.0
            starts[start + i + 1] = filled
        _add(rows, value, weight, centre, apart, mass, first, second)
    return entropy, dropped


@compiled(fastmath=REORDER)
def _square(x: Array, i: int, centre: Array, root: Array, k: int, most: float, apart: Array) -> float:
    """|root_k (x_i - centre_k)|^2, or a part of it that exceeds `most`; `apart` (D,) is for scratch.

    A diagonal form is summed whole: a test after each feature would keep the sum out of vector registers.
    """
    total, d = 0.0, apart.size
    if root.ndim == 2:
        for a in range(d):
            part = root[k, a] * (x[i, a] - centre[k, a])
            total += part * part
        return total
    for a in range(d):
        apart[a] = x[i, a] - centre[k, a]
    for a in range(d):
        part = 0.0
        for b in range(a + 1):
            part += root[k, a, b] * apart[b]
        total += part * part
        if total > most:
            break
    return total


@compiled(fastmath=REORDER)
def _add_row(x: Array, i: int, centre: Array, k: int, weight: float, apart: Array, first: Array, second: Array) -> None:
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
    farther: float,
    entries: Entries,
    sums: WeightedMoments,
) -> tuple[float, float]:
    """An E- and an M-step of rows x (N, D), as `sweep_few_features` makes them, with scores of near components only.

    `guess` (N,) are components near the rows, `least` (N, T) lower bounds on distances, raised in place. The square of
    a distance is summed up to `farther` >= 1 times what rules a component out.
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
                most = 2.0 * farther * (constant[k] - top - log_floor - UNSCORED)
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
            _add_row(x, i, centre, columns[e], counted, apart, first, second)
        starts[i + 1] = filled
        entropy += weights[i] * (log_positive(total) - surprise / total)
        dropped += weights[i] * rest / (total + rest)
    return entropy, dropped
