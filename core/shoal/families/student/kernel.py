"""The one-pass steps of the Student t. The algebra of a row is in `StudentCache`, that of q(u) in `capabilities`."""

import math
from typing import Any

import numpy as np

from shoal.families.gaussian.kernel import add_outer, clear_moments, move_mean, squared_distance
from shoal.families.steps_kernel import absorb, clear_row, implements, score_all
from shoal.families.student.precision import POINT_ROUNDS
from shoal.families.student.types import StudentCache
from shoal.kernels.cholesky_update import update_root, whiten
from shoal.kernels.math import SATURATION, lgamma_step, log_one_plus, log_positive
from shoal.points.arrays import Array
from shoal.runtime.kernels import compiled

_LOG_PI = math.log(math.pi)


@compiled()
def _expected_square(strength: float, dof: float, resp: float, q: float, degrees: float, d: int) -> float:
    """E (x - mu)' S^-1 (x - mu) given a component that includes the point, at squared distance q before."""
    factor, expected = 1.0, 0.0
    for _ in range(POINT_ROUNDS):
        weight = resp * factor
        left = strength / (strength + weight)
        expected = (dof + resp) * left * left * q / (1.0 + left * weight * q) + d / (strength + weight)
        factor = (degrees + d) / (degrees + expected)
    return expected


@compiled()
def _renew_density(cache: Any, k: int, degrees: float, d: int) -> None:
    """Power, width and constant of the predictive density, from the other fields."""
    n = cache.dof[k] - d + 1.0
    tail = degrees * n / (degrees + n - 2.0)
    width = n / (tail * (1.0 + (1.0 - 2.0 / degrees) / cache.mean_strength[k]))
    cache.width[k] = width
    cache.power[k] = 0.5 * (tail + d)
    constant = lgamma_step(0.5 * tail, 0.5 * d) + 0.5 * d * (math.log(width) - _LOG_PI)
    cache.log_norm[k] = constant - 0.5 * cache.log_det[k]


@compiled()
def _add_to_cache(cache: Any, constants: Any, x: Array, i: int, k: int, resp: float, scratch: Array) -> float:
    """Update the cache; the expected squared distance of the point, by which its q(u) is known."""
    d = x.shape[1]
    strength, degrees = cache.mean_strength[k], constants.degrees
    for b in range(d):
        scratch[0, b] = x[i, b] - cache.mean[k, b]
    q = whiten(cache.root, k, d, scratch)
    expected: float = _expected_square(strength, cache.dof[k], resp, min(q, SATURATION), degrees, d)
    weight = resp * (degrees + d) / (degrees + expected)
    total = strength + weight
    for b in range(d):
        cache.mean[k, b] += weight / total * (x[i, b] - cache.mean[k, b])
    grown = update_root(cache.root, k, d, weight * strength / total, scratch)
    cache.log_det[k] += log_one_plus(min(grown, SATURATION))
    cache.mean_strength[k] = total
    cache.dof[k] += resp
    _renew_density(cache, k, degrees, d)
    return expected


@compiled()
def _add_to_stats(
    stats: Any, constants: Any, x: Array, i: int, k: int, resp: float, expected: float, scratch: Array
) -> None:
    """Add a point whose q(u) has the rate (degrees + expected) / 2."""
    shape = 0.5 * (constants.degrees + x.shape[1])
    rate = 0.5 * (constants.degrees + expected)
    log_rate = log_positive(rate)
    move_mean(stats.weight, stats.mean, x, i, k, resp * shape / rate, scratch, np.int64(0))
    add_outer(stats.scatter, k, scratch, np.int64(0))
    stats.mass[k] += resp
    stats.log_weight[k] += resp * (constants.digamma - log_rate)
    stats.entropy[k] += resp * (shape + constants.log_gamma + (1.0 - shape) * constants.digamma - log_rate)


@implements(score_all, StudentCache)
def _score_all(cache: Any, stats: Any, constants: Any, x: Any, i: Any, n: Any, score: Any, scratch: Any) -> None:
    for k in range(np.uint64(n)):
        q = squared_distance(cache.mean, cache.root, x, i, k, scratch)
        score[k] = min(q, SATURATION) * cache.width[k]
    for k in range(np.uint64(n)):
        score[k] = cache.log_norm[k] - cache.power[k] * log_one_plus(min(score[k], SATURATION))


@implements(absorb, StudentCache)
def _absorb(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, resp: Any, scratch: Any) -> None:
    expected = _add_to_cache(cache, constants, x, i, k, resp, scratch)
    _add_to_stats(stats, constants, x, i, k, resp, expected, scratch)


@implements(clear_row, StudentCache)
def _clear_row(cache: Any, stats: Any, k: Any, empty: Any) -> None:
    clear_moments(cache, stats, k, empty)
    cache.width[k] = empty.width[0]
    cache.power[k] = empty.power[0]
    stats.weight[k] = 0.0
    stats.log_weight[k] = 0.0
    stats.entropy[k] = 0.0
