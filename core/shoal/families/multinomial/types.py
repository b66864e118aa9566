"""Named tuples of a multinomial: arrays with the component axis first."""

from typing import NamedTuple

from shoal.points.arrays import Array


class MultinomialStats(NamedTuple):
    """Sufficient statistics of K components."""

    mass: Array  # (K,) sum of responsibilities
    total: Array  # (K, D) responsibility-weighted counts
    log_coefficient: Array  # (K,) weighted sum of log n! - sum_d log x_d!


class MultinomialParams(NamedTuple):
    """theta ~ Dirichlet(pseudo_counts)."""

    pseudo_counts: Array  # (K, D) > 0


class MultinomialPredictive(NamedTuple):
    """log p(x) = sum_d log f(b_d, x_d) - log f(B, n), f(a, n) = G(a + n) / (G(a) n!)."""

    pseudo_counts: Array  # (K, D)
    strength: Array  # (K,) B, their sum


class MultinomialDraw(NamedTuple):
    """One likelihood parameter of each component."""

    log_probability: Array  # (K, D)


class MultinomialCache(NamedTuple):
    """Predictive cache: what kernels keep beside prior and statistics."""

    strength: Array  # (C,) sum of the posterior's pseudo counts
