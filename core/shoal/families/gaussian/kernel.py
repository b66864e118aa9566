"""The one-pass steps of the full Gaussian (normal-inverse-Wishart). The algebra of a row is in `GaussianCache`."""

import math
from typing import Any

import numpy as np

from shoal.families.bounds_kernel import (
    FEWEST_BOUNDED,
    FROZEN,
    KEPT,
    LOWEST,
    UNIT,
    euclidean_squares,
    rounded_up,
)
from shoal.families.gaussian.bounds_kernel import least_stretch, refined
from shoal.families.gaussian.types import GaussianCache
from shoal.families.steps_kernel import (
    LIMIT_ROWS,
    Waiting,
    absorb,
    absorb_tracked,
    ceilings,
    clear_row,
    freeze,
    implements,
    limit,
    score_all,
    score_one,
    settle,
)
from shoal.kernels.cholesky_update import MOST_WAITING, add_outer_products, update_root, whiten
from shoal.kernels.math import REORDER, SATURATION, lgamma_step, log_one_plus
from shoal.kernels.threshold import BLOCK, fill_up, place_of_largest, places_from
from shoal.points.arrays import Array, IntArray, SingleArray
from shoal.runtime.kernels import compiled

_LOG_PI = math.log(math.pi)

_FAR, _SMALLEST = 1e37, 1e-37
"""Numbers of ceilings that float32 holds with room to spare."""

_LARGEST_REACH = 1e18
"""Distances whose squares it holds."""

_LARGEST_SPREAD = 1e15
"""Squares up to which float32 can square once more."""

_TERM_KEPT = float(KEPT) ** 3
"""What the rounding of a ceiling's steps leaves of the part that falls with the distance, and less."""

_LEAST_WORK = 5_000
"""Least components x features squared for which bounds are worked out."""


@compiled()
def squared_distance(mean: Array, root: Array, x: Array, i: int, k: int, scratch: Array) -> float:
    """|root[k] (x[i] - mean[k])|^2; in the plane without a loop, of which it would be the larger part."""
    d = x.shape[1]
    if d == 2:
        e, f = x[i, 0] - mean[k, 0], x[i, 1] - mean[k, 1]
        first, second = root[k, 0, 0] * e, root[k, 1, 0] * e + root[k, 1, 1] * f
        square: float = first * first + second * second
        return square
    for b in range(d):
        scratch[0, b] = x[i, b] - mean[k, b]
    distance: float = whiten(root, k, d, scratch)
    return distance


@compiled(fastmath=REORDER)
def _diagonal_distance(mean: Array, root: Array, x: Array, i: int, k: int) -> float:
    """|root[k] (x[i] - mean[k])|^2 of a diagonal root."""
    q = 0.0
    for b in range(x.shape[1]):
        e = root[k, b, b] * (x[i, b] - mean[k, b])
        q += e * e
    return q


@compiled()
def _short_distance(cache: Any, stats: Any, constants: Any, x: Array, i: int, k: int, scratch: Array) -> float:
    """The same, in D steps for an empty component of a prior without covariances."""
    if stats.mass[k] == 0.0 and constants.diagonal:
        near: float = _diagonal_distance(cache.mean, cache.root, x, i, k)
        return near
    distance: float = squared_distance(cache.mean, cache.root, x, i, k, scratch)
    return distance


@compiled()
def _log_density(strength: Array, dof: Array, log_norm: Array, k: int, q: float) -> float:
    """log p at squared distance q."""
    q = q if q < SATURATION else SATURATION
    u = q * (strength[k] / (strength[k] + 1.0))
    density: float = log_norm[k] - 0.5 * (dof[k] + 1.0) * log_one_plus(u)
    return density


@compiled(fastmath={"contract"})
def move_mean(mass: Array, mean: Array, x: Array, i: int, k: int, resp: float, u: Array, row: int) -> None:
    """The pairwise update of mass and mean, and u[row], whose outer product is that of the scatter."""
    total = mass[k] + resp
    gain = resp / total
    root_gain = math.sqrt(mass[k] * gain)
    for b in range(x.shape[1]):
        delta = x[i, b] - mean[k, b]
        mean[k, b] += gain * delta
        u[row, b] = root_gain * delta
    mass[k] = total


@compiled(fastmath={"contract"})
def add_outer(scatter: Array, k: int, u: Array, row: int) -> None:
    """scatter[k] += u[row] u[row]': of one vector, so symmetric to the bit."""
    d = u.shape[1]
    for a in range(d):
        for b in range(d):
            scatter[k, a, b] += u[row, a] * u[row, b]


@compiled()
def _add_to_stats(stats: Any, x: Array, i: int, k: int, resp: float, waiting: Waiting, scratch: Array) -> None:
    """The pairwise update of the centred moments, the scatter's now or later."""
    if waiting.vectors.shape[0] == 0:
        move_mean(stats.mass, stats.mean, x, i, k, resp, scratch, np.int64(0))
        add_outer(stats.scatter, k, scratch, np.int64(0))
        return
    move_mean(stats.mass, stats.mean, x, i, k, resp, waiting.vectors[k], waiting.filled[k])
    waiting.filled[k] += 1
    if waiting.filled[k] == MOST_WAITING:
        add_outer_products(stats.scatter, k, waiting.vectors)
        waiting.filled[k] = 0


@compiled()
def _add_to_cache(
    cache: Any, x: Array, i: int, k: int, resp: float, scratch: Array, whitened: bool
) -> tuple[float, float]:
    """The squared distance of the point before, and by what part the scale matrix grew at most.

    `whitened`: the point is in scratch[1] in the component's metric, and the squared distance in scratch[2, 0].
    """
    d = x.shape[1]
    strength = cache.mean_strength[k]
    total = strength + resp
    q = scratch[2, 0]
    if not whitened:
        for b in range(d):
            scratch[0, b] = x[i, b] - cache.mean[k, b]
        q = whiten(cache.root, k, d, scratch)
    for b in range(d):
        cache.mean[k, b] += resp / total * (x[i, b] - cache.mean[k, b])
    grown = update_root(cache.root, k, d, resp * strength / total, scratch)
    log_det = cache.log_det[k] + log_one_plus(min(grown, SATURATION))
    dof = cache.dof[k] + resp
    cache.mean_strength[k] = total
    cache.dof[k] = dof
    cache.log_det[k] = log_det
    constant = lgamma_step(0.5 * (dof - d + 1.0), 0.5 * d) - 0.5 * d * (_LOG_PI + log_one_plus(1.0 / total))
    cache.log_norm[k] = constant - 0.5 * log_det
    return q, grown


@implements(score_all, GaussianCache)
def _score_all(cache: Any, stats: Any, constants: Any, x: Any, i: Any, n: Any, score: Any, scratch: Any) -> None:
    last = n - 1  # of one pass the empty component
    for k in range(np.uint64(last)):
        score[k] = squared_distance(cache.mean, cache.root, x, i, k, scratch)
    if n > 0:
        score[last] = _short_distance(cache, stats, constants, x, i, np.uint64(last), scratch)
    for k in range(np.uint64(n)):
        score[k] = _log_density(cache.mean_strength, cache.dof, cache.log_norm, k, score[k])


@implements(absorb, GaussianCache)
def _absorb(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, resp: Any, scratch: Any) -> None:
    move_mean(stats.mass, stats.mean, x, i, k, resp, scratch, np.int64(0))
    add_outer(stats.scatter, k, scratch, np.int64(0))
    _add_to_cache(cache, x, i, k, resp, scratch, False)


@compiled()
def clear_moments(cache: Any, stats: Any, k: int, empty: Any) -> None:
    """Make the mean and the scatter of row k those of an empty component, and so what the cache holds of them."""
    for a in range(cache.mean.shape[1]):  # not by whole rows: that compiles Numba's message about unequal shapes
        cache.mean[k, a] = empty.mean[0, a]
        stats.mean[k, a] = 0.0
        for b in range(cache.mean.shape[1]):
            cache.root[k, a, b] = empty.root[0, a, b]
            stats.scatter[k, a, b] = 0.0
    cache.mean_strength[k] = empty.mean_strength[0]
    cache.dof[k] = empty.dof[0]
    cache.log_det[k] = empty.log_det[0]
    cache.log_norm[k] = empty.log_norm[0]
    stats.mass[k] = 0.0


@implements(clear_row, GaussianCache)
def _clear_row(cache: Any, stats: Any, k: Any, empty: Any) -> None:
    clear_moments(cache, stats, k, empty)


@compiled()
def _limit_at(cache: Any, k: int, drift: float, shrink: float, log_mass: float, limits: SingleArray) -> None:
    """What `_ceilings_at` reads of component k, rounded to the safe side."""
    strength = cache.mean_strength[k]
    limits[0, k] = rounded_up(min(max(log_mass + cache.log_norm[k], -_FAR), _FAR))
    limits[1, k] = np.float32(min(_TERM_KEPT * 0.5 * (cache.dof[k] + 1.0), _FAR))
    limits[2, k] = np.float32((1.0 + UNIT) * drift)
    kept = (1.0 - UNIT) * shrink * shrink * (strength / (strength + 1.0))
    limits[3, k] = np.float32(kept if kept > _SMALLEST else 0.0)


@compiled()
def _ceilings_at(bounds: SingleArray, j: int, n: int, limits: SingleArray, out: SingleArray) -> None:
    """A ceiling without a logarithm: log(1 + u) >= u (6 + 3 u) / (6 + 6 u + u^2), u >= 0, since the derivative of their
    difference is u^4 / (1 + u) / (6 + 6 u + u^2)^2. It is close where u is small, as it is of all but the lightest
    components and the farthest points, and rises to 3."""
    nothing, three, six, most = np.float32(0.0), np.float32(3.0), np.float32(6.0), np.float32(_LARGEST_SPREAD)
    for k in range(n):
        least = bounds[j, k] - limits[2, k]
        least = least if least > nothing else nothing
        u = limits[3, k] * (least * least)
        u = u if u < most else most
        out[k] = limits[0, k] - limits[1, k] * (u * (six + three * u) / (six + u * (six + u)))


@implements(limit, GaussianCache)
def _limit(cache: Any, k: Any, drift: Any, shrink: Any, log_mass: Any, limits: Any) -> None:
    _limit_at(cache, k, drift[k], shrink[k], log_mass[k], limits)


@compiled()
def _listed(lists: IntArray, sizes: IntArray, k: Any, j: int) -> None:
    lists[k, sizes[k]] = j
    sizes[k] += 1


@implements(freeze, GaussianCache, options=FROZEN)
def _freeze(
    cache: Any, stats: Any, constants: Any, log_mass: Any, cut: Any, x: Any, i: Any, rows: Any, n: Any, bounds: Any
) -> Any:
    """First by how far each component's mean is, and how little its root can make of that; then in its own metric where
    the point may belong: to the component that looks nearest, then to all that this one does not rule out."""
    d = x.shape[1]
    if n < FEWEST_BOUNDED or n * d * d < _LEAST_WORK:
        return False
    euclidean_squares(cache.mean, x, i, rows, n, bounds)
    stretch, limits = np.empty(n, np.float32), np.empty((LIMIT_ROWS, n), np.float32)
    farthest = np.float32(_LARGEST_REACH)
    for k in range(np.uint64(n)):
        _limit_at(cache, k, 0.0, 1.0, log_mass[k], limits)
        stretch[k] = np.float32(KEPT * least_stretch(cache, stats, constants, k))
    above, active, nearest = np.empty(n + BLOCK, np.float32), np.empty(n + 1, np.uint64), np.empty(rows, np.uint64)
    lists, sizes = np.empty((n, rows), np.int64), np.zeros(n, np.int64)
    fill_up(above, n)
    for j in range(rows):
        for k in range(n):
            distance = stretch[k] * np.sqrt(bounds[j, k])
            bounds[j, k] = distance if distance < farthest else farthest
        _ceilings_at(bounds, j, n, limits, above)
        nearest[j] = place_of_largest(above, n)
        _listed(lists, sizes, nearest[j], j)
    root, e, z = np.empty((d, d), np.float32), np.empty((rows, d), np.float32), np.empty((rows, d), np.float32)
    refined(cache, x, i, lists, sizes, root, e, z, bounds)
    sizes[:] = 0
    for j in range(rows):
        own = nearest[j]
        q = bounds[j, own] * bounds[j, own]
        least = log_mass[own] + _log_density(cache.mean_strength, cache.dof, cache.log_norm, own, q) - cut
        _ceilings_at(bounds, j, n, limits, above)
        above[own] = -math.inf
        for a in range(places_from(above, n, np.float32(max(least, LOWEST)), active)):
            _listed(lists, sizes, active[a], j)
    refined(cache, x, i, lists, sizes, root, e, z, bounds)
    return True


@implements(ceilings, GaussianCache)
def _ceilings(cache: Any, bounds: Any, j: Any, n: Any, limits: Any, out: Any) -> None:
    _ceilings_at(bounds, j, n, limits, out)


@implements(score_one, GaussianCache)
def _score_one(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, scratch: Any) -> Any:
    q = _short_distance(cache, stats, constants, x, i, k, scratch)
    scratch[2, 0] = q
    return _log_density(cache.mean_strength, cache.dof, cache.log_norm, k, q)


@implements(absorb_tracked, GaussianCache)
def _absorb_tracked(
    cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, resp: Any, scratch: Any, tracks: Any, scored: Any
) -> None:
    _add_to_stats(stats, x, i, k, resp, tracks.waiting, scratch)
    q, grown = _add_to_cache(cache, x, i, k, resp, scratch, scored and x.shape[1] != 2)
    tracks.drift[k] += resp / cache.mean_strength[k] * math.sqrt(q) / tracks.shrink[k]
    tracks.shrink[k] /= math.sqrt(1.0 + grown)


@implements(settle, GaussianCache)
def _settle(cache: Any, stats: Any, waiting: Any, n: Any) -> None:
    for k in range(np.uint64(min(n, waiting.filled.size))):
        for row in range(waiting.filled[k]):
            add_outer(stats.scatter, k, waiting.vectors[k], row)
        waiting.filled[k] = 0
