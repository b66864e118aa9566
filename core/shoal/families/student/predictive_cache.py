"""Predictive cache of the Student family, as methods of `MultivariateStudent`."""

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln, psi

from shoal.families.predictive_cache import CacheScales
from shoal.families.student.types import StudentCache, StudentConstants, StudentStats
from shoal.kernels import linalg

if TYPE_CHECKING:
    from shoal.families.student.prior import MultivariateStudent


def cache_of(family: "MultivariateStudent", stats: StudentStats) -> StudentCache:
    """The cache of statistics, row by row: a Cholesky factor and its inverse a component."""
    params = family.posterior(stats)
    factors = linalg.cholesky(params.scale)
    log_det = linalg.log_determinant(factors)
    power, width, log_norm = family.density_terms(params.mean_strength, params.dof, log_det)
    root = linalg.inverse_lower(factors)
    return StudentCache(params.mean, params.mean_strength, params.dof, root, log_det, width, power, log_norm)


def cache_scales(family: "MultivariateStudent", cache: StudentCache) -> CacheScales:
    """The least deviation from the largest element of the inverse factor, which has to be triangular."""
    largest = np.abs(cache.root).reshape(len(cache.root), -1).max(axis=1)
    upright = (np.triu(cache.root, 1) == 0).all() & (np.diagonal(cache.root, axis1=1, axis2=2) > 0)
    return CacheScales(1.0 / (largest * np.sqrt(cache.dof)), 1.0, upright)


def kernel_constants(family: "MultivariateStudent") -> StudentConstants:
    """The prior's own numbers, and those of q(u) that are the same for every point."""
    shape = 0.5 * (family.degrees + family.n_features)
    return StudentConstants(family.inner.kernel_constants(), family.degrees, float(psi(shape)), float(gammaln(shape)))
