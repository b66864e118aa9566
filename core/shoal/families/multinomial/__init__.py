"""Multinomial components under a Dirichlet prior."""

from shoal.families.multinomial.prior import (
    DirichletMultinomial,
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
