"""Predictive cache of the diagonal family, and its kernels in a stream, as methods of `NormalInverseGamma`."""

from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.families.diagonal.types import DiagonalCache, DiagonalStats
from shoal.families.located.renewal_kernel import renew_diagonal
from shoal.families.predictive_cache import CacheScales, Call
from shoal.kernels.linalg import log_gamma_ratio
from shoal.points.arrays import Array

if TYPE_CHECKING:
    from shoal.families.diagonal.prior import NormalInverseGamma

_LOG_2PI = float(np.log(2 * np.pi))
MOST_LOGARITHMS = 1 << 20
"""Features of all pairs up to which the kernel for joins is quicker than NumPy."""


def cache_of(family: "NormalInverseGamma", stats: DiagonalStats) -> DiagonalCache:
    """The cache of statistics, row by row."""
    params = family.posterior(stats)
    strength, shape = params.mean_strength, params.shape
    spread = 0.5 * (strength / (strength + 1.0))[:, None] / params.rate
    sum_log_rate = np.log(params.rate).sum(axis=1)
    per_feature = log_gamma_ratio(shape, 0.5) - 0.5 * (_LOG_2PI + np.log1p(1.0 / strength))
    log_norm = family.n_features * per_feature - 0.5 * sum_log_rate
    return DiagonalCache(params.mean, strength, shape, spread, sum_log_rate, log_norm)


def cache_scales(family: "NormalInverseGamma", cache: DiagonalCache) -> CacheScales:
    """The least deviation of any feature."""
    resolution = 1.0 / np.sqrt(cache.inverse_spread.max(axis=1) * cache.shape)
    return CacheScales(resolution, 1.0, cache.inverse_spread > 0)


def kernel_constants(family: "NormalInverseGamma") -> Array:
    """Nothing (0, 0): the kernel needs no more than the cache."""
    return np.zeros((0, 0))


def renewal(family: "NormalInverseGamma", stats: DiagonalStats, cache: DiagonalCache, n: int) -> Call:
    """The kernel that makes the first n rows of `cache` again."""
    return renew_diagonal, (stats, family.mean, family.mean_strength, family.shape, family.rate, cache, n)


def join_ceiling(family: "NormalInverseGamma", *given: Any) -> Call:
    """The kernel that bounds the gain of any join from above."""
    from shoal.families.located.join_ceiling_kernel import diagonal_ceiling

    return diagonal_ceiling, (*given, family.mean, family.mean_strength, family.shape, family.rate)


def join_ceiling_is_quick(family: "NormalInverseGamma", n_pairs: int, n_components: int) -> bool:
    """Whether the kernel takes less time than NumPy for its candidates: it takes a logarithm of every feature."""
    return n_pairs * family.n_features <= MOST_LOGARITHMS
