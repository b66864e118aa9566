"""Named tuples of a Gaussian with unknown mean and covariance: arrays with the component axis first."""

from typing import NamedTuple

from shoal.points.arrays import Array


class GaussianStats(NamedTuple):
    """Sufficient statistics of K components."""

    mass: Array  # (K,) sum of responsibilities
    mean: Array  # (K, D) weighted mean; 0 where the mass is 0
    scatter: Array  # (K, D, D) weighted sum of (x - mean)(x - mean)'


class GaussianParams(NamedTuple):
    """Normal-inverse-Wishart parameters of K components: mu | S ~ N(mean, S / mean_strength), S ~ IW(dof, scale)."""

    mean: Array  # (K, D)
    mean_strength: Array  # (K,) > 0
    dof: Array  # (K,) > D - 1
    scale: Array  # (K, D, D) positive definite


class GaussianPredictive(NamedTuple):
    """log p(x) = log_constant - power * log1p(|whitening (x - mean)|^2), a Student t."""

    mean: Array  # (K, D)
    whitening: Array  # (K, D, D) lower triangular
    log_constant: Array  # (K,) nats
    power: Array  # (K,)


class GaussianDraw(NamedTuple):
    """One likelihood parameter of each component."""

    mean: Array  # (K, D)
    covariance: Array  # (K, D, D)


class GaussianCache(NamedTuple):
    """log p(x) = log_norm - (dof + 1)/2 log1p(c |root (x - mean)|^2), c = mean_strength / (mean_strength + 1).

    `root` is the inverse of the Cholesky factor of the scale matrix Psi, so Psi^-1 = root' root. Against Psi^-1
    itself it halves the digits that a far outlier costs, its squared distances cannot turn negative, and scoring
    reads half the memory. An outlier beyond 1e16 deviations still takes every digit of the other directions with it.
    """

    mean: Array  # (C, D)
    mean_strength: Array  # (C,)
    dof: Array  # (C,)
    root: Array  # (C, D, D) lower triangular
    log_det: Array  # (C,) log |Psi|
    log_norm: Array  # (C,) nats


class GaussianConstants(NamedTuple):
    """The prior, as kernels read it."""

    scale: Array  # (D, D)
    mean: Array  # (D,)
    mean_strength: float
    diagonal: bool
    """Whether `scale` is diagonal."""
