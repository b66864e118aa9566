"""The step `release` of the Gaussian families: a point taken out of a component, the one-pass step backwards."""

import math
from typing import Any

from shoal.families.diagonal.types import DiagonalCache
from shoal.families.gaussian.types import GaussianCache
from shoal.families.known_covariance.kernel import squared_distance, squared_norm, to_basis
from shoal.families.known_covariance.types import SharedBasisCache, SphericalCache
from shoal.families.steps_kernel import LEAST_SHARE, implements, release
from shoal.kernels.cholesky_update import update_root, whiten
from shoal.kernels.math import lgamma_step, log_one_plus
from shoal.points.arrays import Array
from shoal.runtime.kernels import compiled

_LOG_PI = math.log(math.pi)
_LOG_2PI = math.log(2.0 * math.pi)
_SMALL_PRODUCT = 1e-200


@compiled()
def _remove_mean(mass: Array, mean: Array, x: Array, i: int, k: int, scratch: Array) -> float:
    """Update mean and mass; x[i] less the old mean into scratch[2]. Returns old mass / new mass."""
    left = mass[k] - 1.0
    for b in range(x.shape[1]):
        scratch[2, b] = x[i, b] - mean[k, b]
        mean[k, b] -= scratch[2, b] / left
    ratio: float = mass[k] / left
    mass[k] = left
    return ratio


@compiled()
def _release_gaussian(cache: Any, stats: Any, x: Array, i: int, k: int, scratch: Array) -> bool:
    """Psi' = Psi - strength / (strength - 1) e e', e from the mean that still holds the point."""
    d = x.shape[1]
    strength = cache.mean_strength[k]
    left = strength - 1.0
    for b in range(d):
        scratch[0, b] = x[i, b] - cache.mean[k, b]
    q = whiten(cache.root, k, d, scratch)
    if 1.0 - strength / left * q < LEAST_SHARE:
        return False
    for b in range(d):
        cache.mean[k, b] -= scratch[0, b] / left
    grown = update_root(cache.root, k, d, -strength / left, scratch)
    dof = cache.dof[k] - 1.0
    log_det = cache.log_det[k] + math.log1p(grown)
    cache.mean_strength[k] = left
    cache.dof[k] = dof
    cache.log_det[k] = log_det
    constant = lgamma_step(0.5 * (dof - d + 1.0), 0.5 * d) - 0.5 * d * (_LOG_PI + math.log1p(1.0 / left))
    cache.log_norm[k] = constant - 0.5 * log_det
    ratio = _remove_mean(stats.mass, stats.mean, x, i, k, scratch)
    for a in range(d):
        for b in range(d):
            stats.scatter[k, a, b] -= ratio * (scratch[2, a] * scratch[2, b])
        stats.scatter[k, a, a] = max(stats.scatter[k, a, a], 0.0)
    return True


@compiled()
def _release_diagonal(cache: Any, stats: Any, x: Array, i: int, k: int, scratch: Array) -> bool:
    """rate' = rate (1 - share u) with u = inverse_spread e^2; scratch[1] holds these factors."""
    d = x.shape[1]
    strength = cache.mean_strength[k]
    left = strength - 1.0
    share = (strength + 1.0) / left
    product, logs = 1.0, 0.0
    for b in range(d):
        e = x[i, b] - cache.mean[k, b]
        scratch[0, b] = e
        kept = 1.0 - share * cache.inverse_spread[k, b] * e * e
        if kept < LEAST_SHARE:
            return False
        scratch[1, b] = kept
        product *= kept
        if product < _SMALL_PRODUCT:
            logs += math.log(product)
            product = 1.0
    factor = (left / strength) * ((strength + 1.0) / strength)
    for b in range(d):
        cache.mean[k, b] -= scratch[0, b] / left
        cache.inverse_spread[k, b] *= factor / scratch[1, b]
    shape = cache.shape[k] - 0.5
    sum_log_rate = cache.sum_log_rate[k] + logs + math.log(product)
    cache.mean_strength[k] = left
    cache.shape[k] = shape
    cache.sum_log_rate[k] = sum_log_rate
    per_feature = lgamma_step(shape, 0.5) - 0.5 * (_LOG_2PI + math.log1p(1.0 / left))
    cache.log_norm[k] = d * per_feature - 0.5 * sum_log_rate
    ratio = _remove_mean(stats.mass, stats.mean, x, i, k, scratch)
    for b in range(d):
        stats.scatter[k, b] = max(stats.scatter[k, b] - ratio * scratch[2, b] * scratch[2, b], 0.0)
    return True


@compiled()
def _release_spherical(cache: Any, stats: Any, variance: float, x: Array, i: int, k: int, scratch: Array) -> bool:
    """Nothing that scores depend on cancels: precisions are known from the mass alone."""
    d = x.shape[1]
    precision = cache.precision[k] - 1.0
    for b in range(d):
        cache.mean[k, b] -= (x[i, b] - cache.mean[k, b]) / precision
    cache.precision[k] = precision
    cache.half_precision[k] = 0.5 * precision / (variance * (precision + 1.0))
    cache.log_norm[k] = 0.5 * d * math.log(cache.half_precision[k] / math.pi)
    square = squared_distance(stats.mean, k, x, i) / variance
    ratio = _remove_mean(stats.mass, stats.mean, x, i, k, scratch)
    stats.scatter[k] = max(stats.scatter[k] - ratio * square, 0.0)
    return True


@compiled()
def _release_shared(cache: Any, stats: Any, constants: Any, x: Array, i: int, k: int, scratch: Array) -> bool:
    d = x.shape[1]
    to_basis(constants.basis, x, i, constants.mean, 0, scratch, 0)
    spread = 0.0
    for b in range(d):
        precision = cache.precision[k, b] - 1.0
        cache.mean[k, b] -= (scratch[0, b] - cache.mean[k, b]) / precision
        cache.precision[k, b] = precision
        cache.half_precision[k, b] = 0.5 * precision / (precision + 1.0)
        spread += log_one_plus(1.0 / precision)
    cache.log_norm[k] = constants.log_det - 0.5 * (d * _LOG_2PI + spread)
    to_basis(constants.basis, x, i, stats.mean, k, scratch, 1)
    square = squared_norm(scratch, 1)
    ratio = _remove_mean(stats.mass, stats.mean, x, i, k, scratch)
    stats.scatter[k] = max(stats.scatter[k] - ratio * square, 0.0)
    return True


@implements(release, GaussianCache)
def _of_gaussian(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, scratch: Any) -> Any:
    return _release_gaussian(cache, stats, x, i, k, scratch)


@implements(release, DiagonalCache)
def _of_diagonal(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, scratch: Any) -> Any:
    return _release_diagonal(cache, stats, x, i, k, scratch)


@implements(release, SphericalCache)
def _of_spherical(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, scratch: Any) -> Any:
    return _release_spherical(cache, stats, constants[0, 0], x, i, k, scratch)


@implements(release, SharedBasisCache)
def _of_shared_basis(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, scratch: Any) -> Any:
    return _release_shared(cache, stats, constants, x, i, k, scratch)
