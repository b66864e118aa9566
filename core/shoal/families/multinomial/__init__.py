"""Multinomial components under a Dirichlet prior."""

from shoal.families.multinomial.prior import DirichletMultinomial
from shoal.families.multinomial.types import (
    MultinomialDraw,
    MultinomialParams,
    MultinomialPredictive,
    MultinomialStats,
    MultinomialWork,
)

__all__ = [
    "DirichletMultinomial",
    "MultinomialDraw",
    "MultinomialParams",
    "MultinomialPredictive",
    "MultinomialStats",
    "MultinomialWork",
]
