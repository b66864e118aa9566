"""Domains of points: the checks that points pass when they enter, and the form that they get.

A family names its domain. Code reads from the domain, never from the name of a family, whether points are standardised,
may be sparse, or must be whole numbers. A new domain is one `Domain`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.errors import NotFiniteError, NotNumericError, OutsideDomainError, ShapeError, counted
from shoal.points.arrays import MAX_MAGNITUDE, Array, BoolArray, IntArray, as_points
from shoal.points.rows import Points, SparseRows, issparse

TOO_MANY = 2.0**53
"""Every whole number below it is a float64, and no other rounds to one below it."""


FAULT = 1e-4
"""How far the sum of proportions, or a length, may be from one: float32 rounds a thousand of them to within 1e-5."""

_EXAMPLES = (1.0, 0.5, -1.0, -0.5)
"""Values tried for a point of a domain that does not contain zero."""


def _anything(values: Array) -> BoolArray:
    return np.ones(values.shape, dtype=np.bool_)


@dataclass(frozen=True)
class Domain:
    """A set of points. `located`: the whole of space, so that points may be shifted, stretched and given noise."""

    name: str
    values: str
    """What a value must be, in words."""
    allowed: Callable[[Array], BoolArray] = _anything
    """Which of an array of numbers are allowed, element by element."""
    located: bool = False
    sparse: bool = False
    """Whether points have the form of `SparseRows`. Tables are accepted too, and converted."""
    fault: Callable[[Array], Array] | None = None
    """Of a table (N, D) of allowed values, how far (N,) each row is from being one of the domain: at most `FAULT`.
    None: rows may be anything whose values are allowed."""
    rows: str = ""
    """What a row must be, in words."""
    share: float = 0.0
    """Power of 1 / D that makes a point of the domain of D equal numbers; 0: no such point is asked for."""

    @property
    def unbounded(self) -> bool:
        """Whether every table of finite numbers is allowed, so that a value may be absurdly far out."""
        return self.allowed is _anything and self.fault is None

    def points(self, points: Any, n_features: int | None = None, *, holes: bool = False) -> Points:
        """Check points (N, D) when they enter, and convert them.

        `holes`: NaN stands for a missing value; a row has at least one value.

        Raises ShapeError (also for sparse rows where the domain has none), NotNumericError, NotFiniteError and
        OutsideDomainError; each names the first bad row.
        """
        if not issparse(points):
            x = _with_holes(points, n_features) if holes else as_points(points, n_features)
            self._check_table(x, holes)
            return self.convert(x)
        self._check_form()
        rows = _compressed(points, n_features, holes)
        place = rows.indptr.astype(np.int64)
        self._check_values(rows.data, lambda k: (_row_of(place, k), int(rows.indices[k])), holes)
        return rows

    def check(self, x: Any, *, holes: bool = False) -> None:
        """Raise ShapeError for sparse rows where the domain has none, and OutsideDomainError for the first value of
        finite points x (N, D), with `holes` also NaN, that it does not allow."""
        if issparse(x):
            self._check_form()
            rows = SparseRows.of(x)
            place = rows.indptr.astype(np.int64)
            self._check_values(rows.data, lambda k: (_row_of(place, k), int(rows.indices[k])), holes)
        else:
            self._check_table(x, holes)

    def convert(self, x: Any) -> Points:
        """Points (N, D) that have been checked before, in the form of this domain: `SparseRows`, or a table."""
        return SparseRows.of(x) if self.sparse else x

    def example(self, location: Array) -> Array:
        """A point of the domain, as a table (1, D): the location (D,) itself where that is one, else equal numbers."""
        if self.fault is not None:
            return np.full((1, location.size), float(location.size) ** -self.share)
        rows = (location, *(np.full(location.shape, value) for value in _EXAMPLES))
        return next((row for row in rows if self.allowed(row).all()), location)[None]

    def none(self, n_features: int) -> Points:
        """No points (0, D)."""
        return self.convert(np.zeros((0, n_features)))

    def check_columns(self, x: Array, columns: tuple[int, ...], *, holes: bool = False) -> None:
        """Raise OutsideDomainError for the first value, in these columns of a table (N, D), that is not allowed, and
        for the first row that is none of the domain there. With `holes`, NaN is allowed."""
        part = x[:, columns]
        if self.allowed is not _anything:
            self._check_values(np.ravel(part), lambda k: (k // len(columns), columns[k % len(columns)]), holes)
        self._check_rows(part)

    def _check_form(self) -> None:
        if not self.sparse:
            raise ShapeError(
                f"points are sparse, but this family needs {self.values} in a dense table; convert them with "
                ".toarray(), or name a family of counts"
            )

    def _check_table(self, x: Array, holes: bool) -> None:
        if self.allowed is not _anything:
            self._check_values(np.ravel(x), lambda k: divmod(k, x.shape[1]), holes)
        self._check_rows(x)

    def _check_values(self, values: Array, place: Callable[[int], tuple[int, int]], holes: bool) -> None:
        bad = ~self.allowed(values)
        if holes:
            bad &= ~np.isnan(values)
        if bad.any():
            first = int(bad.argmax())
            row, column = place(first)
            raise OutsideDomainError(
                f"row {row} holds {float(values[first])!r} in column {column}; {self.name} are {self.values}",
                row=row,
                column=column,
            )

    def _check_rows(self, x: Array) -> None:
        """Raise OutsideDomainError for the first row of allowed values that is none of the domain."""
        if self.fault is None:
            return
        bad = ~(self.fault(x) <= FAULT)
        if bad.any():
            row = int(bad.argmax())
            raise OutsideDomainError(f"row {row} is outside the domain of {self.name}: {self.rows}", row=row)


def _with_holes(points: Any, n_features: int | None) -> Array:
    """A table (N, D) with NaN where a value is missing. Raises as `as_points`, and NotFiniteError for a row without any
    value."""
    given = np.asarray(points)
    missing = np.isnan(given) if given.dtype.kind == "f" else np.zeros(given.shape, dtype=np.bool_)
    if not missing.any():
        return as_points(points, n_features)
    x = as_points(np.where(missing, 0.0, given), n_features)
    empty = missing.all(axis=1)
    if empty.any():
        row = int(empty.argmax())
        raise NotFiniteError(f"row {row} holds no value at all; send a row with a value, or leave it out", row=row)
    x[missing] = np.nan
    return x


def _row_of(indptr: IntArray, k: int) -> int:
    return int(np.searchsorted(indptr, k, side="right")) - 1


def _compressed(points: Any, n_features: int | None, holes: bool) -> SparseRows:
    """Sparse points with `as_points`'s checks."""
    if points.dtype.kind not in "fiu":
        raise NotNumericError(f"points have dtype {points.dtype}; send real numbers (float or integer)")
    if points.ndim != 2 or points.shape[1] == 0:
        raise ShapeError(f"points have shape {points.shape}; send rows (N, D) of at least one feature")
    if n_features is not None and points.shape[1] != n_features:
        raise ShapeError(
            f"points have {counted(points.shape[1], 'feature')}, {n_features} expected; send the columns used before"
        )
    rows = SparseRows.of(points)
    finite = np.abs(rows.data) <= MAX_MAGNITUDE
    finite |= holes & np.isnan(rows.data)
    if not finite.all():
        first = int((~finite).argmax())
        row = _row_of(rows.indptr.astype(np.int64), first)
        raise NotFiniteError(
            f"row {row} holds {float(rows.data[first])!r} in column {int(rows.indices[first])}; "
            "send finite numbers of magnitude at most 1e150",
            row=row,
        )
    return rows


def _counts(values: Array) -> BoolArray:
    return np.asarray((values >= 0.0) & (values < TOO_MANY) & (values == np.floor(values)))


def _binary(values: Array) -> BoolArray:
    return np.asarray((values == 0.0) | (values == 1.0))


REAL = Domain("real", "any finite numbers", located=True)
COUNTS = Domain("counts", "whole numbers from 0 to 2^53 - 1", _counts, sparse=True)
LEVELS = Domain("categories", "level numbers: whole numbers from 0 to 2^53 - 1", _counts)
BINARY = Domain("binary values", "0 or 1", _binary, sparse=True)


def _shares(values: Array) -> BoolArray:
    return np.asarray((values >= 0.0) & (values <= 1.0 + FAULT))


def _off_sum(x: Array) -> Array:
    return np.asarray(np.abs(x.sum(axis=1) - 1.0))


def _off_length(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(np.abs(np.sqrt((x * x).sum(axis=1)) - 1.0))


PROPORTIONS = Domain(
    "proportions",
    "numbers from 0 to 1",
    _shares,
    fault=_off_sum,
    rows="each row sums to one; divide it by its sum",
    share=1.0,
)
"""Shares of a whole. A zero is a point too: the family says what it takes it as."""
UNIT = Domain(
    "unit vectors",
    "any finite numbers",
    fault=_off_length,
    rows="each row has length one; divide it by its length",
    share=0.5,
)
