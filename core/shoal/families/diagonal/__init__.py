"""Gaussian components with unknown mean and variance in each feature."""

from shoal.families.diagonal.prior import NormalInverseGamma
from shoal.families.diagonal.types import DiagonalCache, DiagonalDraw, DiagonalParams, DiagonalPredictive, DiagonalStats

__all__ = [
    "DiagonalCache",
    "DiagonalDraw",
    "DiagonalParams",
    "DiagonalPredictive",
    "DiagonalStats",
    "NormalInverseGamma",
]
