"""Gaussian components whose covariance is known."""

from shoal.families.known_covariance.prior import (
    LOG_2PI,
    KnownCovariance,
    KnownCovarianceDraw,
    KnownCovarianceParams,
    KnownCovariancePredictive,
    KnownCovarianceStats,
)

__all__ = [
    "LOG_2PI",
    "KnownCovariance",
    "KnownCovarianceDraw",
    "KnownCovarianceParams",
    "KnownCovariancePredictive",
    "KnownCovarianceStats",
]
