"""Proportions: Dirichlet components of known precision, learnt by stochastic gradient."""

from shoal.families.dirichlet_gradient.prior import DirichletByGradient, DirichletGradientCache

__all__ = ["DirichletByGradient", "DirichletGradientCache"]
