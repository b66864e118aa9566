"""Gaussian components whose covariance is known."""

from shoal.families.known_covariance.prior import LOG_2PI, KnownCovariance
from shoal.families.known_covariance.types import (
    KnownCovarianceDraw,
    KnownCovarianceParams,
    KnownCovariancePredictive,
    KnownCovarianceStats,
    SharedBasisCache,
    SphericalCache,
)

__all__ = [
    "LOG_2PI",
    "KnownCovariance",
    "KnownCovarianceDraw",
    "KnownCovarianceParams",
    "KnownCovariancePredictive",
    "KnownCovarianceStats",
    "SharedBasisCache",
    "SphericalCache",
]
