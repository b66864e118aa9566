"""Poisson counts under gamma priors."""

from shoal.families.poisson.prior import GammaPoisson
from shoal.families.poisson.types import PoissonCache, PoissonDraw, PoissonParams, PoissonPredictive, PoissonStats

__all__ = ["GammaPoisson", "PoissonCache", "PoissonDraw", "PoissonParams", "PoissonPredictive", "PoissonStats"]
