"""Points seen from a subspace: their coordinates in it, and their distance from it.

A point x has the coordinates y = W'(x - c), W (D, R) orthonormal, and the squared distance |x - c|^2 - |y|^2. These
R + 1 numbers are all that the family reads of a point. So engines that read points many times hold them as rows of
such numbers (`working_rows`), and every method of the family accepts those in place of points. Their width differs
from D, by which they are told from points.
"""

import numpy as np

from shoal.kernels.distances import row_blocks
from shoal.points.arrays import LARGEST_COORDINATE, Array
from shoal.runtime.kernels import kernel

_BLOCK = 1 << 18
"""Elements of points that are projected at once: 2 MiB."""


def row_width(n_features: int, rank: int) -> int:
    """Numbers of a working row: the coordinates, the distance and, where that were as many as features, a zero."""
    return rank + 1 if rank + 1 != n_features else rank + 2


def projected(x: Array, center: Array, directions: Array) -> Array:
    """Working rows (N, width) of points x (N, D), by one product of a block."""
    d, rank = directions.shape
    out = np.zeros((len(x), row_width(d, rank)))
    for rows in row_blocks(len(x), d, _BLOCK):
        offset = x[rows] - center
        y = offset @ directions
        out[rows, :rank] = y
        if rank < d:
            out[rows, rank] = np.sqrt(np.maximum(squares(offset) - squares(y), 0.0))
    return out


def squares(rows: Array) -> Array:
    """|row|^2 (N,), infinite beyond the largest float."""
    with np.errstate(over="ignore"):
        return np.asarray(np.einsum("nd,nd->n", rows, rows))


@kernel()
def project_into(x: Array, center: Array, directions: Array, coordinates: Array, square: Array) -> None:
    """Write the coordinates (N, R) and squared distances (N,) of points x (N, D).

    Each row for itself, in one order of sums: what is learnt does not depend on where a stream is cut, which a product
    of a block by BLAS would not promise.
    """
    rank = directions.shape[1]
    y = np.empty(rank)
    for i in range(x.shape[0]):
        y[:] = 0.0
        total = 0.0
        for b in range(x.shape[1]):
            e = min(max(x[i, b] - center[b], -LARGEST_COORDINATE), LARGEST_COORDINATE)
            total += e * e
            for a in range(rank):
                y[a] += e * directions[b, a]
        inside = 0.0
        for a in range(rank):
            inside += y[a] * y[a]
            coordinates[i, a] = y[a]
        square[i] = max(total - inside, 0.0) if rank < x.shape[1] else 0.0
