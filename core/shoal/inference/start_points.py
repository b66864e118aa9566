"""Starts of a two-way split: locations of the points, the sides of a plane across their principal axis, and two means.

Locations are a table of few columns. Points of a located family are their own locations. Counts have the family's
`coordinates`. Where these have many columns, they are projected on the directions of largest variance, found by a
randomised range finder with two power steps (Halko, Martinsson and Tropp 2011, algorithms 4.4 and 5.1), so that no
array is as wide as the square of the vocabulary. The test matrix is drawn from a fixed seed: locations are a function
of the points alone. The distance of two locations depends on units, which a prior over widths knows (`units_of`).
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.lapack import dsyevr

from shoal.families import AnyFamily
from shoal.families.capabilities import expected_covariance
from shoal.points.arrays import Array
from shoal.points.rows import Points, SparseRows

_LEAST_SHARE = 1e-9
_TWO_MEANS_ROUNDS = 8
_FEW_FEATURES, _AXIS_STEPS = 32, 30
"""Up to so many features a principal axis is computed; beyond, so many power steps stand for it."""
MOST_COLUMNS = 32
_OVERSAMPLING, _SKETCH_STEPS = 8, 2


class Cloud(NamedTuple):
    """Weighted points, or groups of points, that are to be divided."""

    location: Array  # (m, E)
    spread: Array | None  # (m, E, E) mean scatter of each group about its location
    weight: Array  # (m,)


def starts_of(cloud: Cloud, rng: np.random.Generator, steps: int | None = None) -> list[Array]:
    """Divisions to begin with, (m,) 0 or 1 each: `principal_start` and `two_means`; one where they are the same."""
    share, difference = about_mean(cloud)
    starts = [_across(cloud.spread, share, difference, steps), two_means(share, difference, rng.random(2))]
    return starts[:1] if same_sides(*starts) else starts


def power_steps(n_features: int) -> int | None:
    """Steps of the power method that find a principal axis in so many features well enough. None: it is computed."""
    return None if n_features <= _FEW_FEATURES else _AXIS_STEPS


def same_sides(first: Array, second: Array) -> bool:
    """Whether two starts (m,) of 0 and 1 are the same division, whichever side is called the first."""
    return int(np.count_nonzero(first != second)) in (0, first.size)


def principal_start(cloud: Cloud, steps: int | None = None) -> Array:
    """(m,) 0 or 1: sides of the plane through the mean, across the first principal axis of the weighted covariance.

    For groups of points the covariance is that of their means plus the scatter within (ERRATA 1.17). With `steps` the
    axis is the result of so many steps of the power method: two groups that lie apart show after a few, and a cloud
    that is as wide in many directions has no better axis than another.
    """
    return _across(cloud.spread, *about_mean(cloud), steps)


def about_mean(cloud: Cloud) -> tuple[Array, Array]:
    """Weights (m,) that sum to one, and the locations less the mean under them (m, E)."""
    share = cloud.weight / cloud.weight.sum()
    return share, cloud.location - share @ cloud.location


def _across(spread: Array | None, share: Array, difference: Array, steps: int | None) -> Array:
    side: Array = (difference @ weighted_axis(spread, share, difference, steps) > 0.0).astype(np.float64)
    return side


def weighted_axis(spread: Array | None, share: Array, difference: Array, steps: int | None) -> Array:
    """The first principal axis (E,) of weights (m,) that sum to one and locations less the mean under them (m, E).

    `spread` and `steps` are as in `principal_start`.
    """
    weighted = difference * np.sqrt(share)[:, None]
    if spread is None and steps is not None and 2 * weighted.shape[0] < weighted.shape[1]:
        return power_axis_of_rows(weighted, steps)
    covariance = weighted.T @ weighted
    if spread is not None:
        covariance += np.einsum("m,mde->de", share, spread)
    return last_axis(covariance) if steps is None else power_axis(covariance, steps)


def two_means(share: Array, difference: Array, drawn: Array) -> Array:
    """(m,) 1 where a location is nearer to the second of two means, in units of the features' deviations.

    `share` (m,) are weights that sum to one, `difference` (m, E) locations less the mean under them. The first means
    are two of the locations: one by the weights, one by the weights times the squared distance from it (k-means++,
    Arthur and Vassilvitskii 2007), where the two numbers `drawn` from [0, 1) fall. All 0 where the locations are one.
    """
    from shoal.inference.two_means_kernel import divide_by_two_means

    side = np.zeros(share.size)
    divide_by_two_means(difference, share, drawn, _TWO_MEANS_ROUNDS, _LEAST_SHARE, side)
    return side


def last_axis(covariance: Array) -> Array:
    """The eigenvector (D,) of the largest eigenvalue of a symmetric matrix (D, D); a third of the time of all of them.

    Raises LinAlgError where none is found.
    """
    d = len(covariance)
    _, vectors, found, _, failed = dsyevr(covariance, range="I", il=d, iu=d)
    if failed or found != 1:
        raise np.linalg.LinAlgError(f"no principal axis of a covariance in {d} features was found")
    return np.asarray(vectors[:, 0])


def power_axis(covariance: Array, steps: int) -> Array:
    """A unit vector (D,) near the first principal axis of a `covariance` (D, D) with a trace of one.

    Found by power steps (von Mises and Pollaczek-Geiringer 1929) from the column of the widest feature; the first
    feature is the axis where nothing varies. With a trace of one no step shrinks the vector by more than a factor of D,
    so it is scaled to length one only at the end.
    """
    variance = np.diagonal(covariance)
    total = float(variance.sum())
    if not total > 0.0:
        return np.eye(1, len(covariance)).ravel()
    covariance = covariance / total
    axis: Array = covariance[int(np.argmax(variance))]
    for _ in range(steps):
        axis = covariance @ axis
    unit: Array = axis / np.sqrt(axis @ axis)
    return unit


def power_axis_of_rows(rows: Array, steps: int) -> Array:
    """`power_axis` of R'R, to rounding, for rows R (m, D) with m < D: a component of an embedding often has few.

    The steps of R'R are those of RR' between R' and R, so that only m^2 numbers are read in each.
    """
    variance = np.einsum("md,md->d", rows, rows)
    total = float(variance.sum())
    if not total > 0.0:
        return np.eye(1, rows.shape[1]).ravel()
    rows = rows / np.sqrt(total)
    products, along = rows @ rows.T, rows[:, int(np.argmax(variance))]
    for _ in range(steps):
        along = products @ along
    axis = along @ rows
    unit: Array = axis / np.sqrt(axis @ axis)
    return unit


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
    for _ in range(_SKETCH_STEPS):
        basis = down(np.linalg.qr(up(np.linalg.qr(basis)[0]))[0])
    basis = np.linalg.qr(basis)[0]
    left, sizes, _ = np.linalg.svd(up(basis).T, full_matrices=False)
    return np.ascontiguousarray((basis @ left * sizes)[:n, :n_columns])
