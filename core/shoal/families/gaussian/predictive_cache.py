"""Predictive cache of the Gaussian family, and its kernels in a stream, as methods of `NormalInverseWishart`."""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.families.gaussian.types import GaussianCache, GaussianConstants, GaussianStats
from shoal.families.located.renewal_kernel import renew_gaussian
from shoal.families.predictive_cache import CacheScales, Call
from shoal.kernels import linalg
from shoal.kernels.cholesky import FEW_FEATURES
from shoal.points.arrays import Array, read_only

if TYPE_CHECKING:
    from shoal.families.gaussian.prior import NormalInverseWishart

_LOG_PI = float(np.log(np.pi))
MOST_PRODUCTS, MOST_FACTORS = 1 << 18, 1 << 22
"""Elements of the matrices of all pairs, and K D^3, up to which the kernel for joins is quicker than NumPy."""

LEAST_DEFERRED = 16
"""Least features for which outer products wait: of fewer the scatter is small enough to stay at hand."""


def deferred_rows(family: "NormalInverseWishart", capacity: int) -> int:
    """Rows, of `capacity`, whose outer products wait: all or none."""
    return capacity if family.n_features >= LEAST_DEFERRED else 0


def cache_of(family: "NormalInverseWishart", stats: GaussianStats) -> GaussianCache:
    """The cache of statistics, row by row: a Cholesky factor and its inverse a component."""
    if len(stats.mass) == 1 and not stats.mass[0] and _is_diagonal(family.scale_matrix):
        return _empty_cache(family)
    d = family.n_features
    params = family.posterior(stats)
    factors = linalg.cholesky(params.scale)
    log_det = linalg.log_determinant(factors)
    log_shrink = -np.log1p(1.0 / params.mean_strength)
    log_norm = linalg.log_gamma_ratio((params.dof - d + 1) / 2, d / 2) + 0.5 * (d * (log_shrink - _LOG_PI) - log_det)
    return GaussianCache(
        params.mean, params.mean_strength, params.dof, linalg.inverse_lower(factors), log_det, log_norm
    )


def _empty_cache(family: "NormalInverseWishart") -> GaussianCache:
    """The cache of one component without points under a diagonal scale matrix, to the bit, without a factorisation: a
    search for a prior tries hundreds of such."""
    d, deviation = family.n_features, np.sqrt(family.scale_matrix.diagonal())
    root = np.zeros((1, d, d))
    root.reshape(-1)[:: d + 1] = 1.0 / deviation
    strength, log_det = np.array([family.mean_strength]), np.array([2.0 * np.log(deviation).sum()])
    log_shrink = -np.log1p(1.0 / strength)
    log_norm = _gamma_ratio(family.dof, d) + 0.5 * (d * (log_shrink - _LOG_PI) - log_det)
    return GaussianCache(family.mean[None].copy(), strength, np.array([family.dof]), root, log_det, log_norm)


@lru_cache(maxsize=256)
def _gamma_ratio(dof: float, d: int) -> Array:
    return read_only(linalg.log_gamma_ratio(np.array([(dof - d + 1) / 2]), d / 2))


def _is_diagonal(matrix: Array) -> bool:
    return bool(np.count_nonzero(matrix) == np.count_nonzero(matrix.diagonal()))


def cache_scales(family: "NormalInverseWishart", cache: GaussianCache) -> CacheScales:
    """The least deviation from the largest element of the inverse factor, which has to be triangular."""
    largest = np.abs(cache.root).reshape(len(cache.root), -1).max(axis=1)
    upright = (np.triu(cache.root, 1) == 0).all() & (np.diagonal(cache.root, axis1=1, axis2=2) > 0)
    return CacheScales(1.0 / (largest * np.sqrt(cache.dof)), 1.0, upright)


def kernel_constants(family: "NormalInverseWishart") -> GaussianConstants:
    """The prior's own numbers."""
    matrix = family.scale_matrix
    return GaussianConstants(matrix.copy(), family.mean.copy(), family.mean_strength, _is_diagonal(matrix))


def renewal(family: "NormalInverseWishart", stats: GaussianStats, cache: GaussianCache, n: int) -> Call | None:
    """The kernel that makes the first n rows of `cache` again, up to `FEW_FEATURES` features."""
    if family.n_features > FEW_FEATURES:
        return None
    given = (family.mean, family.mean_strength, family.dof, family.scale_matrix)
    return renew_gaussian, (stats, *given, cache, n)


def join_ceiling(family: "NormalInverseWishart", *given: Any) -> Call:
    """The kernel that bounds the gain of any join from above."""
    from shoal.families.located.join_ceiling_kernel import gaussian_ceiling

    return gaussian_ceiling, (*given, family.mean, family.mean_strength, family.dof, family.scale_matrix)


def join_ceiling_is_quick(family: "NormalInverseWishart", n_pairs: int, n_components: int) -> bool:
    """Whether the kernel takes less time than NumPy for its candidates: it factors matrices."""
    d = family.n_features
    return n_pairs * d * d <= MOST_PRODUCTS and n_components * d**3 <= MOST_FACTORS
