"""Lower bounds on the distances of rows from components, carried from one pass to the next.

Between passes components change little, and most are far from most rows. Elkan (2003) bounds the distances of k-means
so; here each component has its own metric. With root A and centre c of the last pass, and A', c' of this one,

    |A' (x - c')| >= |A' (x - c)| - |A' (c' - c)| >= |A (x - c)| / |A A'^-1| - |A' (c' - c)|.

So a component keeps a share of its distances, less a length, and no score of a component far from a row is computed
until that has used up the margin. A bound only leaves out scores that would not count.
"""

from typing import Any, NamedTuple

import numpy as np

from shoal.families.capabilities import QuadraticForm
from shoal.inference.center_bounds import CenterBounds, center_bounds, lengths
from shoal.points.arrays import Array, IntArray, SingleArray

_MOST_ELEMENTS = 1 << 26
"""Bounds that are carried at most: 256 MiB."""
_ROWS_A_FEATURE = 4
"""Rows for each feature from which it pays to see how components have changed."""
_LEAST_KEPT, _MOST_LOST = 0.5, 64.0
"""A component that keeps less of its distances, or whose distances lose more, counts as new."""
_MOST_GAIN = 4.0
"""Most by which a component that narrows may lengthen its distances."""
_MARGIN = 1.0 / 32768.0
"""Relative rounding of roots, their inverses and single precision."""
_BLOCK_ROWS = 1 << 14


class DistanceBounds(NamedTuple):
    """Lower bounds of N rows' distances from T components, after a pass."""

    tags: IntArray  # (T,) names of the components
    centre: Array  # (T, D)
    root: Array  # (T, D, D) or (T, D)
    least: SingleArray  # (N, T)


class Bounds(NamedTuple):
    """Lower bounds for a pass."""

    least: SingleArray | None
    """(N, T) where they are carried on; the pass raises them in place."""
    centers: CenterBounds | None
    """Bounds by the centres alone, where none are carried."""

    def rows(self, x: Any, part: slice) -> SingleArray:
        """Those of some of the rows x, (n, T)."""
        if self.least is not None:
            return self.least[part]
        assert self.centers is not None
        return self.centers.least_distances(x[part])

    def carried(self, form: QuadraticForm, tags: IntArray | None) -> DistanceBounds | None:
        """The bounds for the next pass."""
        if self.least is None or tags is None:
            return None
        return DistanceBounds(tags, form.centre, form.root, self.least)


def bounds_of(known: DistanceBounds | None, form: QuadraticForm, tags: IntArray | None, x: Any) -> Bounds:
    """Bounds for a pass over the rows x, with components named by `tags`, after a pass that left `known`.

    `known` may be overwritten. Nothing is carried without tags, nor for too few rows or too many.
    """
    n, (t, d) = x.shape[0], form.centre.shape
    every = np.arange(t)
    if tags is None or n < _ROWS_A_FEATURE * d or n * t > _MOST_ELEMENTS:
        return Bounds(None, center_bounds(form, every))
    column, kept, lost = np.full(t, -1), np.zeros(t), np.zeros(t)
    if known is not None:
        column, kept, lost = _changes(known, form, tags)
    new = np.flatnonzero(column < 0)
    in_place = known is not None and known.least.shape[1] == t and bool(np.all((column == every) | (column < 0)))
    least = known.least if known is not None and in_place else np.empty((n, t), np.float32)
    centers = center_bounds(form, new) if new.size else None
    keep, lose = kept.astype(np.float32), lost.astype(np.float32)
    for start in range(0, n, _BLOCK_ROWS):
        part = slice(start, min(start + _BLOCK_ROWS, n))
        if known is not None:
            block = known.least[part] if in_place else known.least[part][:, column]
            np.maximum(block * keep - lose, np.float32(0.0), out=least[part])
        if centers is not None:
            least[part, new] = centers.least_distances(x[part])
    return Bounds(least, None)


def _changes(known: DistanceBounds, form: QuadraticForm, tags: IntArray) -> tuple[IntArray, Array, Array]:
    """Columns where T components were, -1 for new ones; the share that their distances keep, and the length lost."""
    place = {tag: column for column, tag in enumerate(known.tags.tolist())}
    column = np.array([place.get(tag, -1) for tag in tags.tolist()], dtype=np.int64)
    kept, lost = np.zeros(tags.size), np.zeros(tags.size)
    same = np.flatnonzero(column >= 0)
    if same.size:
        old = column[same]
        growth = _largest_growth(known.root[old], form.inverse[same])
        kept[same] = (1.0 - _MARGIN) / np.maximum(growth, 1.0 / _MOST_GAIN)
        lost[same] = (1.0 + _MARGIN) * lengths(form, same, form.centre[same] - known.centre[old])
    column[~((kept > _LEAST_KEPT) & (lost < _MOST_LOST))] = -1
    return column, kept, np.where(column >= 0, lost, 0.0)


def _largest_growth(root: Array, inverse: Array) -> Array:
    """(t,) upper bounds of |M v| / |v|, M = root inverse. For M = s I + R it is at most |s| + the norm of R."""
    if root.ndim == 2:
        return np.asarray((root * inverse).max(axis=1))
    product = root @ inverse
    d = product.shape[1]
    middle = np.trace(product, axis1=1, axis2=2) / d
    rest = product - middle[:, None, None] * np.eye(d)
    return np.asarray(np.abs(middle) + np.sqrt(np.einsum("kde,kde->k", rest, rest)))
