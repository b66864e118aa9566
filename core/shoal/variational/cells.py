"""Cells of a fit: single points, or groups of points that share their responsibilities."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from shoal.families import AnyFamily
from shoal.families.natural_statistics import Origin, statistics
from shoal.inference.locations import locations_of
from shoal.points.arrays import Array, IntArray
from shoal.points.rows import Points, SparseRows

_KEPT_ELEMENTS = 1 << 27
"""Statistics of points are kept up to 1 GiB; above, they are made anew in every pass."""
_BLOCK_ELEMENTS = 1 << 19
"""Elements of statistics in a block: 4 MiB, so that the second product finds them in cache."""


class Cells(NamedTuple):
    """A cells with a common responsibility each: n_a points, the mean of their statistics, and where they lie."""

    family: AnyFamily
    origin: Origin
    location: Array  # (A, E) location of the point (`inference.locations`), or the mean of those of the points
    mass: Array  # (A,) number of points
    rows: Any  # (A, P) mean of t(x), sparse where the family's are; None: single points, made when asked for
    log_carrier: float  # sum over all points
    spread: Array | None  # (A, E, E) mean scatter of the points about `location`; None for single points
    n_points: float
    points: Points | None = None  # (A, D) single points

    @property
    def n_cells(self) -> int:
        """A."""
        return len(self.mass)

    @property
    def width(self) -> int:
        """P."""
        return int(self.rows_of(slice(0, 1)).shape[1])

    def blocks(self) -> Iterator[tuple[slice, Any]]:
        """Pieces of the cells with their rows of statistics (n, P)."""
        step = max(64, _BLOCK_ELEMENTS // self.width)
        for start in range(0, self.n_cells, step):
            part = slice(start, min(start + step, self.n_cells))
            yield part, self.rows_of(part)

    def rows_of(self, part: slice | IntArray) -> Any:
        """Statistics of some of the cells (n, P)."""
        if self.rows is not None:
            return self.rows[part]
        assert self.points is not None, "what is no single point has its rows"
        return statistics(self.family, self.points[part], self.origin).rows


def cells_of_points(family: AnyFamily, x: Points, origin: Origin) -> Cells:
    """Every point a cell of its own."""
    step = max(256, _BLOCK_ELEMENTS // max(1, x.shape[1] ** 2))
    width = statistics(family, x[:1], origin).rows.shape[1]
    if isinstance(statistics(family, x[:1], origin).rows, SparseRows):
        return _sparse_cells(family, x, origin)
    kept = np.empty((len(x), width)) if len(x) * width <= _KEPT_ELEMENTS else None
    carrier = 0.0
    for start in range(0, len(x), step):
        found = statistics(family, x[start : start + step], origin)
        if kept is not None:
            kept[start : start + step] = found.rows
        carrier += float(found.log_carrier.sum())
    locations = locations_of(family, x)
    return Cells(family, origin, locations, np.ones(len(x)), kept, carrier, None, float(len(x)), x)


def _sparse_cells(family: AnyFamily, x: Points, origin: Origin) -> Cells:
    """Points whose statistics are sparse rows: all are kept."""
    found, n = statistics(family, x, origin), len(x)
    carrier = float(found.log_carrier.sum())
    return Cells(family, origin, locations_of(family, x), np.ones(n), found.rows, carrier, None, float(n), x)
