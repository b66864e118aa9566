"""Gaussian mixtures of other programs as statistics: of full covariances (T, D, D) or variances (T, D)."""

from typing import Any, NamedTuple

import numpy as np

from shoal.families.base import AnyFamily
from shoal.families.diagonal import DiagonalStats, NormalInverseGamma
from shoal.families.gaussian import GaussianStats, NormalInverseWishart
from shoal.kernels import linalg
from shoal.points.arrays import Array


class Posteriors(NamedTuple):
    """Posteriors of T Gaussians under one prior: mu | S ~ N(mean, S / strength), S ~ IW(dof, scale).

    With scales (T, D) each feature has a variance of its own, s ~ IG(dof / 2, scale / 2).
    """

    prior_mean: Array  # (D,)
    prior_strength: float
    prior_dof: float
    prior_scale: Array  # (D, D) or (D,)
    mean: Array  # (T, D)
    strength: Array  # (T,)
    dof: Array  # (T,)
    scale: Array  # (T, D, D) or (T, D)


def family_of(covariance: Array) -> str:
    """Name of the family whose components have such covariances."""
    return NormalInverseGamma.name if covariance.ndim == 2 else NormalInverseWishart.name


def stats_of(mass: Array, mean: Array, covariance: Array) -> Any:
    """Statistics of `mass` (T,) points with the given means (T, D) and covariances."""
    if covariance.ndim == 2:
        return DiagonalStats(mass, mean, mass[:, None] * covariance)
    return GaussianStats(mass, mean, mass[:, None, None] * covariance)


def prior_and_stats_of(given: Posteriors, mass: Array) -> tuple[AnyFamily, Any]:
    """The prior, and the statistics of the `mass` (T,) > 0 points that led from it to the posteriors.

    The updates (Murphy 2007, section 9) solved for the points' means and scatters.
    """
    ratio = given.prior_strength / mass
    mean = given.mean + ratio[:, None] * (given.mean - given.prior_mean)
    apart = np.sqrt(given.prior_strength * mass / given.strength)[:, None] * (mean - given.prior_mean)
    start = (given.prior_mean, given.prior_strength)
    if given.scale.ndim == 2:
        shape_and_rate = 0.5 * given.prior_dof, 0.5 * given.prior_scale
        scatter = np.maximum(given.scale - given.prior_scale - apart**2, 0.0)
        return NormalInverseGamma(*start, *shape_and_rate), DiagonalStats(mass, mean, scatter)
    scatter = given.scale - given.prior_scale - linalg.outer(apart)
    return NormalInverseWishart(*start, given.prior_dof, given.prior_scale), GaussianStats(mass, mean, scatter)
