"""The two products of `quadratic_rows`, of points in tiles: quadratic forms, and second moments. Half of either need be
worked out, which matrix products of BLAS do not do in small blocks."""

import numpy as np

from shoal.kernels.math import REORDER
from shoal.kernels.vectors import LANES
from shoal.points.arrays import Array
from shoal.refinement.lanes_kernel import FOUR, add_forms, add_moments
from shoal.runtime.kernels import kernel

_TILES = 8
"""Tiles whose moments are added up together. Of 64 features a tile is 4 KiB, and one feature of all tiles goes where a
cache of the first level has room for twelve: sixteen took twice the time."""


@kernel(fastmath=REORDER)
def quadratic_forms(tiles: Array, fours: Array, linear: Array, constant: float, out: Array) -> None:
    """y'L y + linear'y + constant into `out` (m,), of points y in tiles (M, W, LANES), L in fours and `linear` (W,)."""
    width, form = tiles.shape[1], np.empty(LANES)
    for tile in range(tiles.shape[0]):
        for j in range(LANES):
            form[j] = constant
        for a in range(width):
            for j in range(LANES):
                form[j] += linear[a] * tiles[tile, a, j]
        for g in range(width // FOUR):
            add_forms(fours, g * width * FOUR, tiles, tile * width * LANES, g, form)
        for j in range(min(LANES, out.size - tile * LANES)):
            out[tile * LANES + j] = form[j]


@kernel(fastmath=REORDER)
def weighted_moments(tiles: Array, weights: Array, first: Array, second: Array) -> None:
    """Sums of w y into `first` (W,) and of w y y' into `second` (W, W), the lower triangle, both zero, of points y in
    tiles (M, W, LANES) and weights w (m,)."""
    n, width = tiles.shape[0], tiles.shape[1]
    counted, weight = np.empty((_TILES, width, LANES)), np.zeros(LANES)
    for start in range(0, n, _TILES):
        count = min(_TILES, n - start)
        for tile in range(count):
            i = (start + tile) * LANES
            for j in range(LANES):
                weight[j] = weights[i + j] if i + j < weights.size else 0.0
            for a in range(width):
                total = 0.0
                for j in range(LANES):
                    counted[tile, a, j] = weight[j] * tiles[start + tile, a, j]
                    total += counted[tile, a, j]
                first[a] += total
        for a in range(0, width, FOUR):
            for b in range(0, a + FOUR, 2):
                place = (start * width + b) * LANES
                add_moments(counted, a * LANES, tiles, place, width, count, second, a * width + b)
