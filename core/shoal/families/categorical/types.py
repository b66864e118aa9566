"""Named tuples of a categorical family: arrays with the component axis first. P is the number of levels of all features
together; those of one feature stand beside one another."""

from typing import NamedTuple

from shoal.points.arrays import Array, IntArray


class CategoricalStats(NamedTuple):
    """Sufficient statistics of K components."""

    mass: Array  # (K,) sum of responsibilities
    total: Array  # (K, P) responsibility-weighted number of points of each level


class CategoricalParams(NamedTuple):
    """The probabilities of each feature's levels ~ Dirichlet(pseudo_counts of its levels)."""

    pseudo_counts: Array  # (K, P) > 0


class CategoricalPredictive(NamedTuple):
    """log p(x) is the sum over features of the entry of its level."""

    log_probability: Array  # (K, P)


class CategoricalDraw(NamedTuple):
    """One likelihood parameter of each component."""

    log_probability: Array  # (K, P)


class CategoricalCache(NamedTuple):
    """Predictive cache: what kernels keep beside prior and statistics."""

    log_norm: Array  # (C,) minus the sum over features of log(sum of the posterior's pseudo counts)


class CategoricalConstants(NamedTuple):
    """What kernels read of the prior."""

    pseudo_counts: Array  # (P,)
    strength: Array  # (D,) their sums
    start: IntArray  # (D + 1,) where each feature's levels begin among the P
