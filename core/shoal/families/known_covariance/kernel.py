"""The one-pass steps of Gaussians with known covariance: spherical (`SphericalCache`), and full in the shared basis
(`SharedBasisCache`), two predictive caches because the first needs no change of basis and one precision a component.

The full form changes each point's basis by itself: BLAS over a chunk would give other last bits for another cut of
the stream.
"""

import math
from typing import Any

import numpy as np

from shoal.families.bounds_kernel import FEWEST_BOUNDED, FROZEN, KEPT, euclidean_squares, rounded_up
from shoal.families.known_covariance.types import SharedBasisCache, SharedBasisConstants, SphericalCache
from shoal.families.steps_kernel import (
    absorb,
    absorb_tracked,
    ceilings,
    clear_row,
    freeze,
    implements,
    limit,
    score_all,
    score_one,
)
from shoal.kernels.math import REORDER, SATURATION, log_one_plus, log_positive
from shoal.points.arrays import Array, SingleArray
from shoal.runtime.kernels import compiled

_LOG_2PI = math.log(2.0 * math.pi)

_LEAST_WORK = 640
"""Least components x features for which bounds are worked out."""

_FAR = 1e37
"""Nats: bounds of a log score are cut off here, so that float32 has a number for every ceiling."""

_SQUARE_KEPT = float(KEPT) ** 3
"""What rounding leaves of a squared distance, and of its product with half a precision, and less."""


@compiled(fastmath=REORDER)
def squared_distance(mean: Array, k: int, x: Array, i: int) -> float:
    """|x[i] - mean[k]|^2."""
    q = 0.0
    for b in range(x.shape[1]):
        e = x[i, b] - mean[k, b]
        q += e * e
    return q


@compiled()
def _score_spherical(mean: Array, half_precision: Array, log_norm: Array, x: Array, i: int, k: int) -> float:
    q = half_precision[k] * squared_distance(mean, k, x, i)
    score: float = log_norm[k] - (q if q < SATURATION else SATURATION)
    return score


@compiled()
def _absorb_spherical(cache: Any, stats: Any, variance: float, x: Array, i: int, k: int, resp: float) -> float:
    """How far the mean of the predictive moves, squared: to rounding, in vector registers, unlike what is learnt."""
    d = x.shape[1]
    total = stats.mass[k] + resp
    gain = resp / total
    stats.scatter[k] += stats.mass[k] * gain * squared_distance(stats.mean, k, x, i) / variance
    precision = cache.precision[k] + resp
    step = resp / precision
    moved: float = step * step * squared_distance(cache.mean, k, x, i)
    for b in range(d):
        stats.mean[k, b] += gain * (x[i, b] - stats.mean[k, b])
        cache.mean[k, b] += step * (x[i, b] - cache.mean[k, b])
    stats.mass[k] = total
    cache.precision[k] = precision
    cache.half_precision[k] = 0.5 * precision / (variance * (precision + 1.0))
    cache.log_norm[k] = 0.5 * d * log_positive(cache.half_precision[k] / math.pi)
    return moved


@compiled(fastmath=REORDER)
def to_basis(basis: Array, x: Array, i: int, origin: Array, k: int, scratch: Array, row: int) -> None:
    """scratch[row] = basis e and scratch[2] = e for e = x[i] - origin[k]."""
    d = x.shape[1]
    for b in range(d):
        scratch[2, b] = x[i, b] - origin[k, b]
    whole = d - d % 4
    for a in range(0, whole, 4):  # four rows a sweep: each element of e is read once for four products
        s0 = s1 = s2 = s3 = 0.0
        for b in range(d):
            e = scratch[2, b]
            s0 += basis[a, b] * e
            s1 += basis[a + 1, b] * e
            s2 += basis[a + 2, b] * e
            s3 += basis[a + 3, b] * e
        scratch[row, a], scratch[row, a + 1], scratch[row, a + 2], scratch[row, a + 3] = s0, s1, s2, s3
    for a in range(whole, d):
        s0 = 0.0
        for b in range(d):
            s0 += basis[a, b] * scratch[2, b]
        scratch[row, a] = s0


@compiled(fastmath=REORDER)
def _weighted_distance(mean: Array, weight: Array, k: int, y: Array) -> float:
    """sum_d weight[k, d] (y[0, d] - mean[k, d])^2."""
    q = 0.0
    for b in range(y.shape[1]):
        e = y[0, b] - mean[k, b]
        q += weight[k, b] * e * e
    return q


@compiled()
def _score_shared(
    mean: Array,
    weight: Array,
    log_norm: Array,
    constants: SharedBasisConstants,
    x: Array,
    i: int,
    n: int,
    score: Array,
    scratch: Array,
) -> None:
    to_basis(constants.basis, x, i, constants.mean, 0, scratch, 0)
    for k in range(n):
        q = _weighted_distance(mean, weight, k, scratch)
        score[k] = log_norm[k] - (q if q < SATURATION else SATURATION)


@compiled(fastmath=REORDER)
def squared_norm(scratch: Array, row: int) -> float:
    """|scratch[row]|^2."""
    q = 0.0
    for b in range(scratch.shape[1]):
        q += scratch[row, b] * scratch[row, b]
    return q


@compiled()
def _add_to_shared_stats(stats: Any, constants: Any, x: Array, i: int, k: int, resp: float, scratch: Array) -> None:
    total = stats.mass[k] + resp
    gain = resp / total
    to_basis(constants.basis, x, i, stats.mean, k, scratch, 1)
    stats.scatter[k] += stats.mass[k] * gain * squared_norm(scratch, 1)
    for b in range(x.shape[1]):
        stats.mean[k, b] += gain * scratch[2, b]
    stats.mass[k] = total


@compiled()
def _absorb_shared(
    cache: Any, stats: Any, constants: SharedBasisConstants, x: Array, i: int, k: int, resp: float, scratch: Array
) -> None:
    d = x.shape[1]  # scratch[0] still holds the point in the basis, from the scores
    _add_to_shared_stats(stats, constants, x, i, k, resp, scratch)
    spread = 0.0
    for b in range(d):
        precision = cache.precision[k, b] + resp
        cache.mean[k, b] += resp / precision * (scratch[0, b] - cache.mean[k, b])
        cache.precision[k, b] = precision
        cache.half_precision[k, b] = 0.5 * precision / (precision + 1.0)
        spread += log_one_plus(1.0 / precision)
    cache.log_norm[k] = constants.log_det - 0.5 * (d * _LOG_2PI + spread)


@implements(score_all, SphericalCache)
def _score_all_spherical(
    cache: Any, stats: Any, constants: Any, x: Any, i: Any, n: Any, score: Any, scratch: Any
) -> None:
    for k in range(n):
        score[k] = _score_spherical(cache.mean, cache.half_precision, cache.log_norm, x, i, k)


@implements(score_all, SharedBasisCache)
def _score_all_shared(cache: Any, stats: Any, constants: Any, x: Any, i: Any, n: Any, score: Any, scratch: Any) -> None:
    _score_shared(cache.mean, cache.half_precision, cache.log_norm, constants, x, i, n, score, scratch)


@implements(absorb, SphericalCache)
def _absorb_one_spherical(
    cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, resp: Any, scratch: Any
) -> None:
    _absorb_spherical(cache, stats, constants[0, 0], x, i, k, resp)


@implements(absorb, SharedBasisCache)
def _absorb_one_shared(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, resp: Any, scratch: Any) -> None:
    _absorb_shared(cache, stats, constants, x, i, k, resp, scratch)


@implements(clear_row, SphericalCache)
def _clear_row_spherical(cache: Any, stats: Any, k: Any, empty: Any) -> None:
    for b in range(cache.mean.shape[1]):  # not by whole rows: that compiles Numba's message about unequal shapes
        cache.mean[k, b] = empty.mean[0, b]
        stats.mean[k, b] = 0.0
    cache.precision[k] = empty.precision[0]
    cache.half_precision[k] = empty.half_precision[0]
    cache.log_norm[k] = empty.log_norm[0]
    stats.mass[k] = stats.scatter[k] = 0.0


@implements(clear_row, SharedBasisCache)
def _clear_row_shared(cache: Any, stats: Any, k: Any, empty: Any) -> None:
    for b in range(cache.mean.shape[1]):
        cache.mean[k, b] = empty.mean[0, b]
        cache.precision[k, b] = empty.precision[0, b]
        cache.half_precision[k, b] = empty.half_precision[0, b]
        stats.mean[k, b] = 0.0
    cache.log_norm[k] = empty.log_norm[0]
    stats.mass[k] = stats.scatter[k] = 0.0


@implements(freeze, SphericalCache, options=FROZEN)
def _freeze(
    cache: Any, stats: Any, constants: Any, log_mass: Any, cut: Any, x: Any, i: Any, rows: Any, n: Any, bounds: Any
) -> Any:
    if n < FEWEST_BOUNDED or n * x.shape[1] < _LEAST_WORK:
        return False
    euclidean_squares(cache.mean, x, i, rows, n, bounds)
    return True


@implements(limit, SphericalCache)
def _limit(cache: Any, k: Any, drift: Any, shrink: Any, log_mass: Any, limits: Any) -> None:
    """A ceiling that is linear in the squared distance r^2 at the block's start: without roots, and of two numbers.

    With t the drift, (max(r - t, 0))^2 >= (1 - s) r^2 - (1/s - 1) t^2 for every s in (0, 1), since 2 r t is at most
    s r^2 + t^2 / s. With s = t/c it is an equality at r = c, for which the usual distance of a component's own points
    is taken; 1/2 where the mean has moved by more than half of that.
    """
    half, moved = cache.half_precision[k], drift[k]
    usual = math.sqrt(0.5 * cache.mean.shape[1] / half)
    share = min(moved / usual, 0.5)
    lost = half * moved * (max(usual, 2.0 * moved) - moved)  # (1/s - 1) t^2
    limits[0, k] = rounded_up(min(max(log_mass[k] + cache.log_norm[k] + lost, -_FAR), _FAR))
    limits[1, k] = np.float32(min(_SQUARE_KEPT * half * (1.0 - share), _FAR))


@compiled()
def _ceilings_at(bounds: SingleArray, j: int, n: int, limits: SingleArray, out: SingleArray) -> None:
    far = np.float32(_FAR)
    for k in range(n):
        q = limits[1, k] * bounds[j, k]
        out[k] = limits[0, k] - (q if q < far else far)


@implements(ceilings, SphericalCache)
def _ceilings(cache: Any, bounds: Any, j: Any, n: Any, limits: Any, out: Any) -> None:
    _ceilings_at(bounds, j, n, limits, out)


@implements(score_one, SphericalCache)
def _score_one(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, scratch: Any) -> Any:
    return _score_spherical(cache.mean, cache.half_precision, cache.log_norm, x, i, k)


@implements(absorb_tracked, SphericalCache)
def _absorb_tracked(
    cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, resp: Any, scratch: Any, tracks: Any, scored: Any
) -> None:
    tracks.drift[k] += math.sqrt(_absorb_spherical(cache, stats, constants[0, 0], x, i, k, resp))
