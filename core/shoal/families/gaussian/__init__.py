"""Gaussian components with unknown mean and covariance."""

from shoal.families.gaussian.prior import FACTOR_BLOCK, NormalInverseWishart
from shoal.families.gaussian.types import GaussianDraw, GaussianParams, GaussianPredictive, GaussianStats, GaussianWork

__all__ = [
    "FACTOR_BLOCK",
    "GaussianDraw",
    "GaussianParams",
    "GaussianPredictive",
    "GaussianStats",
    "GaussianWork",
    "NormalInverseWishart",
]
