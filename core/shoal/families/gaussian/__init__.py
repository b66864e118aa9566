"""Gaussian components with unknown mean and covariance."""

from shoal.families.gaussian.inner_gaussian import WithInnerGaussian
from shoal.families.gaussian.prior import FACTOR_BLOCK, NormalInverseWishart
from shoal.families.gaussian.types import GaussianCache, GaussianDraw, GaussianParams, GaussianPredictive, GaussianStats

__all__ = [
    "FACTOR_BLOCK",
    "GaussianCache",
    "GaussianDraw",
    "GaussianParams",
    "GaussianPredictive",
    "GaussianStats",
    "NormalInverseWishart",
    "WithInnerGaussian",
]
