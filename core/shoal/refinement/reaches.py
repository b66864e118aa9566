"""How far rows are from components at least, carried from sweep to sweep: what was far stays far when little changes.

From one sweep to the next components change by little, and most are far from most rows. What Elkan (2003) does for the
distances of k-means is done here in each component's own metric: with A, c the root and the centre that a row's
distance was known by, and A', c' those of now,

    |A' (x - c')| >= |A' (x - c)| - |A' (c' - c)| >= |A (x - c)| / |A A'^-1| - |A' (c' - c)|.

So there is a share of its distances that a component keeps, and a length that these lose, and no row's score of a
component far from it is worked out again until that has eaten up what there was to spare. What a bound leaves out would
count for nothing: no digit of what is found depends on it.
"""

from typing import NamedTuple

import numpy as np

from shoal.families.capabilities import QuadraticForm
from shoal.points.arrays import Array, BoundArray, IntArray, SingleArray
from shoal.refinement.forms import least_stretch, stretched
from shoal.refinement.reach_kernel import UNIT, Reach, put_elsewhere
from shoal.refinement.screens import Screen, screen_of, write_distances

_MOST_BYTES = 256 << 20
"""What is kept from sweep to sweep, at most; while components come and go, for a moment twice of it."""
_ROWS_A_FEATURE = 4
"""Rows for each feature from which it pays to see how components have changed."""
_LEAST_KEPT, _MOST_MOVED = 0.5, 64.0
"""A component that may have kept less of its distances since it was new, or whose distances may have lost more, counts
as new again."""
_MOST_GAIN, _MOST_UNIT = 4.0, 1024.0 * UNIT
"""What a component that narrows adds to its distances is counted up to these."""
_MARGIN = 1.0 / 32768.0
"""Rounding of roots and their inverses, and of what comes of it in single precision, relative. Of a covariance that is
singular to rounding the inverse has few digits, and so has the bound."""


class Reaches(NamedTuple):
    """Lower bounds of N rows' distances from T components, after a sweep."""

    tags: IntArray  # (T,) by which components are known
    centre: Array  # (T, D)
    root: Array  # (T, D, D) or (T, D)
    reach: Reach


class Bounds(NamedTuple):
    """Least distances for a sweep: carried from before, and of components that are new by their centres."""

    before: BoundArray | None  # (N, T')
    column: IntArray  # (T,) where components were, -1 for new ones
    new: IntArray
    screen: Screen | None  # of the new ones
    levels: BoundArray | None
    """(N, T) where they are to be carried further."""
    unit: SingleArray  # (T,)
    moved: SingleArray  # (T,)

    def of(self, x: Array, part: slice) -> Reach:
        """Those of the rows x (n, D), which are `part` of all; what is found out may be written down there."""
        levels = np.empty((len(x), len(self.column)), np.uint16) if self.levels is None else self.levels[part]
        if self.before is not None and self.before is not self.levels:
            put_elsewhere(self.before[part], self.column, levels)
        if self.screen is not None:
            write_distances(x, self.screen, self.new, levels)
        return Reach(levels, self.unit, self.moved)

    def left(self, form: QuadraticForm, tags: IntArray | None) -> Reaches | None:
        """What is carried on when the sweep has come to its end."""
        if self.levels is None or tags is None:
            return None
        return Reaches(tags, form.centre, form.root, Reach(self.levels, self.unit, self.moved))


def bounds_of(known: Reaches | None, form: QuadraticForm, tags: IntArray | None, n_rows: int) -> Bounds:
    """Bounds for a sweep over n rows, whose components are told by `tags` (T,), after one that left `known`, which may
    be written over. Nothing is carried without tags, nor of too few rows or too many."""
    t = len(form.centre)
    column, unit, moved = np.full(t, -1), np.full(t, UNIT, np.float32), np.zeros(t, np.float32)
    if tags is None or not _worth_carrying(form, n_rows):
        every = np.arange(t)
        return Bounds(None, column, every, screen_of(form.centre, least_stretch(form, every)), None, unit, moved)
    if known is not None:
        column, unit, moved = _changes(known, form, tags)
    new = np.flatnonzero(column < 0)
    before = None if known is None or new.size == t else known.reach.levels
    screen = screen_of(form.centre[new], least_stretch(form, new)) if new.size else None
    in_place = before is not None and before.shape[1] == t and bool(np.all((column == np.arange(t)) | (column < 0)))
    levels = before if in_place else np.empty((n_rows, t), np.uint16)
    return Bounds(before, column, new, screen, levels, unit, moved)


def _worth_carrying(form: QuadraticForm, n_rows: int) -> bool:
    """Whether there are rows enough to pay for it, and room."""
    t, d = form.centre.shape
    n_bytes: int = 2 * n_rows * t + form.root.nbytes
    return n_rows >= _ROWS_A_FEATURE * d and n_bytes <= _MOST_BYTES


def _changes(known: Reaches, form: QuadraticForm, tags: IntArray) -> tuple[IntArray, SingleArray, SingleArray]:
    """Of T components where they were, and what `Reach` says of them now: with k the share that distances keep and m
    what they lose after that, k (level unit - moved) - m."""
    place = {tag: column for column, tag in enumerate(known.tags.tolist())}
    column = np.array([place.get(tag, -1) for tag in tags.tolist()], dtype=np.int64)
    unit, moved = np.full(len(tags), UNIT), np.zeros(len(tags))
    same = np.flatnonzero(column >= 0)
    if same.size:
        old = column[same]
        kept = (1.0 - _MARGIN) / np.maximum(_most_stretch(known.root[old], form.inverse[same]), 1.0 / _MOST_GAIN)
        lost = stretched(form, same, form.centre[same] - known.centre[old])
        unit[same] = np.minimum(kept * known.reach.unit[old], _MOST_UNIT)
        moved[same] = (1.0 + _MARGIN) * (kept * known.reach.moved[old] + lost)
    new = ~((unit > _LEAST_KEPT * UNIT) & (moved < _MOST_MOVED))
    column[new], unit[new], moved[new] = -1, UNIT, 0.0
    return column, unit.astype(np.float32), moved.astype(np.float32)


def _most_stretch(root: Array, inverse: Array) -> Array:
    """(t,) what |M v| / |v| does not exceed, M = root inverse: for M = s I + R it is |s| + the length of R at most."""
    if root.ndim == 2:
        return np.asarray((root * inverse).max(axis=1))
    product = root @ inverse
    d = product.shape[1]
    middle = np.trace(product, axis1=1, axis2=2) / d
    rest = product - middle[:, None, None] * np.eye(d)
    return np.asarray(np.abs(middle) + np.sqrt(np.einsum("kde,kde->k", rest, rest)))
