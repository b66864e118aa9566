"""Overdispersed counts under beta priors."""

from shoal.families.negative_binomial.prior import BetaNegativeBinomial
from shoal.families.negative_binomial.types import (
    NegativeBinomialCache,
    NegativeBinomialDraw,
    NegativeBinomialPredictive,
    NegativeBinomialStats,
)

__all__ = [
    "BetaNegativeBinomial",
    "NegativeBinomialCache",
    "NegativeBinomialDraw",
    "NegativeBinomialPredictive",
    "NegativeBinomialStats",
]
