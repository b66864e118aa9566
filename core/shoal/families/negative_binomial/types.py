"""Named tuples of negative binomial counts: arrays with the component axis first."""

from typing import NamedTuple

from shoal.points.arrays import Array


class NegativeBinomialStats(NamedTuple):
    """Sufficient statistics of K components."""

    mass: Array  # (K,) sum of responsibilities
    total: Array  # (K, D) responsibility-weighted counts
    log_coefficient: Array  # (K,) weighted sum of sum_d log of G(x_d + r_d) / (G(r_d) x_d!)


class NegativeBinomialPredictive(NamedTuple):
    """log p(x) = log_zeros + sum_d [log f(b_d, x_d) - log f(sum_d, x_d) + log f(r_d, x_d)], f(a, n) = G(a + n) / (G(a)
    n!)."""

    b: Array  # (K, D)
    sum: Array  # (K, D) a + b + r
    log_zeros: Array  # (K,) nats, of a row of zeros


class NegativeBinomialDraw(NamedTuple):
    """One likelihood parameter of each component, by the logs of both probabilities."""

    log_success: Array  # (K, D) log theta
    log_failure: Array  # (K, D) log(1 - theta)


class NegativeBinomialCache(NamedTuple):
    """Predictive cache: what kernels keep beside prior and statistics."""

    log_zeros: Array  # (C,) nats, predictive log probability of a row of zeros
