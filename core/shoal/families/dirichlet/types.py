"""Named tuples of a family of proportions: arrays with the component axis first."""

from typing import NamedTuple

from shoal.points.arrays import Array

LEAST_SHARE = 1e-12
"""Smaller shares count as this one."""


class DirichletStats(NamedTuple):
    """Sufficient statistics of K components."""

    mass: Array  # (K,) sum of responsibilities
    total: Array  # (K, D) responsibility-weighted sum of log x


class DirichletParams(NamedTuple):
    """p(alpha) in proportion to exp(alpha'total) / B(alpha)^mass times the prior."""

    total: Array  # (K, D)
    mass: Array  # (K,)


class DirichletPredictive(NamedTuple):
    """Posteriors and what scoring a point begins with."""

    total: Array  # (K, D)
    mass: Array  # (K,)
    alpha: Array  # (K, D) the mode of log alpha, as alpha
    log_partition: Array  # (K,) nats


class DirichletDraw(NamedTuple):
    """One likelihood parameter of each component."""

    alpha: Array  # (K, D)


class DirichletCache(NamedTuple):
    """Predictive cache: what kernels keep beside prior and statistics.

    The last four fields are those of an estimate of the score: log_front + sum (alpha - 1) log x, and what a point
    moves.
    """

    alpha: Array  # (C, D)
    log_partition: Array  # (C,)
    log_front: Array  # (C,) -log B(alpha)
    expected: Array  # (C, D) E[log x | alpha]
    curvature: Array  # (C, D)
    coupling: Array  # (C,)
