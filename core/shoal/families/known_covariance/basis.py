"""Coordinates in which two covariances are diagonal together.

A basis is a matrix B with B S B' = I and B S0 B' = diag(l), for a covariance S and a prior covariance S0. Where both
are multiples of the identity B is one too, and products with it cost D instead of D^2; `joint_basis` picks by what it
is given.
"""

from typing import NamedTuple, Protocol

import numpy as np

from shoal.errors import SettingError
from shoal.kernels import linalg
from shoal.points.arrays import Array, read_only

SMALLEST_SPREAD = 1e-14
"""Least ratio of two prior variances in the basis."""


class Basis(Protocol):
    """An invertible linear map of feature vectors (..., D)."""

    @property
    def log_det(self) -> float:
        """log |det B|."""

    def forward(self, x: Array) -> Array:
        """B x for vectors x (..., D)."""

    def backward(self, y: Array) -> Array:
        """B^-1 y for vectors y (..., D)."""

    def matrix(self) -> Array:
        """B (D, D), read-only."""


class ScaledBasis(NamedTuple):
    """B = I / deviation."""

    n_features: int
    deviation: float

    @property
    def log_det(self) -> float:
        """log |det B|."""
        return -self.n_features * float(np.log(self.deviation))

    def forward(self, x: Array) -> Array:
        """B x."""
        return x / self.deviation

    def backward(self, y: Array) -> Array:
        """B^-1 y."""
        return y * self.deviation

    def matrix(self) -> Array:
        """B (D, D)."""
        return read_only(np.eye(self.n_features) / self.deviation)


class DenseBasis(NamedTuple):
    """Any B, with its inverse."""

    forward_matrix: Array  # (D, D)
    backward_matrix: Array  # (D, D)
    log_det: float

    def forward(self, x: Array) -> Array:
        """B x."""
        y: Array = x @ self.forward_matrix.T
        return y

    def backward(self, y: Array) -> Array:
        """B^-1 y."""
        x: Array = y @ self.backward_matrix.T
        return x

    def matrix(self) -> Array:
        """B (D, D)."""
        return self.forward_matrix


def joint_basis(covariance: Array, prior_covariance: Array, n_features: int) -> tuple[Basis, Array]:
    """The basis of S = covariance and S0 = prior_covariance, and l (D,), the prior variances in it.

    Each is a number (a multiple of the identity) or a checked matrix (D, D). Raises SettingError when the l spread over
    more than fourteen orders of magnitude: the least would be rounding.
    """
    if covariance.ndim == 0 and prior_covariance.ndim == 0:
        variance = float(prior_covariance) / float(covariance)
        return ScaledBasis(n_features, float(np.sqrt(covariance))), np.full(n_features, variance)
    factor = linalg.cholesky(_as_matrix(covariance, n_features)[None])
    whitening = linalg.inverse_lower(factor)[0]
    whitened_prior = whitening @ _as_matrix(prior_covariance, n_features) @ whitening.T
    variances, rotation = np.linalg.eigh((whitened_prior + whitened_prior.T) / 2)
    if variances[0] < SMALLEST_SPREAD * variances[-1]:
        raise SettingError(
            f"prior_covariance is {variances[-1]:.3g} times covariance in one direction and {variances[0]:.3g} times "
            "in another, which float64 cannot hold together; choose the two closer to each other in shape"
        )
    backward = factor[0] @ rotation
    log_det = -0.5 * float(linalg.log_determinant(factor)[0])
    return DenseBasis(read_only(rotation.T @ whitening), read_only(backward), log_det), variances


def _as_matrix(covariance: Array, n_features: int) -> Array:
    return covariance if covariance.ndim == 2 else covariance * np.eye(n_features)
