"""Predictive cache under a known covariance, and its kernels in a stream, as methods of `KnownCovariance`."""

from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.families.known_covariance.types import (
    KnownCovarianceStats,
    SharedBasisCache,
    SharedBasisConstants,
    SphericalCache,
)
from shoal.families.predictive_cache import CacheScales, Call
from shoal.points.arrays import Array

if TYPE_CHECKING:
    from shoal.families.known_covariance.prior import KnownCovariance

_LOG_2PI = float(np.log(2 * np.pi))
MOST_DIFFERENCES = 1 << 23
"""Features of all pairs up to which the kernel for joins is quicker than NumPy."""


def cache_of(family: "KnownCovariance", stats: KnownCovarianceStats) -> SphericalCache | SharedBasisCache:
    """The cache of statistics, row by row."""
    return _spherical(family, stats) if family.spherical else _shared_basis(family, stats)


def _spherical(family: "KnownCovariance", stats: KnownCovarianceStats) -> SphericalCache:
    params = family.posterior(stats)
    precision = params.precision[:, 0]
    variance = float(family.covariance)
    half_precision = 0.5 * precision / (variance * (precision + 1.0))
    log_norm = -0.5 * family.n_features * (_LOG_2PI + np.log(variance) + np.log1p(1.0 / precision))
    return SphericalCache(params.mean, precision, half_precision, log_norm)


def _shared_basis(family: "KnownCovariance", stats: KnownCovarianceStats) -> SharedBasisCache:
    params = family.posterior(stats)
    mean = family.to_basis(params.mean - family.mean)
    half_precision = 0.5 * params.precision / (params.precision + 1.0)
    log_norm = family.log_det_basis - 0.5 * (_LOG_2PI + np.log1p(1.0 / params.precision)).sum(axis=1)
    return SharedBasisCache(mean, params.precision, half_precision, log_norm)


def cache_scales(family: "KnownCovariance", cache: SphericalCache | SharedBasisCache) -> CacheScales:
    """The deviation from the precision; scatters are in units of the covariance."""
    resolution = 1.0 / np.sqrt(2.0 * cache.half_precision.reshape(len(cache.mean), -1).max(axis=1))
    return CacheScales(resolution, resolution, cache.half_precision > 0)


def kernel_constants(family: "KnownCovariance") -> Array | SharedBasisConstants:
    """Spherical: the variance (1, 1)."""
    if family.spherical:
        return np.full((1, 1), float(family.covariance))
    return SharedBasisConstants(np.array(family.basis), family.mean[None].copy(), family.log_det_basis)


def join_ceiling(family: "KnownCovariance", *given: Any) -> Call | None:
    """The kernel that bounds the gain of any join from above; None unless spherical."""
    if not family.spherical:
        return None
    from shoal.families.located.join_ceiling_kernel import spherical_ceiling

    return spherical_ceiling, (*given, family.mean, float(family.prior_precision[0]), float(family.covariance))


def join_ceiling_is_quick(family: "KnownCovariance", n_pairs: int, n_components: int) -> bool:
    """Whether the kernel takes less time than NumPy for its candidates."""
    return n_pairs * family.n_features <= MOST_DIFFERENCES
