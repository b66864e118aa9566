"""Overdispersed counts under beta priors."""

from shoal.families.negative_binomial.prior import BetaNegativeBinomial
from shoal.families.negative_binomial.types import (
    NegativeBinomialDraw,
    NegativeBinomialParams,
    NegativeBinomialPredictive,
    NegativeBinomialStats,
    NegativeBinomialWork,
)

__all__ = [
    "BetaNegativeBinomial",
    "NegativeBinomialDraw",
    "NegativeBinomialParams",
    "NegativeBinomialPredictive",
    "NegativeBinomialStats",
    "NegativeBinomialWork",
]
