"""A floor under the variance of features whose values repeat: they are learnt with noise of stated width.

A feature that is constant, or takes few values, breaks a mixture of continuous densities: the variance of a component
shrinks towards nothing as equal values pile up, the evidence grows like n log n without end, and soon nothing else
counts. So such a feature is learnt as if measured with an error: a number rounded to a grid as if spread as widely as
its cell, a constant one as if it had a quarter of the deviation of a typical other. (On the raw pixels of
scikit-learn's digits, three of which are always 0 and others nearly so, the adjusted Rand index against the digits was
.00 and .02 in two orders of the images without any noise.)

The width of a cell suits flags too. Where a component has only zeros its variance is then 1/12, and 1/12 + 1/4 where
zeros and ones are equally frequent. The log densities differ by log(4) / 2 = log 2, as those of a sure bit and of a
fair one do. With a narrower error a Gaussian gains more than that, and patterns of bits become components.

A feature may have one value in most of the rows and many others, as amounts do. The steps between the others say little
of how far that value is from them. Its error is a quarter of its deviation.

Features of which one is a linear function of others, such as a temperature in two units or shares that sum to one,
break a full covariance in the same way, along the direction in which nothing varies. They are learnt with the least
noise, too. (Three groups six deviations apart, in two features and their copies, were two components without any.)

The noise is Gaussian, as components are (a uniform feature would look like several clusters), and a function of the
offset of the point and of the feature alone: a replay gives the same. Questions are answered without it, by what was
learnt with it: the variances reported include the noise's.

Only the rows of the warm-up are looked at. A feature that ties later gets no floor, nor does any under an explicit
prior, which says itself how small a variance may be.
"""

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from shoal.points.arrays import Array, BoolArray, IntArray
from shoal.points.rows import Points, SparseRows

FEWEST_ROWS = 32
"""Fewer rows say nothing about ties."""

CONSTANT = 64 * float(np.finfo(np.float64).eps)
"""Differences of at most this fraction of a column's largest magnitude are rounding."""

LEAST_NOISE = 1 / 64
"""Least deviation of the noise of a tied column, as a fraction of the column's own."""

MOSTLY = 0.6
"""Share of the rows from which a column is mostly one value."""

ONE_VALUE_NOISE = 1 / 4
"""As `LEAST_NOISE`, of a column that is mostly one value. Of a constant column: as a fraction of others' deviation."""

COLLINEAR = 1e-10
"""Variance of a direction of standardised columns up to which it is rounding: that of float32 about a mean of ten
deviations is 1e-13."""

ROWS_A_COLUMN = 2
"""Fewer rows are collinear, or nearly so, by chance."""

_COLUMN, _MIX_1, _MIX_2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def jitter_deviations(rows: Array) -> Array:
    """Deviation (D,) of the noise for each column of rows (N, D): zero unless half the values or more are repeats, or
    the column is a linear function of others.

    Of a tied column: the least distance of different values over sqrt(12), and at least 1/64 of its deviation, or 1/4
    where the column is mostly one value. Of collinear ones: 1/64 of their deviations. Of a constant one: 1/4 of the
    median deviation of the others; all zero where all are constant.
    """
    if len(rows) < FEWEST_ROWS:
        return np.zeros(rows.shape[1])
    ordered = np.sort(rows, axis=0)
    steps, real = _steps(ordered)
    n_distinct = 1 + real.sum(axis=0)
    deviation = rows.std(axis=0)
    constant = n_distinct == 1
    if constant.all():
        return np.zeros(rows.shape[1])
    most = int(MOSTLY * len(rows))
    mostly_one = (ordered[most:] - ordered[: len(rows) - most] <= _rounding(rows)).any(axis=0)
    cell = np.where(real, steps, np.inf).min(axis=0) / np.sqrt(12.0)
    noise_deviation: Array = np.maximum(cell, np.where(mostly_one, ONE_VALUE_NOISE, LEAST_NOISE) * deviation)
    noise_deviation[2 * n_distinct > len(rows)] = 0.0
    untied = np.flatnonzero(noise_deviation == 0.0)
    collinear = untied[_collinear(rows[:, untied])]
    noise_deviation[collinear] = LEAST_NOISE * deviation[collinear]
    noise_deviation[constant] = ONE_VALUE_NOISE * np.median(deviation[~constant])
    return noise_deviation


def varying_columns(rows: Array) -> IntArray:
    """The columns of rows (N, D), N >= 1, that are not constant; all where all are."""
    varies = _steps(np.sort(rows, axis=0))[1].any(axis=0)
    return np.flatnonzero(varies) if varies.any() else np.arange(rows.shape[1])


def _collinear(rows: Array) -> BoolArray:
    """Which columns (D,) of rows (N, D), none of them constant, are linear functions of others, but for rounding."""
    n, d = rows.shape
    if d < 2 or n < ROWS_A_COLUMN * d:
        return np.zeros(d, dtype=np.bool_)
    centred = rows - rows.mean(axis=0)
    centred /= np.abs(centred).max(axis=0)  # squares of values near 1e-170 would be zero
    variance, direction = np.linalg.eigh(np.corrcoef(centred, rowvar=False))
    return np.asarray((direction[:, variance <= COLLINEAR] ** 2).sum(axis=1) > COLLINEAR)


def _steps(ordered: Array) -> tuple[Array, BoolArray]:
    """Differences (N - 1, D) of neighbours in sorted columns, and which of them are more than rounding."""
    steps = np.diff(ordered, axis=0)
    return steps, steps > _rounding(ordered)


def _rounding(rows: Array) -> Array:
    return np.asarray(CONSTANT * np.abs(rows).max(axis=0))


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
