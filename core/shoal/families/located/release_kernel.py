"""The step `release` of the Gaussian families: a point taken out of a component, the one-pass step backwards."""

import math
from typing import Any

from numba.extending import overload

from shoal.families.diagonal.types import DiagonalWork
from shoal.families.gaussian.types import GaussianWork
from shoal.families.known_covariance.kernel import _distance, _squared_norm, _to_basis
from shoal.families.known_covariance.types import SharedBasisWork, SphericalWork
from shoal.families.steps_kernel import LEAST_SHARE, release
from shoal.kernels.cholesky_update import update_root, whiten
from shoal.kernels.math import lgamma_step, log_one_plus
from shoal.points.arrays import Array
from shoal.runtime.kernels import OVERLOAD_OPTIONS, compiled

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
def _release_gaussian(work: Any, stats: Any, x: Array, i: int, k: int, scratch: Array) -> bool:
    """Psi' = Psi - strength / (strength - 1) e e', e from the mean that still holds the point."""
    d = x.shape[1]
    strength = work.mean_strength[k]
    left = strength - 1.0
    for b in range(d):
        scratch[0, b] = x[i, b] - work.mean[k, b]
    q = whiten(work.root, k, d, scratch)
    if 1.0 - strength / left * q < LEAST_SHARE:
        return False
    for b in range(d):
        work.mean[k, b] -= scratch[0, b] / left
    grown = update_root(work.root, k, d, -strength / left, scratch)
    dof = work.dof[k] - 1.0
    log_det = work.log_det[k] + math.log1p(grown)
    work.mean_strength[k] = left
    work.dof[k] = dof
    work.log_det[k] = log_det
    constant = lgamma_step(0.5 * (dof - d + 1.0), 0.5 * d) - 0.5 * d * (_LOG_PI + math.log1p(1.0 / left))
    work.log_norm[k] = constant - 0.5 * log_det
    ratio = _remove_mean(stats.mass, stats.mean, x, i, k, scratch)
    for a in range(d):
        for b in range(d):
            stats.scatter[k, a, b] -= ratio * (scratch[2, a] * scratch[2, b])
        stats.scatter[k, a, a] = max(stats.scatter[k, a, a], 0.0)
    return True


@compiled()
def _release_diagonal(work: Any, stats: Any, x: Array, i: int, k: int, scratch: Array) -> bool:
    """rate' = rate (1 - share u) with u = inverse_spread e^2; scratch[1] holds these factors."""
    d = x.shape[1]
    strength = work.mean_strength[k]
    left = strength - 1.0
    share = (strength + 1.0) / left
    product, logs = 1.0, 0.0
    for b in range(d):
        e = x[i, b] - work.mean[k, b]
        scratch[0, b] = e
        kept = 1.0 - share * work.inverse_spread[k, b] * e * e
        if kept < LEAST_SHARE:
            return False
        scratch[1, b] = kept
        product *= kept
        if product < _SMALL_PRODUCT:
            logs += math.log(product)
            product = 1.0
    factor = (left / strength) * ((strength + 1.0) / strength)
    for b in range(d):
        work.mean[k, b] -= scratch[0, b] / left
        work.inverse_spread[k, b] *= factor / scratch[1, b]
    shape = work.shape[k] - 0.5
    sum_log_rate = work.sum_log_rate[k] + logs + math.log(product)
    work.mean_strength[k] = left
    work.shape[k] = shape
    work.sum_log_rate[k] = sum_log_rate
    per_feature = lgamma_step(shape, 0.5) - 0.5 * (_LOG_2PI + math.log1p(1.0 / left))
    work.log_norm[k] = d * per_feature - 0.5 * sum_log_rate
    ratio = _remove_mean(stats.mass, stats.mean, x, i, k, scratch)
    for b in range(d):
        stats.scatter[k, b] = max(stats.scatter[k, b] - ratio * scratch[2, b] * scratch[2, b], 0.0)
    return True


@compiled()
def _release_spherical(work: Any, stats: Any, variance: float, x: Array, i: int, k: int, scratch: Array) -> bool:
    """Nothing that scores depend on cancels: precisions are known from the mass alone."""
    d = x.shape[1]
    precision = work.precision[k] - 1.0
    for b in range(d):
        work.mean[k, b] -= (x[i, b] - work.mean[k, b]) / precision
    work.precision[k] = precision
    work.half_precision[k] = 0.5 * precision / (variance * (precision + 1.0))
    work.log_norm[k] = 0.5 * d * math.log(work.half_precision[k] / math.pi)
    square = _distance(stats.mean, k, x, i) / variance
    ratio = _remove_mean(stats.mass, stats.mean, x, i, k, scratch)
    stats.scatter[k] = max(stats.scatter[k] - ratio * square, 0.0)
    return True


@compiled()
def _release_shared(work: Any, stats: Any, constants: Any, x: Array, i: int, k: int, scratch: Array) -> bool:
    d = x.shape[1]
    _to_basis(constants.basis, x, i, constants.mean, 0, scratch, 0)
    spread = 0.0
    for b in range(d):
        precision = work.precision[k, b] - 1.0
        work.mean[k, b] -= (scratch[0, b] - work.mean[k, b]) / precision
        work.precision[k, b] = precision
        work.half_precision[k, b] = 0.5 * precision / (precision + 1.0)
        spread += log_one_plus(1.0 / precision)
    work.log_norm[k] = constants.log_det - 0.5 * (d * _LOG_2PI + spread)
    _to_basis(constants.basis, x, i, stats.mean, k, scratch, 1)
    square = _squared_norm(scratch, 1)
    ratio = _remove_mean(stats.mass, stats.mean, x, i, k, scratch)
    stats.scatter[k] = max(stats.scatter[k] - ratio * square, 0.0)
    return True


@overload(release, jit_options=OVERLOAD_OPTIONS)
def _release(work: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, scratch: Any) -> Any:
    def gaussian(work: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, scratch: Any) -> Any:
        return _release_gaussian(work, stats, x, i, k, scratch)

    def diagonal(work: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, scratch: Any) -> Any:
        return _release_diagonal(work, stats, x, i, k, scratch)

    def spherical(work: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, scratch: Any) -> Any:
        return _release_spherical(work, stats, constants[0, 0], x, i, k, scratch)

    def shared(work: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, scratch: Any) -> Any:
        return _release_shared(work, stats, constants, x, i, k, scratch)

    steps: dict[Any, Any] = {GaussianWork: gaussian, DiagonalWork: diagonal}
    steps |= {SphericalWork: spherical, SharedBasisWork: shared}
    return steps.get(getattr(work, "instance_class", None))
