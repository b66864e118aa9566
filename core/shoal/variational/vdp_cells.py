"""What responsibilities are held for: single points, or groups of points that share theirs."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from shoal.arrays import Array, IntArray
from shoal.families import AnyFamily
from shoal.variational.vdp_features import Origin, mean_statistics, statistics

_KEPT_ELEMENTS = 1 << 27
"""Statistics of points are kept up to 1 GiB; above, they are made anew in every pass."""
_BLOCK_ELEMENTS = 1 << 19
"""Elements of statistics in a block: 4 MiB, so that the second product finds them in cache."""


class Cells(NamedTuple):
    """A cells with a common responsibility each: n_a points, the mean of their statistics, and where they lie."""

    family: AnyFamily
    origin: Origin
    location: Array  # (A, D) the point, or the mean of the points
    mass: Array  # (A,) number of points
    rows: Array | None  # (A, P) mean of t(x); None: single points, made from `location` when asked for
    log_carrier: float  # sum over all points
    spread: Array | None  # (A, D, D) mean scatter of the points about `location`; None for single points
    reach: Array  # (P,) largest |t| of any cell
    n_points: float

    @property
    def n_cells(self) -> int:
        """A."""
        return len(self.mass)

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Pieces of the cells with their rows of statistics (n, P)."""
        step = max(64, _BLOCK_ELEMENTS // self.reach.size)
        for start in range(0, self.n_cells, step):
            part = slice(start, min(start + step, self.n_cells))
            yield part, self.rows_of(part)

    def rows_of(self, part: slice | IntArray) -> Array:
        """Statistics of some of the cells (n, P)."""
        if self.rows is not None:
            return self.rows[part]
        return statistics(self.family, self.location[part], self.origin).rows


def cells_of_points(family: AnyFamily, x: Array, origin: Origin) -> Cells:
    """Every point a cell of its own."""
    step = max(256, _BLOCK_ELEMENTS // max(1, x.shape[1] ** 2))
    width = statistics(family, x[:1], origin).rows.shape[1]
    kept = np.empty((len(x), width)) if len(x) * width <= _KEPT_ELEMENTS else None
    reach, carrier = np.zeros(width), 0.0
    for start in range(0, len(x), step):
        found = statistics(family, x[start : start + step], origin)
        if kept is not None:
            kept[start : start + step] = found.rows
        np.maximum(reach, np.maximum(found.rows.max(axis=0), -found.rows.min(axis=0)), out=reach)
        carrier += float(found.log_carrier.sum())
    return Cells(family, origin, x, np.ones(len(x)), kept, carrier, None, reach, float(len(x)))


class Group(NamedTuple):
    """Cached statistics of one group of points."""

    mass: float
    location: Array  # (D,)
    row: Array  # (P,) mean of t(x)
    log_carrier: float  # mean of log h(x)
    spread: Array  # (D, D) mean scatter about the location


def group_of_points(family: AnyFamily, x: Array, origin: Origin) -> Group:
    """Points x (n, D), n > 0, as one cell (ERRATA 1.14: mean of t(x) and of log h(x), and the scatter)."""
    row, carrier = mean_statistics(family, x, origin)
    location = x.mean(axis=0)
    difference = x - location
    return Group(float(len(x)), location, row, carrier, difference.T @ difference / len(x))
