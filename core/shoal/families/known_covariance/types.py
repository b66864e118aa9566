"""Named tuples of a Gaussian with a known covariance: arrays with the component axis first."""

from typing import NamedTuple

from shoal.points.arrays import Array


class KnownCovarianceStats(NamedTuple):
    """Sufficient statistics of K components."""

    mass: Array  # (K,) sum of responsibilities
    mean: Array  # (K, D) weighted mean; 0 where the mass is 0
    scatter: Array  # (K,) weighted sum of (x - mean)' covariance^-1 (x - mean)


class KnownCovarianceParams(NamedTuple):
    """Normal posteriors of K means: basis (mu - mean) ~ N(0, diag(1 / precision))."""

    mean: Array  # (K, D) in the coordinates of the input
    precision: Array  # (K, D) in the shared basis: prior_precision + mass


class KnownCovariancePredictive(NamedTuple):
    """Normal: log p(x) = log_constant - sum_d (inverse_width_d (y_d - mean_d))^2 / 2, y = basis (x - prior mean)."""

    mean: Array  # (K, D) in the shared basis, from the prior mean
    inverse_width: Array  # (K, D) 1 / sqrt(1 + 1 / precision)
    log_constant: Array  # (K,) nats


class KnownCovarianceDraw(NamedTuple):
    """One likelihood parameter of each component."""

    mean: Array  # (K, D)


class SphericalCache(NamedTuple):
    """Known covariance s I: log p(x) = log_norm - half_precision |x - mean|^2.

    half_precision = 1 / (2 s (1 + 1 / precision)).
    """

    mean: Array  # (C, D)
    precision: Array  # (C,) of the mean, in units of 1/s
    half_precision: Array  # (C,)
    log_norm: Array  # (C,) nats


class SharedBasisCache(NamedTuple):
    """Known full covariance: log p(x) = log_norm - sum_d half_precision_d (y_d - mean_d)^2, y = basis (x - prior mean).

    half_precision = 1 / (2 (1 + 1 / precision)).
    """

    mean: Array  # (C, D) in the basis, from the prior's mean
    precision: Array  # (C, D) of the mean, in the basis
    half_precision: Array  # (C, D)
    log_norm: Array  # (C,) nats


class SharedBasisConstants(NamedTuple):
    """A known full covariance and the prior, as kernels read them."""

    basis: Array  # (D, D)
    mean: Array  # (1, D) of the prior
    log_det: float
    """log |det basis|."""
