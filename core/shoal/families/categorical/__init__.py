"""Categorical components under Dirichlet priors."""

from shoal.families.categorical.prior import DirichletCategorical
from shoal.families.categorical.types import (
    CategoricalCache,
    CategoricalConstants,
    CategoricalDraw,
    CategoricalParams,
    CategoricalPredictive,
    CategoricalStats,
)

__all__ = [
    "CategoricalCache",
    "CategoricalConstants",
    "CategoricalDraw",
    "CategoricalParams",
    "CategoricalPredictive",
    "CategoricalStats",
    "DirichletCategorical",
]
