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

from shoal.arrays import Array, IntArray, SingleArray
from shoal.families.bounds_kernel import KEPT
from shoal.refinement.forms import Quadratic, least_stretch, stretched
from shoal.refinement.reach_kernel import carry, carry_in_place
from shoal.refinement.screens import Screen, distances, screen_of

_MOST_KEPT = 1 << 26
"""Distances that are kept from sweep to sweep: 256 MiB."""
_FEWEST_ROWS = 4
"""Rows for each feature from which it pays to see how components have changed."""
_LEAST_KEPT = 0.5
"""A component that may have kept less of its distances counts as a new one."""
_FAR = 1e18
"""Nor is one that has moved so far told from a new one."""
_MARGIN = 1e-5
"""Rounding of roots and their inverses, relative."""


class Reaches(NamedTuple):
    """After a sweep: N rows' least distances from T components, known by their tags."""

    tags: IntArray  # (T,)
    form: Quadratic
    least: SingleArray  # (N, T)


class Bounds(NamedTuple):
    """A sweep's bounds of distances: carried from before, and of components that are new by their centres."""

    before: SingleArray | None  # (N, T')
    column: IntArray  # (T,) where components were, -1 for new ones
    kept: SingleArray  # (T,)
    moved: SingleArray  # (T,)
    new: IntArray
    screen: Screen | None  # of the new ones
    least: SingleArray | None
    """(N, T) what becomes of them, where they are to be carried further."""

    def of(self, x: Array, part: slice) -> SingleArray:
        """(n, T) of the rows x, those of `part`; may be written to where more is found out."""
        out = np.empty((len(x), len(self.column)), np.float32) if self.least is None else self.least[part]
        if self.before is not None and self.before is self.least:
            carry_in_place(out, self.kept, self.moved)
        elif self.before is not None:
            carry(self.before[part], self.column, self.kept, self.moved, out)
        if self.screen is None:
            return out
        if len(self.new) == len(self.column):
            distances(x, self.screen, out)
            return out
        some = np.empty((len(x), len(self.new)), np.float32)
        distances(x, self.screen, some)
        out[:, self.new] = some
        return out

    def left(self, form: Quadratic, tags: IntArray | None) -> Reaches | None:
        """What is carried on when the sweep has come to its end."""
        return None if self.least is None or tags is None else Reaches(tags, form, self.least)


def bounds_of(known: Reaches | None, form: Quadratic, tags: IntArray | None, n_rows: int) -> Bounds:
    """Bounds for a sweep over n rows, whose components are told by `tags` (T,), after one that left `known`, which may
    be written over. Nothing is carried without tags, nor of too few rows or too many."""
    t, d = form.centre.shape
    column, kept, moved = np.full(t, -1), np.zeros(t, np.float32), np.zeros(t, np.float32)
    carried = tags is not None and n_rows >= _FEWEST_ROWS * d and n_rows * t <= _MOST_KEPT
    before: SingleArray | None = None
    if carried and known is not None and tags is not None:
        column, kept, moved = _changes(known, form, tags)
        before = known.least
    new = np.flatnonzero(column < 0)
    screen = screen_of(form.centre[new], least_stretch(form, new)) if new.size else None
    in_place = before is not None and before.shape[1] == t and bool(np.all((column == np.arange(t)) | (column < 0)))
    least = before if in_place else np.empty((n_rows, t), np.float32) if carried else None
    return Bounds(before, column, kept, moved, new, screen, least)


def _changes(known: Reaches, form: Quadratic, tags: IntArray) -> tuple[IntArray, SingleArray, SingleArray]:
    """Of T components where they were, what their distances keep, and what they lose after that."""
    place = {tag: column for column, tag in enumerate(known.tags.tolist())}
    column = np.array([place.get(tag, -1) for tag in tags.tolist()], dtype=np.int64)
    kept, moved = np.zeros(len(tags)), np.zeros(len(tags))
    same = np.flatnonzero(column >= 0)
    old = column[same]
    if same.size:
        kept[same] = (1.0 - _MARGIN) / _most_stretch(known.form.root[old], form.inverse[same])
        moved[same] = (1.0 + _MARGIN) * stretched(form, same, form.centre[same] - known.form.centre[old])
    new = ~((kept > _LEAST_KEPT) & (moved < _FAR))
    column[new], kept[new], moved[new] = -1, 0.0, 0.0
    return column, kept.astype(np.float32) * KEPT, moved.astype(np.float32) / KEPT


def _most_stretch(root: Array, inverse: Array) -> Array:
    """(t,) what |M v| / |v| does not exceed, M = root inverse: for M = s I + R it is |s| + the length of R at most."""
    if root.ndim == 2:
        return np.asarray((root * inverse).max(axis=1))
    product = root @ inverse
    d = product.shape[1]
    middle = np.trace(product, axis1=1, axis2=2) / d
    rest = product - middle[:, None, None] * np.eye(d)
    return np.asarray(np.abs(middle) + np.sqrt(np.einsum("kde,kde->k", rest, rest)))
