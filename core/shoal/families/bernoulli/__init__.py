"""Binary features under beta priors."""

from shoal.families.bernoulli.prior import (
    BernoulliDraw,
    BernoulliParams,
    BernoulliPredictive,
    BernoulliStats,
    BernoulliWork,
    BetaBernoulli,
)

__all__ = [
    "BernoulliDraw",
    "BernoulliParams",
    "BernoulliPredictive",
    "BernoulliStats",
    "BernoulliWork",
    "BetaBernoulli",
]
