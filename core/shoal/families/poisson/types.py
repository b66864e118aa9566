"""Named tuples of Poisson counts: arrays with the component axis first."""

from typing import NamedTuple

from shoal.points.arrays import Array


class PoissonStats(NamedTuple):
    """Sufficient statistics of K components."""

    mass: Array  # (K,) sum of responsibilities
    total: Array  # (K, D) responsibility-weighted counts
    log_coefficient: Array  # (K,) weighted sum of -sum_d log x_d!


class PoissonParams(NamedTuple):
    """theta_d ~ Gamma(shape_d, rate_d), of mean shape / rate."""

    shape: Array  # (K, D) > 0
    rate: Array  # (K, D) > 0


class PoissonPredictive(NamedTuple):
    """log p(x) = log_zeros + sum_d [log f(shape_d, x_d) - x_d log_rate_d], f(a, n) = G(a + n) / (G(a) n!)."""

    shape: Array  # (K, D)
    log_rate: Array  # (K, D) log(rate + 1)
    log_zeros: Array  # (K,) nats, of a row of zeros


class PoissonDraw(NamedTuple):
    """One likelihood parameter of each component."""

    log_intensity: Array  # (K, D)


class PoissonCache(NamedTuple):
    """Predictive cache: what kernels keep beside prior and statistics."""

    log_zeros: Array  # (C,) nats, predictive log probability of a row of zeros
