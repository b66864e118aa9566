"""Squared distances of N points to K components, in temporaries of bounded size.

Distances are formed from differences x - mean, never from expanded squares, except where a bound shows that the
expansion (two BLAS products) is exact enough. Differences are clipped at 1e150 widths, so that the square of the
largest point that `as_points` lets in does not overflow: the log density there is finite, and low enough.
"""

from collections.abc import Iterator

import numpy as np

from shoal.points.arrays import Array

BLOCK = 1 << 17
"""Elements of a temporary: 1 MiB, which stays in the second-level cache of most machines."""
FEW = 1 << 13
"""Below so many elements (points x components x features) plain differences beat BLAS."""
LARGEST_WIDTHS = 1e150
EXPANSION_LIMIT = 1e6
"""Largest squared distance, in widths, for which expanded squares serve: the rounding stays below 1e-9."""
SAFE_PRODUCT = 1e18
"""Sixteen factors up to it multiply without overflow."""
FEW_LOGARITHMS = 1 << 11
"""Up to so many are taken one by one: the steps that spare some would take longer to begin."""


def row_blocks(n_rows: int, row_elements: int, block: int = BLOCK) -> Iterator[slice]:
    """Slices that cover n_rows, each of at most `block` elements (and at least one row)."""
    step = max(1, block // max(1, row_elements))
    return (slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step))


def _blocks(n_points: int, n_components: int, n_features: int) -> Iterator[tuple[slice, slice]]:
    """Pairs (points, components) with points x components x features bounded; points in runs long enough for BLAS."""
    points = min(n_points, max(256, BLOCK // max(1, n_components * n_features)))
    for rows in row_blocks(n_points, 1, points):
        for columns in row_blocks(n_components, points * n_features):
            yield rows, columns


def whitened_quadratic(x: Array, mean: Array, whitening: Array) -> Array:
    """|whitening_k (x_n - mean_k)|^2 as (N, K), one BLAS product a component; mean (K, D), whitening (K, D, D)."""
    out = np.empty((x.shape[0], mean.shape[0]))
    for rows, columns in _blocks(x.shape[0], *mean.shape):
        difference = np.ascontiguousarray(x[rows].T) - mean[columns, :, None]
        z = np.matmul(whitening[columns], difference)
        np.clip(z, -LARGEST_WIDTHS, LARGEST_WIDTHS, out=z)
        out[rows, columns] = np.einsum("kdn,kdn->nk", z, z)
    return out


def _squared_widths(x: Array, mean: Array, inverse_width: Array) -> Array:
    """((x_nd - mean_kd) inverse_width_kd)^2 as (K, D, N): long contiguous rows whatever K and D."""
    z = np.ascontiguousarray(x.T) - mean[:, :, None]
    z *= inverse_width[:, :, None]
    z.clip(-LARGEST_WIDTHS, LARGEST_WIDTHS, out=z)
    z *= z
    return z


def diagonal_quadratic(x: Array, mean: Array, inverse_width: Array) -> Array:
    """sum_d ((x_nd - mean_kd) inverse_width_kd)^2 as (N, K); to 1e-9 absolute where BLAS serves, else to rounding."""
    if x.shape[0] * mean.size > FEW:
        origin = mean.mean(axis=0)
        centred, means = x - origin, mean - origin
        extent = np.abs(centred).max(axis=0) + np.abs(means).max(axis=0)
        widths = np.minimum(extent * inverse_width.max(axis=0), LARGEST_WIDTHS)
        if float(widths @ widths) <= EXPANSION_LIMIT:
            return _expanded_quadratic(centred, means, inverse_width)
    out = np.empty((x.shape[0], mean.shape[0]))
    for rows, columns in _blocks(x.shape[0], *mean.shape):
        out[rows, columns] = _squared_widths(x[rows], mean[columns], inverse_width[columns]).sum(axis=1).T
    return out


def _expanded_quadratic(x: Array, mean: Array, inverse_width: Array) -> Array:
    """`diagonal_quadratic` by sum w x^2 - 2 sum w m x + sum w m^2, for x and mean near the origin."""
    weight = inverse_width * inverse_width
    weighted_mean = weight * mean
    out: Array = x @ (-2.0 * weighted_mean.T)
    for rows in row_blocks(x.shape[0], x.shape[1]):
        out[rows] += np.square(x[rows]) @ weight.T
    out += np.einsum("kd,kd->k", weighted_mean, mean)
    return np.maximum(out, 0.0, out=out)


def log1p_quadratic(x: Array, mean: Array, inverse_width: Array) -> Array:
    """sum_d log1p(((x_nd - mean_kd) inverse_width_kd)^2) as (N, K).

    Pairs of terms u, v become u + v + u v, which is (1 + u)(1 + v) - 1 without cancellation, so that one logarithm
    serves up to sixteen features and small terms keep their digits.
    """
    if x.shape[0] * mean.size <= FEW_LOGARITHMS:
        few: Array = np.log1p(_squared_widths(x, mean, inverse_width)).sum(axis=1).T
        return few
    out = np.empty((x.shape[0], mean.shape[0]))
    for rows, columns in _blocks(x.shape[0], *mean.shape):
        u = _squared_widths(x[rows], mean[columns], inverse_width[columns])
        halvings = 4 if u.max(initial=0.0) < SAFE_PRODUCT else 0
        for _ in range(halvings):
            n_terms = u.shape[1]
            lower, upper = u[:, : n_terms // 2], u[:, (n_terms + 1) // 2 :]
            lower += upper * (1.0 + lower)
            u = u[:, : (n_terms + 1) // 2]
        out[rows, columns] = np.log1p(u).sum(axis=1).T
    return out
