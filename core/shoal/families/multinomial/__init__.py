"""Multinomial components under a Dirichlet prior."""

from shoal.families.multinomial.prior import DirichletMultinomial
from shoal.families.multinomial.types import (
    MultinomialCache,
    MultinomialDraw,
    MultinomialParams,
    MultinomialPredictive,
    MultinomialStats,
)

__all__ = [
    "DirichletMultinomial",
    "MultinomialCache",
    "MultinomialDraw",
    "MultinomialParams",
    "MultinomialPredictive",
    "MultinomialStats",
]
