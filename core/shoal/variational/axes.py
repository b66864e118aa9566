"""The axis along which points vary most: worked out, or come near to."""

import numpy as np
from scipy.linalg.lapack import dsyevr

from shoal.points.arrays import Array


def last_axis(covariance: Array) -> Array:
    """The eigenvector (D,) of the largest eigenvalue of a symmetric matrix (D, D): all of them take three times as
    long. Raises LinAlgError where none is found."""
    d = len(covariance)
    _, vectors, found, _, failed = dsyevr(covariance, range="I", il=d, iu=d)
    if failed or found != 1:
        raise np.linalg.LinAlgError(f"no principal axis of a covariance in {d} features was found")
    return np.asarray(vectors[:, 0])


def power_axis(covariance: Array, steps: int) -> Array:
    """A unit vector (D,) near the first principal axis of a covariance: power steps (von Mises and Pollaczek-Geiringer
    1929) from what varies with the widest feature; the first feature where nothing varies.

    With a trace of one no step shrinks the vector by more than a factor of D, so that it is put to length one only at
    the end.
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
