"""Binary features under beta priors."""

from shoal.families.bernoulli.prior import BetaBernoulli
from shoal.families.bernoulli.types import (
    BernoulliCache,
    BernoulliDraw,
    BernoulliParams,
    BernoulliPredictive,
    BernoulliStats,
)

__all__ = [
    "BernoulliCache",
    "BernoulliDraw",
    "BernoulliParams",
    "BernoulliPredictive",
    "BernoulliStats",
    "BetaBernoulli",
]
