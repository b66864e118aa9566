"""Named tuples of a Gaussian with unknown mean and variance in each feature: arrays with the component axis first."""

from typing import NamedTuple

from shoal.points.arrays import Array


class DiagonalStats(NamedTuple):
    """Sufficient statistics of K components."""

    mass: Array  # (K,) sum of responsibilities
    mean: Array  # (K, D) weighted mean; 0 where the mass is 0
    scatter: Array  # (K, D) weighted sum of (x_d - mean_d)^2


class DiagonalParams(NamedTuple):
    """Normal-inverse-gamma parameters: mu_d | s_d ~ N(mean_d, s_d / mean_strength), s_d ~ IG(shape, rate_d)."""

    mean: Array  # (K, D)
    mean_strength: Array  # (K,) > 0
    shape: Array  # (K,) > 0, shared by the features
    rate: Array  # (K, D) > 0


class DiagonalPredictive(NamedTuple):
    """log p(x) = log_constant - power * sum_d log1p((inverse_width_d (x_d - mean_d))^2), a product of Student t."""

    mean: Array  # (K, D)
    inverse_width: Array  # (K, D)
    log_constant: Array  # (K,) nats
    power: Array  # (K,)


class DiagonalDraw(NamedTuple):
    """One likelihood parameter of each component."""

    mean: Array  # (K, D)
    variance: Array  # (K, D)


class DiagonalCache(NamedTuple):
    """log p(x) = log_norm - (shape + 1/2) log prod_d (1 + inverse_spread_d (x_d - mean_d)^2).

    inverse_spread = mean_strength / (2 (mean_strength + 1) rate).
    """

    mean: Array  # (C, D)
    mean_strength: Array  # (C,)
    shape: Array  # (C,)
    inverse_spread: Array  # (C, D)
    sum_log_rate: Array  # (C,)
    log_norm: Array  # (C,) nats
