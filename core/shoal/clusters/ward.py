"""Ward's tree over points with masses.

Each join takes the two groups whose union adds least to the sum of squares within groups (Ward 1963). A point of mass m
counts as m points at one place, so that a heavy component is not moved by light ones around it.
"""

import numpy as np

from shoal.points.arrays import Array, BoolArray, IntArray

_LEAST_MASS = 1e-12
"""Relative to the mean: a component whose mass has underflowed still has a place in the tree."""


def weighted_ward(points: Array, masses: Array, origin: Array | None = None) -> Array:
    """Ward's tree over points (K, E) with masses (K,) >= 0, as SciPy's linkage matrix (K - 1, 4).

    A row holds the two nodes joined, the height and the number of points below. Nodes below K are points, and node
    K + r is the join of row r. The height is sqrt(2 a b / (a + b)) times the distance of the centres, for masses a and
    b: SciPy's `ward` where masses are one. Half its square is what the join adds to the sum of squares. Heights never
    fall. Equal inputs give equal bits. Distances of points near `origin` (E,) have all digits; None: their mean.

    Found by chains of nearest neighbours (Murtagh 1983). Cost K^2 (E + 10) operations, memory 8 K^2 bytes.
    """
    n = len(masses)
    if n < 2:
        return np.zeros((0, 4))
    mean = float(masses.mean())
    mass = np.maximum(masses, _LEAST_MASS * mean) if mean > 0.0 else np.ones(n)
    pairs, squares = _joins(_ward_squares(points, mass, origin), mass)
    order = np.argsort(squares, kind="stable")
    return linkage_of(pairs[order], np.sqrt(np.maximum(squares[order], 0.0)))


def _ward_squares(points: Array, mass: Array, origin: Array | None) -> Array:
    """2 a b / (a + b) |x_a - x_b|^2 (K, K), infinite on the diagonal."""
    centred = points - ((mass / mass.sum()) @ points if origin is None else origin)
    squares: Array = centred @ centred.T
    norms = np.diag(squares).copy()
    squares *= -2.0
    squares += norms
    squares += norms[:, None]
    np.maximum(squares, 0.0, out=squares)
    inverse = 0.5 / mass
    squares /= inverse + inverse[:, None]
    np.fill_diagonal(squares, np.inf)
    return squares


def _joins(squares: Array, mass: Array) -> tuple[IntArray, Array]:
    """Pairs of rows (K - 1, 2) in the order found, with the squared height of each; the second row then stands for
    both. Overwrites both arguments.

    A chain goes from each group to its nearest one. It ends at two groups that are each other's nearest. Their union is
    no nearer to any other group than the nearer of the two was, so the rest of the chain stays valid.
    """
    n = mass.size
    pairs, heights = np.empty((n - 1, 2), dtype=np.int64), np.empty(n - 1)
    live, chain = np.ones(n, dtype=np.bool_), np.empty(n + 1, dtype=np.int64)
    length = 0
    for step in range(n - 1):
        if length == 0:
            chain[0], length = live.argmax(), 1
        while True:
            here = chain[length - 1]
            near = squares[here].argmin()
            if length > 1:
                before = chain[length - 2]
                if squares[here, before] <= squares[here, near]:  # among equals the one before, or the chain would turn
                    near = before
                    break
            chain[length], length = near, length + 1
        length -= 2
        gone, kept = min(here, near), max(here, near)
        pairs[step], heights[step] = (gone, kept), squares[here, near]
        _join_rows_inplace(squares, mass, live, gone, kept)
    return pairs, heights


def _join_rows_inplace(squares: Array, mass: Array, live: BoolArray, gone: int, kept: int) -> None:
    """The row of the union, by the recurrence of Lance and Williams (1967)."""
    own = squares[gone, kept]
    union = (mass[gone] + mass) * squares[gone]
    union += (mass[kept] + mass) * squares[kept]
    union -= mass * own
    mass[kept] += mass[gone]
    union /= mass[kept] + mass
    live[gone] = False
    union[~live] = np.inf
    union[kept] = np.inf
    np.maximum(union, 0.0, out=union)
    squares[kept], squares[:, kept] = union, union
    squares[gone], squares[:, gone] = np.inf, np.inf


def linkage_of(pairs: IntArray, heights: Array) -> Array:
    """SciPy's linkage matrix (K - 1, 4) of joins in order. A row of `pairs` (K - 1, 2) names a point of each side."""
    n = len(pairs) + 1
    linkage = np.empty((n - 1, 4))
    root, node, size = np.arange(n), np.arange(n), np.ones(n)
    for row, (a, b) in enumerate(pairs.tolist()):
        first, second = _root(root, a), _root(root, b)
        size[second] += size[first]
        linkage[row] = *sorted((node[first], node[second])), heights[row], size[second]
        root[first], node[second] = second, n + row
    return linkage


def _root(root: IntArray, row: int) -> int:
    while root[row] != row:
        root[row] = root[root[row]]
        row = int(root[row])
    return row
