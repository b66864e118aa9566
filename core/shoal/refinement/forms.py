"""Bounds on the quadratic forms |A v| by which components score points."""

import numpy as np

from shoal.families.capabilities import QuadraticForm
from shoal.points.arrays import Array, IntArray


def least_stretch(form: QuadraticForm, rows: IntArray) -> Array:
    """|A v| / |v| does not go below this, for components `rows` (t,): the least singular values, or less."""
    if form.root.ndim == 2:
        return np.asarray(form.root[rows].min(axis=1))
    inverse = form.inverse[rows]
    return np.asarray(1.0 / np.sqrt(largest_eigenvalues(inverse @ inverse.transpose(0, 2, 1))))


def stretched(form: QuadraticForm, rows: IntArray, vectors: Array) -> Array:
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
