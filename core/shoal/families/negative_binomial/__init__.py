"""Overdispersed counts under beta priors."""

from shoal.families.negative_binomial.prior import BetaNegativeBinomial
from shoal.families.negative_binomial.types import (
    NegativeBinomialCache,
    NegativeBinomialDraw,
    NegativeBinomialParams,
    NegativeBinomialPredictive,
    NegativeBinomialStats,
)

__all__ = [
    "BetaNegativeBinomial",
    "NegativeBinomialCache",
    "NegativeBinomialDraw",
    "NegativeBinomialParams",
    "NegativeBinomialPredictive",
    "NegativeBinomialStats",
]
