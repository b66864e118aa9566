"""Locations of points, as a search for a first division sees them: a table of few columns.

Points of a located family are their own locations. Counts have the family's `coordinates`. Where these have many
columns, they are projected on the directions of largest variance, found by a randomised range finder with two power
steps (Halko, Martinsson and Tropp 2011, algorithms 4.4 and 5.1), so that no array is as wide as the square of the
vocabulary. The test matrix is drawn from a fixed seed: locations are a function of the points alone.

The distance of two locations depends on units, which a prior over widths knows (`units_of`).
"""

from typing import Any

import numpy as np

from shoal.families import AnyFamily
from shoal.families.capabilities import expected_covariance
from shoal.points.arrays import Array
from shoal.points.rows import Points, SparseRows

MOST_COLUMNS = 32
_OVERSAMPLING, _POWER_STEPS = 8, 2


def locations_of(family: AnyFamily, x: Points) -> Array:
    """(N, E) coordinates of points x (N, D): E = D, or at most 32 for counts of more features."""
    where: Any = family.coordinates(x)
    if not isinstance(where, SparseRows):
        return np.asarray(where)
    if where.shape[1] <= MOST_COLUMNS:
        return where.toarray()
    return _projected(where, min(MOST_COLUMNS, len(where)))


def units_of(family: AnyFamily) -> Array | None:
    """U (E, E) such that locations @ U have the same width in all directions within a component that the prior expects.

    None stands for a multiple of the identity. Only proportions count.
    """
    expected = expected_covariance(family)
    if expected is None or expected.ndim == 0:
        return None
    covariance = np.diag(expected) if expected.ndim == 1 else expected
    if np.array_equal(covariance, covariance[0, 0] * np.eye(len(covariance))):
        return None
    width = np.sqrt(np.diagonal(covariance))
    correlation = covariance / np.outer(width, width)
    return np.asarray(np.linalg.inv(np.linalg.cholesky(correlation)).T / width[:, None])


def _projected(where: SparseRows, n_columns: int) -> Array:
    """Principal coordinates of the rows about their mean, which is not subtracted from them one by one."""
    mean = np.asarray(where.mean(axis=0)).ravel()
    n, width = len(where), min(n_columns + _OVERSAMPLING, *where.shape)

    def down(directions: Array) -> Array:
        """(rows - mean) @ directions."""
        return np.asarray(where @ directions) - mean @ directions

    def up(weights: Array) -> Array:
        """(rows - mean)' @ weights."""
        return np.asarray(where.T @ weights) - np.outer(mean, weights.sum(axis=0))

    basis = down(np.random.default_rng(0).standard_normal((where.shape[1], width)))
    for _ in range(_POWER_STEPS):
        basis = down(np.linalg.qr(up(np.linalg.qr(basis)[0]))[0])
    basis = np.linalg.qr(basis)[0]
    left, sizes, _ = np.linalg.svd(up(basis).T, full_matrices=False)
    return np.ascontiguousarray((basis @ left * sizes)[:n, :n_columns])
