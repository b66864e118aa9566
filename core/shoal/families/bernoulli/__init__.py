"""Binary features under beta priors."""

from shoal.families.bernoulli.prior import BetaBernoulli
from shoal.families.bernoulli.types import (
    BernoulliDraw,
    BernoulliParams,
    BernoulliPredictive,
    BernoulliStats,
    BernoulliWork,
)

__all__ = [
    "BernoulliDraw",
    "BernoulliParams",
    "BernoulliPredictive",
    "BernoulliStats",
    "BernoulliWork",
    "BetaBernoulli",
]
