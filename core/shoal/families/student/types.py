"""Named tuples of Student t components: arrays with the component axis first."""

from typing import NamedTuple

from shoal.families.gaussian.types import GaussianConstants
from shoal.points.arrays import Array


class StudentStats(NamedTuple):
    """Sufficient statistics of K components, with a Gamma distribution q(u) for the precision factor u of each point.

    `r` is a responsibility. Moments are weighted by r E[u], so a point far out counts for little.
    """

    mass: Array  # (K,) sum of r
    weight: Array  # (K,) sum of r E[u]
    mean: Array  # (K, D) mean of points by r E[u]; 0 where the mass is 0
    scatter: Array  # (K, D, D) sum of r E[u] (x - mean)(x - mean)'
    log_weight: Array  # (K,) sum of r E[log u]
    entropy: Array  # (K,) sum of r H(q(u)), nats


class StudentDraw(NamedTuple):
    """One likelihood parameter of each component."""

    mean: Array  # (K, D)
    covariance: Array  # (K, D, D) scale matrix of the Student t: its covariance given u = 1


class StudentCache(NamedTuple):
    """log p(x) = log_norm - power log1p(width |root (x - mean)|^2), with `root` as in `GaussianCache`."""

    mean: Array  # (C, D)
    mean_strength: Array  # (C,)
    dof: Array  # (C,)
    root: Array  # (C, D, D) lower triangular
    log_det: Array  # (C,) log |Psi|
    width: Array  # (C,)
    power: Array  # (C,)
    log_norm: Array  # (C,) nats


class StudentConstants(NamedTuple):
    """The prior, as kernels read it."""

    gaussian: GaussianConstants
    degrees: float
    digamma: float  # digamma((degrees + D) / 2)
    log_gamma: float  # log Gamma((degrees + D) / 2)
