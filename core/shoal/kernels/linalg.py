"""Stacks of symmetric matrices, and the special functions of the Wishart distribution."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack
from scipy.special import gammaln, psi

from shoal.points.arrays import Array, IntArray, read_only

STIRLING_FROM = 16.0
"""Above it the five terms of Stirling's series used here are exact to 1e-13."""


def cholesky(matrices: Array) -> Array:
    """Lower Cholesky factors of a stack (K, D, D) of symmetric positive definite matrices.

    A matrix that rounding has made slightly indefinite gets the least power of ten, from 1e-15 times D on, of its own
    diagonal added: a change of the size of the rounding itself. Raises LinAlgError when 1e-6 does not suffice.
    """
    try:
        return np.asarray(np.linalg.cholesky(matrices), dtype=np.float64)
    except np.linalg.LinAlgError:
        return np.array([_cholesky_with_jitter(matrix) for matrix in matrices], dtype=np.float64)


def _cholesky_with_jitter(matrix: Array) -> Array:
    """The factor of one matrix (D, D), with relative jitter as small as will do."""
    diagonal = np.diag(np.diag(matrix))
    jitter = 0.0
    while True:
        try:
            return np.asarray(np.linalg.cholesky(matrix + jitter * diagonal), dtype=np.float64)
        except np.linalg.LinAlgError:
            jitter = 10.0 * jitter if jitter else 1e-15 * matrix.shape[0]
            if jitter > 1e-6:
                raise


def inverse_lower(factors: Array) -> Array:
    """Inverses of a stack (K, D, D) of lower triangular matrices, lower triangular and C-ordered."""
    inverses = np.empty_like(factors)
    for factor, inverse in zip(factors, inverses, strict=True):
        upper, _ = lapack.dtrtri(
            factor.T, lower=0
        )  # the transpose of a C-ordered matrix is LAPACK's own order: no copy
        inverse[...] = upper.T
    return inverses


def log_determinant(factors: Array) -> Array:
    """log |L L'| of lower factors (K, D, D): (K,)."""
    diagonal = np.diagonal(factors, axis1=-2, axis2=-1)
    result: Array = 2.0 * np.log(diagonal).sum(axis=-1)
    return result


class _Triangle(NamedTuple):
    """The upper triangle of a D x D matrix, row by row."""

    places: IntArray  # (D (D + 1) / 2,) of its elements in the flat matrix
    multiplicity: Array  # (D (D + 1) / 2,) 1 on the diagonal, 2 elsewhere
    elements: IntArray  # (D D,) the element of the triangle that each element of a symmetric matrix equals


@lru_cache(maxsize=16)
def _upper(n_features: int) -> _Triangle:
    rows, columns = np.triu_indices(n_features)
    elements = np.empty((n_features, n_features), dtype=np.int64)
    elements[rows, columns] = elements[columns, rows] = np.arange(rows.size)
    multiplicity = np.where(rows == columns, 1.0, 2.0)
    return _Triangle(read_only(rows * n_features + columns), read_only(multiplicity), read_only(elements.ravel()))


def pack(matrices: Array, with_multiplicity: bool) -> Array:
    """Upper triangles of symmetric matrices (K, D, D) as rows (K, D (D + 1) / 2).

    With multiplicity off-diagonal elements count twice, so that pack(A, True) . pack(B, False) = trace(A B).
    """
    d = matrices.shape[-1]
    upper = _upper(d)
    flat: Array = matrices.reshape(*matrices.shape[:-2], d * d).take(upper.places, axis=-1)
    return flat * upper.multiplicity if with_multiplicity else flat


def unpack(flat: Array, n_features: int) -> Array:
    """Inverse of `pack` with multiplicity: symmetric matrices (K, D, D)."""
    upper = _upper(n_features)
    elements: Array = (flat / upper.multiplicity).take(upper.elements, axis=-1)
    return elements.reshape(*flat.shape[:-1], n_features, n_features)


def upper_of(flat: Array, n_features: int) -> Array:
    """Upper triangular U (D, D) from an upper triangle (P,) without multiplicity: y'Uy = y'Sy, S being symmetric."""
    upper = _upper(n_features)
    matrix = np.zeros(n_features * n_features)
    matrix[upper.places] = flat * upper.multiplicity
    return matrix.reshape(n_features, n_features)


def outer(vectors: Array) -> Array:
    """v v' of each row: (K, D, D)."""
    product: Array = vectors[..., :, None] * vectors[..., None, :]
    return product


def diagonal_matrices(diagonals: Array) -> Array:
    """The diagonal matrix of each row (K, D): (K, D, D)."""
    k, d = diagonals.shape
    matrices = np.zeros((k, d, d))
    matrices[:, np.arange(d), np.arange(d)] = diagonals
    return matrices


def multivariate_gammaln(a: Array, n_features: int) -> Array:
    """log Gamma_D(a) elementwise (K,); SciPy's takes a scalar dimension but checks and sums one value at a time."""
    steps = 0.5 * np.arange(n_features)
    result: Array = gammaln(a[..., None] - steps).sum(axis=-1) + 0.25 * n_features * (n_features - 1) * np.log(np.pi)
    return result


def multivariate_digamma(a: Array, n_features: int) -> Array:
    """Derivative of `multivariate_gammaln` (K,)."""
    result: Array = psi(a[..., None] - 0.5 * np.arange(n_features)).sum(axis=-1)
    return result


def log_gamma_ratio(a: Array, step: float | Array) -> Array:
    """log Gamma(a + step) - log Gamma(a) elementwise, a > 0, step >= 0, without the cancellation of the difference.

    From a = 16 on Stirling's series, differenced analytically: at a = 1e9 the plain difference has lost seven digits.
    """
    large = np.maximum(a, STIRLING_FROM)
    series: Array = (large + step - 0.5) * np.log1p(step / large) + step * np.log(large) - step
    series = series + _stirling_correction(large + step) - _stirling_correction(large)
    if np.array_equal(large, a):
        return series
    small = np.minimum(a, STIRLING_FROM)
    return np.where(a >= STIRLING_FROM, series, gammaln(small + step) - gammaln(small))


def _stirling_correction(a: Array) -> Array:
    """log Gamma(a) - [(a - 1/2) log a - a + log(2 pi) / 2], a >= 16."""
    r = 1.0 / (a * a)
    return (1 / 12 - r * (1 / 360 - r * (1 / 1260 - r * (1 / 1680 - r / 1188)))) / a
