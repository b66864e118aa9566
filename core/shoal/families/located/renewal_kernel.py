"""Compiled computation of the predictive cache of Gaussians: of few features NumPy's calls take longer than their work.

`families.predictive_cache.refresh` gives the same in NumPy, to rounding.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from shoal.kernels.cholesky import factored, log_det_of
from shoal.kernels.math import lgamma_step
from shoal.points.arrays import Array
from shoal.runtime.kernels import compiled, kernel

if TYPE_CHECKING:  # the families import this module
    from shoal.families.diagonal.types import DiagonalCache, DiagonalStats
    from shoal.families.gaussian.types import GaussianCache, GaussianStats

_LOG_PI = math.log(math.pi)
_LOG_2PI = math.log(2.0 * math.pi)


@compiled(fastmath={"contract"})
def _inverted(factor: Array, root: Array, k: int) -> None:
    """Write the inverse of a lower triangular factor (D, D) into root[k]."""
    d = factor.shape[0]
    for a in range(d):
        scale = 1.0 / factor[a, a]
        for b in range(d):
            root[k, a, b] = 0.0
        for c in range(a):
            for b in range(c + 1):
                root[k, a, b] -= factor[a, c] * root[k, c, b]
        for b in range(a):
            root[k, a, b] *= scale
        root[k, a, a] = scale


@kernel()
def renew_gaussian(
    stats: "GaussianStats", mean: Array, mean_strength: float, dof: float, scale: Array, cache: "GaussianCache", n: int
) -> bool:
    """Write into rows 0 <= k < n of `cache` what statistics and prior say; False where a scale matrix has no factor."""
    d = mean.size
    factor, apart = np.empty((d, d)), np.empty(d)
    for k in range(n):
        mass = stats.mass[k]
        strength = mean_strength + mass
        share = mass / strength
        weight = mean_strength * share
        for a in range(d):
            apart[a] = stats.mean[k, a] - mean[a] if mass > 0.0 else 0.0
            cache.mean[k, a] = mean[a] + share * apart[a]
            for b in range(a + 1):
                factor[a, b] = scale[a, b] + stats.scatter[k, a, b] + weight * apart[a] * apart[b]
        if not factored(factor):
            return False
        _inverted(factor, cache.root, k)
        log_det = log_det_of(factor)
        total = dof + mass
        cache.mean_strength[k] = strength
        cache.dof[k] = total
        cache.log_det[k] = log_det
        constant = lgamma_step(0.5 * (total - d + 1.0), 0.5 * d) - 0.5 * d * (_LOG_PI + math.log1p(1.0 / strength))
        cache.log_norm[k] = constant - 0.5 * log_det
    return True


@kernel()
def renew_diagonal(
    stats: "DiagonalStats", mean: Array, mean_strength: float, shape: float, rate: Array, cache: "DiagonalCache", n: int
) -> bool:
    """Write into rows 0 <= k < n of `cache` what statistics and prior say. Always True."""
    d = mean.size
    for k in range(n):
        mass = stats.mass[k]
        strength = mean_strength + mass
        share = mass / strength
        half = 0.5 * strength / (strength + 1.0)
        sum_log_rate = 0.0
        for b in range(d):
            apart = stats.mean[k, b] - mean[b] if mass > 0.0 else 0.0
            own = rate[b] + 0.5 * (stats.scatter[k, b] + mean_strength * share * apart * apart)
            cache.mean[k, b] = mean[b] + share * apart
            cache.inverse_spread[k, b] = half / own
            sum_log_rate += math.log(own)
        total = shape + 0.5 * mass
        cache.mean_strength[k] = strength
        cache.shape[k] = total
        cache.sum_log_rate[k] = sum_log_rate
        a_feature = lgamma_step(total, 0.5) - 0.5 * (_LOG_2PI + math.log1p(1.0 / strength))
        cache.log_norm[k] = d * a_feature - 0.5 * sum_log_rate
    return True
