"""Lower bounds on the distances of points from full Gaussians, in float32.

They follow from the distances of the means, and from the metric of a component itself.
"""

import math
from typing import Any

import numpy as np

from shoal.families.bounds_kernel import KEPT, LARGEST_SQUARE, UNIT
from shoal.families.gaussian.types import GaussianConstants
from shoal.kernels.math import REORDER
from shoal.points.arrays import Array, IntArray, SingleArray
from shoal.runtime.kernels import compiled

_STRETCH_KEPT = 1.0 - 2.0**-10
"""What the rounding of a root that was updated many times leaves of its least singular value, and less."""

_LARGEST_STRETCH = 1e30
"""Stretches that float32 holds with room to spare; beyond, the bound is 0."""

_WORST_CONDITION = 1e10
"""Largest |root|^2 tr(scale), some D^2 for a round component, for which that is sure."""


@compiled(fastmath=REORDER)
def least_stretch(cache: Any, stats: Any, constants: GaussianConstants, k: int) -> float:
    """What |root[k] v| / |v| is at least: 1 / sqrt of a bound on the largest eigenvalue of the scale matrix.

    That is at most m + s sqrt(D - 1), m and s being mean and deviation of the eigenvalues, which trace and sum of
    squares give (Wolkowicz and Styan 1980). 0 where the matrix is so far from a multiple of the unit that rounding
    may have the better of the root.
    """
    d = cache.mean.shape[1]
    weight = constants.mean_strength * stats.mass[k] / (constants.mean_strength + stats.mass[k])
    trace = squares = inverse = 0.0
    for a in range(d):
        e = weight * (stats.mean[k, a] - constants.mean[a])
        for b in range(d):
            scale = constants.scale[a, b] + stats.scatter[k, a, b] + e * (stats.mean[k, b] - constants.mean[b])
            squares += scale * scale
            inverse += cache.root[k, a, b] * cache.root[k, a, b]
        trace += constants.scale[a, a] + stats.scatter[k, a, a] + e * (stats.mean[k, a] - constants.mean[a])
    middle = trace / d
    deviation = math.sqrt(max(squares / d - middle * middle, 0.0))
    largest = middle + deviation * math.sqrt(d - 1.0)
    stretch = _STRETCH_KEPT / math.sqrt(largest)
    return stretch if inverse * trace < _WORST_CONDITION and stretch < _LARGEST_STRETCH else 0.0


@compiled(fastmath=REORDER)
def _squared(a: SingleArray, c: int) -> np.float32:
    """|a[c]|^2."""
    total = np.float32(0.0)
    for b in range(a.shape[1]):
        total += a[c, b] * a[c, b]
    return total


@compiled(fastmath=REORDER)
def _rounded_root(cache: Any, k: int, root: Array) -> float:
    """Write root[k] in float32 into `root` (D, D); its norm."""
    norm = np.float32(0.0)
    for a in range(root.shape[0]):
        for b in range(root.shape[0]):
            r = np.float32(cache.root[k, a, b])
            root[a, b] = r
            norm += r * r
    return math.sqrt(norm)


@compiled()
def _rounded_offset(x: Array, i: int, mean: Array, k: int, e: Array, c: int) -> None:
    """e[c] = x[i] - mean[k], rounded to float32."""
    point, centre, out = x[i], mean[k], e[c]
    for b in range(out.size):
        out[b] = np.float32(point[b] - centre[b])


@compiled(makes_arrays=True)
def _whitened(
    cache: Any, k: int, x: Array, i: int, chosen: IntArray, rows: int, root: Array, e: Array, z: Array, bounds: Array
) -> None:
    """Write the distances of points x[i + j], j of `chosen[:rows]`, from component k into bounds[j, k].

    By one product in float32, lowered by the rounding of root e, at most 2^-24 (D + 2) |root| |e| and as much again
    for its rounded factors. `root` (D, D), `e` and `z` (rows, D), float32, are for scratch.
    """
    d = x.shape[1]
    slack = np.float32((d + 4.0) * UNIT * _rounded_root(cache, k, root))
    for c in range(rows):
        _rounded_offset(x, i + chosen[c], cache.mean, k, e, c)
    np.dot(e[:rows], root.T, z[:rows])
    nothing, largest = np.float32(0.0), np.float32(LARGEST_SQUARE)
    for c in range(rows):
        distance = _squared(z, c)
        least = KEPT * np.sqrt(distance) - slack * np.sqrt(_squared(e, c))
        least = least if least > nothing else nothing
        bounds[chosen[c], k] = least if distance < largest else nothing


@compiled()
def refined(
    cache: Any, x: Array, i: int, lists: IntArray, sizes: IntArray, root: Array, e: Array, z: Array, bounds: Array
) -> None:
    """Distances in the metric of each component k of the points `lists[k, :sizes[k]]`."""
    for k in range(sizes.size):
        if sizes[k] > 0:
            _whitened(cache, k, x, i, lists[k], sizes[k], root, e, z, bounds)
