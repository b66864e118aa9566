"""Lower bounds on the distances of rows from components: by their centres, and carried from one pass to the next.

With s_k the least singular value of the root A_k, |A_k (x - centre_k)| >= s_k |x - centre_k|, and all |x - centre_k|
come from one matrix product.

Between passes components change little, and most are far from most rows. Elkan (2003) bounds the distances of k-means
so; here each component has its own metric. With root A and centre c of the last pass, and A', c' of this one,

    |A' (x - c')| >= |A' (x - c)| - |A' (c' - c)| >= |A (x - c)| / |A A'^-1| - |A' (c' - c)|.

So a component keeps a share of its distances, less a length, and no score of a component far from a row is computed
until that has used up the margin. A bound only leaves out scores that would not count.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from shoal.families.capabilities import QuadraticForm
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
_BLOCK_ELEMENTS = 1 << 17
"""Elements of the widest array of a block of rows, so that its arrays stay in the cache."""
_SLACK = 1e-12
"""As `_single_slack`, in double precision."""
_LARGEST_SINGLE = 1e30
"""Squares of lengths up to which nothing overflows in single precision."""
_LEAST_SQUARE, _LARGEST_SCALE = 1e-30, 1e15
"""Errors of products too small for single precision, and the largest singular value that is used with them."""
_MOST_BLUR = 10.0
"""Nats by which single precision may weaken the bounds of a typical component."""
_SINGULAR_MARGIN = 5e-6
"""Relative rounding of a least singular value, and of single precision."""


class CenterBounds(NamedTuple):
    """T components, as their centres bound distances."""

    middle: Array  # (D,) of the centres
    centres: Array  # (D, T) less the middle
    squares: Array  # (T,) of their lengths
    least: Array  # (T,) least singular values, or a little less
    single: SingleArray | None
    """The centres in single precision; None where that would weaken the bounds."""

    def least_distances(self, x: Array) -> SingleArray:
        """(n, T) lower bounds for rows x (n, D)."""
        least = np.empty((len(x), len(self.least)), np.float32)
        for part in row_blocks(*x.shape, len(self.least)):
            least[part] = self.of_block(x[part])
        return least

    def of_block(self, x: Array) -> SingleArray:
        """The same for few rows, with temporaries of their size."""
        rows = x - self.middle
        own = np.einsum("nd,nd->n", rows, rows)
        if self.single is not None and own.max(initial=0.0) <= _LARGEST_SINGLE:
            product = rows.astype(np.float32) @ self.single
            kept = np.float32(1.0 - _single_slack(rows.shape[1]))
            square = (own.astype(np.float32)[:, None] + self.squares.astype(np.float32)) * kept
            square -= np.float32(2.0) * product + np.float32(_LEAST_SQUARE)
            scale = np.minimum(self.least, _LARGEST_SCALE).astype(np.float32)
            return np.asarray(np.sqrt(np.maximum(square, np.float32(0.0))) * scale)
        square_exact = (own[:, None] + self.squares) * (1.0 - _SLACK) - 2.0 * (rows @ self.centres)
        distance = np.sqrt(np.maximum(square_exact, 0.0)) * self.least
        return np.asarray(np.minimum(distance, _LARGEST_SINGLE), dtype=np.float32)


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
    for part in row_blocks(n, t, d):
        if known is not None:
            block = known.least[part] if in_place else known.least[part][:, column]
            with np.errstate(invalid="ignore"):  # an infinite bound times 0, of a new component: set below
                np.maximum(block * keep - lose, np.float32(0.0), out=least[part])
        if centers is not None:
            least[part, new if new.size < t else slice(None)] = centers.of_block(x[part])
    return Bounds(least, None)


def row_blocks(n: int, *widths: int) -> Iterator[slice]:
    """Blocks of n rows whose arrays, of so many columns each, stay in the cache."""
    step = max(64, _BLOCK_ELEMENTS // max(widths))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


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
    """(t,) upper bounds of |M v| / |v|, M = root inverse.

    For M = s I + R it is at most |s| + the largest singular value of R. That is at most the Schatten norm of order 8
    (Bhatia 1997, section IV.2): the eighth root of the sum of the eighth powers of all singular values, which is the
    trace of (R^T R)^4. It is up to D^(1/8) times too large, the Frobenius norm up to D^(1/2) times.
    """
    if root.ndim == 2:
        return np.asarray((root * inverse).max(axis=1))
    product = root @ inverse
    d = product.shape[1]
    middle = np.trace(product, axis1=1, axis2=2) / d
    rest = product - middle[:, None, None] * np.eye(d)
    with np.errstate(over="ignore", invalid="ignore"):  # of a component that was absurdly wide: it counts as new
        squares = rest.transpose(0, 2, 1) @ rest
        fourth = squares @ squares
        return np.asarray(np.abs(middle) + np.einsum("kde,kde->k", fourth, fourth) ** 0.125)


def center_bounds(form: QuadraticForm, rows: IntArray) -> CenterBounds:
    """Bounds of the components `rows`, at least one."""
    centre, least = form.centre[rows], least_singular_values(form, rows) * (1.0 - _SINGULAR_MARGIN)
    middle = centre.mean(axis=0)
    centres = centre - middle
    squares = np.einsum("kd,kd->k", centres, centres)
    blur = _single_slack(len(middle)) * float(np.median(np.square(least)) * squares.mean())
    fits = squares.max() <= _LARGEST_SINGLE and blur <= _MOST_BLUR
    single = np.ascontiguousarray(centres.T, dtype=np.float32) if fits else None
    return CenterBounds(middle, centres.T, squares, least, single)


def least_singular_values(form: QuadraticForm, rows: IntArray) -> Array:
    """(t,) the least singular values of the roots of components `rows`, or less."""
    if form.root.ndim == 2:
        return np.asarray(form.root[rows].min(axis=1))
    inverse = form.inverse[rows]
    return np.asarray(1.0 / np.sqrt(largest_eigenvalues(inverse @ inverse.transpose(0, 2, 1))))


def lengths(form: QuadraticForm, rows: IntArray, vectors: Array) -> Array:
    """(t,) |A v| of vectors (t, D) and components `rows`."""
    root = form.root[rows]
    product = root * vectors if root.ndim == 2 else np.einsum("kde,ke->kd", root, vectors)
    return np.asarray(np.sqrt(np.einsum("kd,kd->k", product, product)))


def largest_eigenvalues(matrices: Array) -> Array:
    """(T,) upper bounds of the largest eigenvalues of positive definite matrices (T, D, D), mostly by less than half.

    Mean m and deviation s of a matrix's eigenvalues, which trace and sum of squares give, bound the largest by
    m + s sqrt(D - 1) (Wolkowicz and Styan 1980). The bound of the fourth power, whose root is taken, is the closer one.
    It costs a third of a spectrum.
    """
    d, size = matrices.shape[1], np.trace(matrices, axis1=1, axis2=2)
    power = matrices / size[:, None, None]
    power = power @ power
    power = power @ power
    middle = np.trace(power, axis1=1, axis2=2) / d
    spread = np.sqrt(np.maximum(np.einsum("kde,kde->k", power, power) / d - middle**2, 0.0))
    return np.asarray(size * (middle + spread * np.sqrt(d - 1.0)) ** 0.25)


def _single_slack(d: int) -> float:
    """Rounding of a squared distance in d dimensions computed by a product in single precision.

    Relative to the squares that it is the difference of: of both factors and of d sums (Higham 2002, section 3.1), and
    of the squares themselves.
    """
    return (d + 12) * 2.0**-24
