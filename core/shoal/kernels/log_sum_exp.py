"""Logarithm of a sum of exponentials, in NumPy, for arrays so small that the calls take longer than the numbers."""

import numpy as np

from shoal.points.arrays import Array


def log_sum_exp(values: Array) -> Array:
    """log sum exp over the last axis of finite values (..., G), G >= 1, which stays, of length one.

    The largest, and those equal to it, are left out of the sum, so that it loses no digits beside them:
    m e^max (1 + s / m). These are the bits of SciPy 1.17, whose function takes other arguments too: for fifty numbers
    it needs five times as long.
    """
    largest = values.max(axis=-1, keepdims=True)
    rest = np.exp(values - largest)
    at_most = values == largest
    rest[at_most] = 0.0
    n_largest = at_most.sum(axis=-1, keepdims=True, dtype=np.float64)
    return np.asarray(np.log1p(rest.sum(axis=-1, keepdims=True) / n_largest) + np.log(n_largest) + largest)
