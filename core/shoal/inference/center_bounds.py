"""Lower bounds on the distances of rows from components by the distances from their centres alone.

With s_k the least singular value of the root A_k, |A_k (x - centre_k)| >= s_k |x - centre_k|, and all |x - centre_k|
come from one matrix product.
"""

from typing import NamedTuple

import numpy as np

from shoal.families.capabilities import QuadraticForm
from shoal.points.arrays import Array, IntArray, SingleArray

_SLACK = 1e-12
"""As `_single_slack`, in double precision."""
_LARGEST_SINGLE = 1e30
"""Squares of lengths up to which nothing overflows in single precision."""
_LEAST_SQUARE, _LARGEST_SCALE = 1e-30, 1e15
"""Errors of products too small for single precision, and the largest singular value that is used with them."""
_MOST_BLUR = 10.0
"""Nats by which single precision may weaken the bounds of a typical component."""
_MARGIN = 5e-6
"""Relative rounding of a least singular value, and of single precision."""


class CenterBounds(NamedTuple):
    """T components, as their centres bound distances."""

    middle: Array  # (D,) of the centres
    centres: Array  # (D, T) less the middle
    squares: Array  # (T,) of their lengths
    least: Array  # (T,) least singular values, or a little less
    single: SingleArray | None
    """The centres in single precision; None where that would weaken the bounds."""

    def least_distances(self, x: Array) -> SingleArray:
        """(n, T) lower bounds for rows x (n, D)."""
        rows = x - self.middle
        own = np.einsum("nd,nd->n", rows, rows)
        if self.single is not None and own.max(initial=0.0) <= _LARGEST_SINGLE:
            product = rows.astype(np.float32) @ self.single
            kept = np.float32(1.0 - _single_slack(rows.shape[1]))
            square = (own.astype(np.float32)[:, None] + self.squares.astype(np.float32)) * kept
            square -= np.float32(2.0) * product + np.float32(_LEAST_SQUARE)
            scale = np.minimum(self.least, _LARGEST_SCALE).astype(np.float32)
            return np.asarray(np.sqrt(np.maximum(square, np.float32(0.0))) * scale)
        square_exact = (own[:, None] + self.squares) * (1.0 - _SLACK) - 2.0 * (rows @ self.centres)
        distance = np.sqrt(np.maximum(square_exact, 0.0)) * self.least
        return np.asarray(np.minimum(distance, _LARGEST_SINGLE), dtype=np.float32)


def center_bounds(form: QuadraticForm, rows: IntArray) -> CenterBounds:
    """Bounds of the components `rows`, at least one."""
    centre, least = form.centre[rows], least_singular_values(form, rows) * (1.0 - _MARGIN)
    middle = centre.mean(axis=0)
    centres = centre - middle
    squares = np.einsum("kd,kd->k", centres, centres)
    blur = _single_slack(len(middle)) * float(np.median(np.square(least)) * squares.mean())
    fits = squares.max() <= _LARGEST_SINGLE and blur <= _MOST_BLUR
    single = np.ascontiguousarray(centres.T, dtype=np.float32) if fits else None
    return CenterBounds(middle, centres.T, squares, least, single)


def least_singular_values(form: QuadraticForm, rows: IntArray) -> Array:
    """(t,) the least singular values of the roots of components `rows`, or less."""
    if form.root.ndim == 2:
        return np.asarray(form.root[rows].min(axis=1))
    inverse = form.inverse[rows]
    return np.asarray(1.0 / np.sqrt(largest_eigenvalues(inverse @ inverse.transpose(0, 2, 1))))


def lengths(form: QuadraticForm, rows: IntArray, vectors: Array) -> Array:
    """(t,) |A v| of vectors (t, D) and components `rows`."""
    root = form.root[rows]
    product = root * vectors if root.ndim == 2 else np.einsum("kde,ke->kd", root, vectors)
    return np.asarray(np.sqrt(np.einsum("kd,kd->k", product, product)))


def largest_eigenvalues(matrices: Array) -> Array:
    """(T,) upper bounds of the largest eigenvalues of positive definite matrices (T, D, D), mostly by less than half.

    Mean m and deviation s of a matrix's eigenvalues, which trace and sum of squares give, bound the largest by
    m + s sqrt(D - 1) (Wolkowicz and Styan 1980). The bound of the fourth power, whose root is taken, is the closer one.
    It costs a third of a spectrum.
    """
    d, size = matrices.shape[1], np.trace(matrices, axis1=1, axis2=2)
    power = matrices / size[:, None, None]
    power = power @ power
    power = power @ power
    middle = np.trace(power, axis1=1, axis2=2) / d
    spread = np.sqrt(np.maximum(np.einsum("kde,kde->k", power, power) / d - middle**2, 0.0))
    return np.asarray(size * (middle + spread * np.sqrt(d - 1.0)) ** 0.25)


def _single_slack(d: int) -> float:
    """Rounding of a squared distance in d dimensions computed by a product in single precision.

    Relative to the squares that it is the difference of: of both factors and of d sums (Higham 2002, section 3.1), and
    of the squares themselves.
    """
    return (d + 12) * 2.0**-24
