"""Starts of a two-way split: the sides of a plane across the principal axis, and those of two means."""

from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dsyevr

from shoal.points.arrays import Array

_LEAST_SHARE = 1e-9
_TWO_MEANS_ROUNDS = 8


class Cloud(NamedTuple):
    """Weighted points, or groups of points, that are to be divided."""

    location: Array  # (m, E)
    spread: Array | None  # (m, E, E) mean scatter of each group about its location
    weight: Array  # (m,)


def starts_of(cloud: Cloud, rng: np.random.Generator, steps: int | None = None) -> list[Array]:
    """Divisions to begin with, (m,) 0 or 1 each: `principal_start` and `two_means`; one where they are the same."""
    starts = [principal_start(cloud, steps), two_means(cloud, rng.random(2))]
    return starts[:1] if same_sides(*starts) else starts


def same_sides(first: Array, second: Array) -> bool:
    """Whether two starts (m,) of 0 and 1 are the same division, whichever side is called the first."""
    return bool(np.all(first == second) or np.all(first != second))


def principal_start(cloud: Cloud, steps: int | None = None) -> Array:
    """(m,) 0 or 1: sides of the plane through the mean, across the first principal axis of the weighted covariance.

    For groups of points the covariance is that of their means plus the scatter within (ERRATA 1.17). With `steps` the
    axis is the result of so many steps of the power method: two groups that lie apart show after a few, and a cloud
    that is as wide in many directions has no better axis than another.
    """
    share = cloud.weight / cloud.weight.sum()
    difference = cloud.location - share @ cloud.location
    weighted = difference * np.sqrt(share)[:, None]
    covariance = weighted.T @ weighted
    if cloud.spread is not None:
        covariance += np.einsum("m,mde->de", share, cloud.spread)
    axis = last_axis(covariance) if steps is None else power_axis(covariance, steps)
    side: Array = (difference @ axis > 0.0).astype(np.float64)
    return side


def two_means(cloud: Cloud, drawn: Array) -> Array:
    """(m,) 1 where a location is nearer to the second of two means, in units of the features' deviations.

    The first means are two of the locations: one by the weights, one by the weights times the squared distance from it
    (k-means++, Arthur and Vassilvitskii 2007), where the two numbers `drawn` from [0, 1) fall. The last round is the
    first that moves no location, or leaves a side next to nothing. All 0 where the locations are one.
    """
    share = cloud.weight / cloud.weight.sum()
    z = cloud.location - share @ cloud.location
    width = np.sqrt(share @ np.square(z))
    z = z / np.where(width > 0.0, width, 1.0)
    first = z[_where_falls(share, float(drawn[0]))]
    far = share * np.square(z - first).sum(axis=1)
    side = np.zeros(len(z))
    if not far.sum() > 0.0:
        return side
    second = z[_where_falls(far, float(drawn[1]))]
    total = share @ z
    for done in range(_TWO_MEANS_ROUNDS):
        now = (z @ (second - first) > 0.5 * (second @ second - first @ first)).astype(np.float64)
        moved, side = bool(np.any(now != side)), now
        ahead = share * side
        mass = float(ahead.sum())
        if min(mass, 1.0 - mass) <= _LEAST_SHARE or (done > 0 and not moved):
            break
        second = ahead @ z / mass
        first = (total - ahead @ z) / (1.0 - mass)
    return side


def _where_falls(weight: Array, drawn: float) -> int:
    """The index in which `drawn` times the sum of weights (m,) >= 0 falls."""
    ends = np.cumsum(weight)
    place = int(np.searchsorted(ends, drawn * ends[-1], side="right"))
    return min(place, int(np.flatnonzero(weight > 0.0)[-1]))


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
    """A unit vector (D,) near the first principal axis: power steps (von Mises and Pollaczek-Geiringer 1929).

    They begin at the column of the widest feature; the first feature is the axis where nothing varies. With a trace of
    one no step shrinks the vector by more than a factor of D, so it is scaled to length one only at the end.
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
