"""Proportions: Dirichlet components of known precision, learnt by stochastic gradient."""

from shoal.families.dirichlet.prior import DirichletCache, DirichletObservations

__all__ = ["DirichletCache", "DirichletObservations"]
