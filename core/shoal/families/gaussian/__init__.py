"""Gaussian components with unknown mean and covariance."""

from shoal.families.gaussian.prior import (
    FACTOR_BLOCK,
    GaussianDraw,
    GaussianParams,
    GaussianPredictive,
    GaussianStats,
    NormalInverseWishart,
)

__all__ = [
    "FACTOR_BLOCK",
    "GaussianDraw",
    "GaussianParams",
    "GaussianPredictive",
    "GaussianStats",
    "NormalInverseWishart",
]
