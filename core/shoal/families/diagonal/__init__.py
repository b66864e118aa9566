"""Gaussian components with unknown mean and variance in each feature."""

from shoal.families.diagonal.prior import (
    DiagonalDraw,
    DiagonalParams,
    DiagonalPredictive,
    DiagonalStats,
    NormalInverseGamma,
)

__all__ = ["DiagonalDraw", "DiagonalParams", "DiagonalPredictive", "DiagonalStats", "NormalInverseGamma"]
