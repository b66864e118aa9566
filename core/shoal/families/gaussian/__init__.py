"""Gaussian components with unknown mean and covariance."""

from shoal.families.gaussian.inner_gaussian import WithInnerGaussian
from shoal.families.gaussian.prior import (
    FACTOR_BLOCK,
    LEAST_REST,
    NormalInverseWishart,
    log_predictive_in_blocks,
    scales_of_roots,
)
from shoal.families.gaussian.types import GaussianCache, GaussianDraw, GaussianParams, GaussianPredictive, GaussianStats

__all__ = [
    "FACTOR_BLOCK",
    "LEAST_REST",
    "GaussianCache",
    "GaussianDraw",
    "GaussianParams",
    "GaussianPredictive",
    "GaussianStats",
    "NormalInverseWishart",
    "WithInnerGaussian",
    "log_predictive_in_blocks",
    "scales_of_roots",
]
