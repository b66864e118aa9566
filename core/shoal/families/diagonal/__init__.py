"""Gaussian components with unknown mean and variance in each feature."""

from shoal.families.diagonal.prior import NormalInverseGamma
from shoal.families.diagonal.types import DiagonalDraw, DiagonalParams, DiagonalPredictive, DiagonalStats, DiagonalWork

__all__ = [
    "DiagonalDraw",
    "DiagonalParams",
    "DiagonalPredictive",
    "DiagonalStats",
    "DiagonalWork",
    "NormalInverseGamma",
]
