"""Proportions: Dirichlet components, each with a mean and a precision of its own."""

from shoal.families.dirichlet.prior import DirichletObservations
from shoal.families.dirichlet.types import (
    DirichletCache,
    DirichletDraw,
    DirichletParams,
    DirichletPredictive,
    DirichletStats,
)

__all__ = [
    "DirichletCache",
    "DirichletDraw",
    "DirichletObservations",
    "DirichletParams",
    "DirichletPredictive",
    "DirichletStats",
]
