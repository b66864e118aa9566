"""Proportions: Dirichlet components of known precision, learnt by stochastic gradient."""

from shoal.families.dirichlet.prior import DirichletObservations, DirichletWork

__all__ = ["DirichletObservations", "DirichletWork"]
