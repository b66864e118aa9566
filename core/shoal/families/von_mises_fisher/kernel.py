"""The one-pass steps of von Mises-Fisher components: a score is one product, a point turns one direction.

The same as `VonMisesFisher` does in NumPy, in which the formulas are explained; the normaliser that the integral of a
new component needs is read from a table of its logarithm and slope, a cubic between nodes.
"""

import math
from typing import Any

from shoal.families.estimated import MOST_MOVE
from shoal.families.estimated.kernel import bounded, clear_estimate, count_point, hermite, step_length
from shoal.families.steps_kernel import absorb, clear_row, implements, score_all
from shoal.families.von_mises_fisher import VonMisesFisherCache
from shoal.kernels.math import REORDER
from shoal.points.arrays import Array
from shoal.runtime.kernels import compiled

_FRONT, _NEW_FRONT, _CONCENTRATION, _LENGTH, _OFFSET, _POWER, _N_POINTS, _LOW, _SPACING, _NODES = range(10)


@compiled()
def _log_new(constants: Array, x: Array, i: int) -> float:
    """log of C(k) C(k0) / C(|k x + k0 m0|)."""
    table = constants[2:].reshape(-1)
    spacing = constants[0, _SPACING]
    if spacing == 0.0:  # a uniform prior: all lengths are k
        uniform: float = constants[0, _NEW_FRONT] - table[0]
        return uniform
    square = 0.0
    for b in range(x.shape[1]):
        both = constants[0, _CONCENTRATION] * x[i, b] + constants[1, b]
        square += both * both
    last = constants[0, _NODES] - 1.0
    place = min(max((math.sqrt(square) - constants[0, _LOW]) / spacing, 0.0), last)
    at = min(int(place), int(last) - 1)
    result: float = constants[0, _NEW_FRONT] - hermite(table, at, 2, 0, 1, place - at, 1.0, 1.0)
    return result


@compiled(fastmath=REORDER)
def _dot(rows: Array, k: int, x: Array, i: int) -> float:
    total = 0.0
    for b in range(x.shape[1]):
        total += rows[k, b] * x[i, b]
    return total


@compiled()
def _turn(cache: Any, stats: Any, constants: Array, x: Array, i: int, k: int, resp: float) -> None:
    """A step of either rule."""
    d = x.shape[1]
    concentration, n_points = constants[0, _CONCENTRATION], constants[0, _N_POINTS]
    if n_points > 0.0:
        length = step_length(stats.seen[k], constants[0, _POWER])
        own, prior = length * resp * concentration, length / n_points
        most = math.inf
    else:
        length = step_length(constants[0, _OFFSET] + stats.mass[k], constants[0, _POWER])
        length *= resp / (concentration * constants[0, _LENGTH])
        own, prior = length * concentration, length / stats.mass[k]
        most = MOST_MOVE
    along = 0.0
    for b in range(d):
        along += (own * x[i, b] + prior * constants[1, b]) * stats.estimate[k, b]
    for b in range(d):
        move = own * x[i, b] + prior * constants[1, b] - along * stats.estimate[k, b]
        stats.estimate[k, b] += bounded(move, most)


@compiled()
def _settle(cache: Any, stats: Any, constants: Array, k: int, d: int) -> None:
    """The estimate made a unit vector (the prior's direction if it is none), and the predictive cache."""
    square = 0.0
    for b in range(d):
        square += stats.estimate[k, b] ** 2
    if square == 0.0:
        for b in range(d):
            stats.estimate[k, b] = constants[1, b]
            square += constants[1, b] ** 2
    length = math.sqrt(square) if square > 0.0 else 1.0
    for b in range(d):
        stats.estimate[k, b] /= length
        cache.slope[k, b] = constants[0, _CONCENTRATION] * stats.estimate[k, b]


@implements(score_all, VonMisesFisherCache)
def _score_all(cache: Any, stats: Any, constants: Any, x: Any, i: Any, n: Any, score: Any, scratch: Any) -> None:
    count_point(stats, n)
    for k in range(n):
        if stats.mass[k] == 0.0:
            score[k] = _log_new(constants, x, i)
        else:
            score[k] = constants[0, _FRONT] + _dot(cache.slope, k, x, i)


@implements(absorb, VonMisesFisherCache)
def _absorb(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, resp: Any, scratch: Any) -> None:
    d = x.shape[1]
    born = stats.mass[k] == 0.0
    stats.mass[k] += resp
    if born:
        for b in range(d):
            stats.estimate[k, b] = constants[0, _CONCENTRATION] * x[i, b] + constants[1, b]
    else:
        _turn(cache, stats, constants, x, i, k, resp)
    _settle(cache, stats, constants, k, d)


@implements(clear_row, VonMisesFisherCache)
def _clear_row(cache: Any, stats: Any, k: Any, empty: Any) -> None:
    clear_estimate(stats, k)
    for b in range(cache.slope.shape[1]):
        cache.slope[k, b] = empty.slope[0, b]
