"""Named tuples of binary features: arrays with the component axis first."""

from typing import NamedTuple

from shoal.points.arrays import Array


class BernoulliStats(NamedTuple):
    """Sufficient statistics of K components."""

    mass: Array  # (K,) sum of responsibilities
    total: Array  # (K, D) weighted number of ones, <= mass but for rounding


class BernoulliPredictive(NamedTuple):
    """log p(x) = log_zeros + sum_d x_d log_odds_d."""

    log_odds: Array  # (K, D)
    log_zeros: Array  # (K,) nats, of a row of zeros


class BernoulliDraw(NamedTuple):
    """One likelihood parameter of each component, by the logs of both probabilities."""

    log_one: Array  # (K, D)
    log_zero: Array  # (K, D)


class BernoulliCache(NamedTuple):
    """Predictive cache: what kernels keep beside prior and statistics."""

    log_zeros: Array  # (C,) nats, predictive log probability of a row of zeros
