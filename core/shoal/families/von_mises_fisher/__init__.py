"""Unit vectors: von Mises-Fisher components about a direction, each with its own concentration."""

from shoal.families.von_mises_fisher.prior import VonMisesFisher
from shoal.families.von_mises_fisher.types import (
    VonMisesFisherCache,
    VonMisesFisherConstants,
    VonMisesFisherDraw,
    VonMisesFisherParams,
    VonMisesFisherPredictive,
    VonMisesFisherStats,
)

__all__ = [
    "VonMisesFisher",
    "VonMisesFisherCache",
    "VonMisesFisherConstants",
    "VonMisesFisherDraw",
    "VonMisesFisherParams",
    "VonMisesFisherPredictive",
    "VonMisesFisherStats",
]
