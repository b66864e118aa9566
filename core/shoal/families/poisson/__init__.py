"""Poisson counts under gamma priors."""

from shoal.families.poisson.prior import GammaPoisson
from shoal.families.poisson.types import PoissonDraw, PoissonParams, PoissonPredictive, PoissonStats, PoissonWork

__all__ = ["GammaPoisson", "PoissonDraw", "PoissonParams", "PoissonPredictive", "PoissonStats", "PoissonWork"]
