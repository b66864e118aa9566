"""Binary features under beta priors."""

from shoal.families.bernoulli.prior import BetaBernoulli
from shoal.families.bernoulli.types import (
    BernoulliCache,
    BernoulliDraw,
    BernoulliPredictive,
    BernoulliStats,
)

__all__ = [
    "BernoulliCache",
    "BernoulliDraw",
    "BernoulliPredictive",
    "BernoulliStats",
    "BetaBernoulli",
]
