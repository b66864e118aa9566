"""A floor under the variance of features whose values repeat: they are learnt with noise of stated width.

A feature that is constant, or takes few values, breaks a mixture of continuous densities: the variance of a component
shrinks towards nothing as equal values pile up, the evidence grows like n log n without end, and soon nothing else
counts. So such a feature is learnt as if measured with an error: a number rounded to a grid as if spread as widely as
its cell, a constant one as if it had a quarter of the deviation of a typical other. (On the raw pixels of
scikit-learn's digits, three of which are always 0 and others nearly so, the adjusted Rand index against the digits was
.00 and .02 in two orders of the images, and is .60 and .53 with this noise.)

The noise is Gaussian, as components are (a uniform feature would look like several clusters), and a function of the
offset of the point and of the feature alone: a replay gives the same. Questions are answered without it, by what was
learnt with it: the variances reported include the noise's.

Only the rows of the warm-up are looked at. A feature that ties later gets no floor, nor does any under an explicit
prior, which says itself how small a variance may be.
"""

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from shoal.points.arrays import Array, IntArray
from shoal.points.rows import Points, SparseRows

FEWEST_ROWS = 32
"""Fewer rows say nothing about ties."""

CONSTANT = 64 * float(np.finfo(np.float64).eps)
"""Differences of at most this fraction of a column's largest magnitude are rounding."""

LEAST_NOISE, MOST_NOISE = 1 / 64, 1 / 4
"""Deviation of the noise of a tied column, as a fraction of the column's own; of a constant one: the second, of
others'."""

_COLUMN, _MIX_1, _MIX_2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def jitter_deviations(rows: Array) -> Array:
    """Deviation (D,) of the noise for each column of rows (N, D): zero unless half the values or more are repeats.

    Of a tied column: the least distance of different values over sqrt(12), within 1/64 and 1/4 of its deviation. Of a
    constant one: 1/4 of the median deviation of the others; all zero where all are constant.
    """
    if len(rows) < FEWEST_ROWS:
        return np.zeros(rows.shape[1])
    gaps = np.diff(np.sort(rows, axis=0), axis=0)
    real = gaps > CONSTANT * np.abs(rows).max(axis=0)
    n_distinct = 1 + real.sum(axis=0)
    deviation = rows.std(axis=0)
    constant = n_distinct == 1
    if constant.all():
        return np.zeros(rows.shape[1])
    cell = np.where(real, gaps, np.inf).min(axis=0) / np.sqrt(12.0)
    noise_deviation: Array = np.clip(cell, LEAST_NOISE * deviation, MOST_NOISE * deviation)
    noise_deviation[2 * n_distinct > len(rows)] = 0.0
    noise_deviation[constant] = MOST_NOISE * np.median(deviation[~constant])
    return noise_deviation


def jittered(x: Points, deviations: Array, offset: int) -> Points:
    """Raw rows x (N, D), the first of which is the point after `offset`, with their noise; x itself where there is
    none, as for sparse rows, which are counts."""
    columns = np.flatnonzero(deviations)
    if columns.size == 0 or isinstance(x, SparseRows):
        return x
    x = x.copy()
    x[:, columns] += deviations[columns] * noise(offset, len(x), columns)
    return x


def noise(offset: int, n: int, columns: IntArray) -> Array:
    """(n, C) numbers that look standard normal: SplitMix64's output function (Steele et al. 2014) of row and
    column."""
    rows = np.arange(offset, offset + n, dtype=np.uint64)
    keys = (rows[:, None] << np.uint64(24)) + columns.astype(np.uint64)
    keys = (keys + np.uint64(1)) * _COLUMN
    keys = (keys ^ (keys >> np.uint64(30))) * _MIX_1
    keys = (keys ^ (keys >> np.uint64(27))) * _MIX_2
    keys ^= keys >> np.uint64(31)
    return normal_of(keys)


def normal_of(keys: npt.NDArray[np.uint64]) -> Array:
    """The normal quantile of 64-bit keys: 52 bits and half a step, each exact in float64, so never 0 or 1 but
    between."""
    return np.asarray(ndtri(((keys >> np.uint64(12)) + 0.5) * 2.0**-52))
