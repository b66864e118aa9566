"""Log densities that are quadratic in the point: E log p(x | k) = constant_k - |A_k (x - centre_k)|^2 / 2."""

from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np
from scipy.special import psi

from shoal.families import AnyFamily, KnownCovariance, NormalInverseGamma, NormalInverseWishart
from shoal.families.known_covariance import LOG_2PI
from shoal.kernels.linalg import cholesky, inverse_lower, log_determinant, multivariate_digamma
from shoal.points.arrays import Array, IntArray


class Quadratic(NamedTuple):
    """Scores of T components."""

    constant: Array  # (T,)
    centre: Array  # (T, D)
    root: Array  # (T, D, D) lower triangular, or (T, D) the diagonal
    inverse: Array  # of `root`


@singledispatch
def quadratic_of(family: AnyFamily, params: Any) -> Quadratic | None:
    """The scores of a family as quadratic forms; None where they are none."""
    return None


@quadratic_of.register
def _(family: NormalInverseWishart, params: Any) -> Quadratic:
    d, factors = family.n_features, cholesky(params.scale)
    constant = multivariate_digamma(params.dof / 2.0, d) + d * np.log(2.0) - log_determinant(factors)
    constant -= d * (LOG_2PI + 1.0 / params.mean_strength)
    size = np.sqrt(params.dof)[:, None, None]
    return Quadratic(0.5 * constant, params.mean, inverse_lower(factors) * size, factors / size)


@quadratic_of.register
def _(family: NormalInverseGamma, params: Any) -> Quadratic:
    constant = psi(params.shape) - LOG_2PI - 1.0 / params.mean_strength
    constant = family.n_features * constant - np.log(params.rate).sum(axis=1)
    root = np.sqrt(params.shape[:, None] / params.rate)
    return Quadratic(0.5 * constant, params.mean, root, 1.0 / root)


@quadratic_of.register
def _(family: KnownCovariance, params: Any) -> Quadratic | None:
    if not family.spherical:
        return None
    constant = family.log_det_basis - 0.5 * family.n_features * LOG_2PI - 0.5 * (1.0 / params.precision).sum(axis=1)
    root = np.full(params.mean.shape, np.sqrt(1.0 / float(family.covariance)))
    return Quadratic(constant, params.mean, root, 1.0 / root)


def least_stretch(form: Quadratic, rows: IntArray) -> Array:
    """|A v| / |v| does not go below this, for components `rows` (t,): the least singular values, or less."""
    if form.root.ndim == 2:
        return np.asarray(form.root[rows].min(axis=1))
    inverse = form.inverse[rows]
    return np.asarray(1.0 / np.sqrt(largest_eigenvalues(inverse @ inverse.transpose(0, 2, 1))))


def stretched(form: Quadratic, rows: IntArray, vectors: Array) -> Array:
    """(t,) |A v| of vectors (t, D) and components `rows`."""
    root = form.root[rows]
    product = root * vectors if root.ndim == 2 else np.einsum("kde,ke->kd", root, vectors)
    return np.asarray(np.sqrt(np.einsum("kd,kd->k", product, product)))


def largest_eigenvalues(matrices: Array) -> Array:
    """(T,) what the largest eigenvalues of positive definite matrices (T, D, D) do not exceed, by less than half as a
    rule.

    Mean m and deviation s of a matrix's eigenvalues, which trace and sum of squares give, bound the largest by
    m + s sqrt(D - 1) (Wolkowicz and Styan 1980): that of the fourth power, whose root is the closer. It takes a third
    of the time of a spectrum.
    """
    d, size = matrices.shape[1], np.trace(matrices, axis1=1, axis2=2)
    power = matrices / size[:, None, None]
    power = power @ power
    power = power @ power
    middle = np.trace(power, axis1=1, axis2=2) / d
    spread = np.sqrt(np.maximum(np.einsum("kde,kde->k", power, power) / d - middle**2, 0.0))
    return np.asarray(size * (middle + spread * np.sqrt(d - 1.0)) ** 0.25)
