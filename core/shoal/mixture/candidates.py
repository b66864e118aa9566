"""Which pairs of components are worth valuing for a merge: near ones and overlapping ones, at most four a component."""

from typing import Any

import numpy as np

from shoal.arrays import Array, IntArray
from shoal.families import AnyFamily

_CHUNK_ROWS = 256


def candidate_pairs(family: AnyFamily, stats: Any, pairs: Array) -> tuple[IntArray, IntArray]:
    """Rows (i, j), i < j, each pair once, in order: every component with its two nearest by the distance of means in
    units of the pooled within-component deviation, and with the two of largest running pair sum (K, K), where above
    zero.

    Cost K^2 D for the distances (one matrix product in chunks) and K^2 for the pair sums; memory O(K) beside the input.
    """
    n = len(stats[0])
    points = _scaled_means(family, stats)
    norms = np.einsum("kd,kd->k", points, points)
    found = []
    for start in range(0, n, _CHUNK_ROWS):
        rows = np.arange(start, min(start + _CHUNK_ROWS, n))
        near = norms[None, :] - 2.0 * (points[rows] @ points.T)  # |b|^2 - 2 a'b orders the others as the distance does
        near[rows - start, rows] = np.inf
        found += [_two_least(near, rows, np.inf), _two_least(-pairs[rows], rows, 0.0)]
    i, j = np.concatenate(found, axis=1)
    codes = np.unique(np.minimum(i, j) * n + np.maximum(i, j))
    return codes // n, codes % n


def _two_least(values: Array, rows: IntArray, below: float) -> IntArray:
    """(2, M) pairs of a row and each of its two least columns, where less than `below`; `values` is consumed."""
    own = np.arange(len(rows))
    found = []
    for _ in range(2):
        columns = values.argmin(axis=1)
        good = values[own, columns] < below
        found.append(np.stack([rows[good], columns[good]]))
        values[own, columns] = np.inf
    return np.concatenate(found, axis=1)


def _scaled_means(family: AnyFamily, stats: Any) -> Array:
    """Predictive means (K, D), centred, in units of the mass-weighted root mean within variance of each feature."""
    params = family.posterior(stats)
    means, variances = family.predictive_mean(params), family.predictive_variance(params)
    weight = np.where(np.isfinite(variances).all(axis=1), stats[0], 0.0)
    total = float(weight.sum())
    if total > 0.0:
        deviation = np.sqrt(weight @ np.where(weight[:, None] > 0.0, variances, 0.0) / total)
    else:
        deviation = np.ones(means.shape[1])
    centre = np.where(np.isfinite(means), means, 0.0).mean(axis=0)
    return np.asarray((np.where(np.isfinite(means), means, centre) - centre) / deviation)
