"""From whatever holds points to batches: numbered, checked, and in the precision in which they came.

A source is a table (N, D), or an iterable of rows (D,), of tables (n, D), or of both. float32 stays float32; every
other real number becomes float64, so nothing is rounded on its way.
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from shoal.arrays import check_finite
from shoal.errors import NotFiniteError
from shoal_service.client.errors import BadPointsError

Table: TypeAlias = npt.NDArray[np.floating[Any]]

MSGPACK = "application/msgpack"


class Batch(NamedTuple):
    """A table of points, and where it stands in its source."""

    first_row: int
    x: Table  # (n, D), float32 or float64

    def body(self) -> bytes:
        """The MessagePack body: {"d": D, "t": "f4" or "f8", "x": little-endian values, row after row}."""
        kind = "f4" if self.x.dtype == np.float32 else "f8"
        x = np.ascontiguousarray(self.x, dtype=f"<{kind}")
        return msgspec.msgpack.encode({"d": x.shape[1], "t": kind, "x": x.data.cast("B")})


class Source(NamedTuple):
    """Something to pull points from."""

    items: Iterator[Any] | AsyncIterator[Any]
    n_points: int | None
    """How many points there are, where that is known beforehand."""


def open_source(points: Any) -> Source:
    """See `points` as a source: a table is one item, any other iterable gives its own."""
    if hasattr(points, "__array__"):
        table = np.asarray(points)
        if table.ndim != 2 and table.size:
            raise BadPointsError(
                f"points have shape {table.shape}; send a table (N, D), one row a point (one point is x[None, :])"
            )
        return Source(iter([table] if table.size else []), len(table))
    if hasattr(points, "__aiter__"):
        return Source(aiter(points), None)
    if isinstance(points, Iterable) and not isinstance(points, str | bytes | bytearray | dict):
        return Source(iter(points), None)
    raise BadPointsError(
        f"points are a {type(points).__name__}; send an array of shape (N, D), or an iterable of rows or of arrays"
    )


class Batcher:
    """Cuts the items of a source into batches of `batch_size` rows; only the last may be shorter.

    Memory: one batch and one item. Every row must be as wide as the first.
    """

    def __init__(self, batch_size: int) -> None:
        if batch_size < 1:
            raise BadPointsError(f"batch_size is {batch_size}; give at least 1")
        self._batch_size = batch_size
        self._width: int | None = None
        self._rows_taken = 0  # rows of the source seen so far
        self._held: list[Table] = []
        self._n_held = 0

    def push(self, item: Any) -> Iterator[Batch]:
        """Take the source's next item; give the batches that are full now."""
        table = self._table(item)
        self._rows_taken += len(table)
        start = 0
        while len(table) - start >= self._batch_size - self._n_held:
            stop = start + self._batch_size - self._n_held
            self._hold(table[start:stop], copy=False)
            start = stop
            yield self._cut(rows_behind=len(table) - stop)
        self._hold(table[start:], copy=True)  # held past this call: a generator may fill the same array again

    def flush(self) -> Iterator[Batch]:
        """Give the rest, if there is one."""
        if self._n_held:
            yield self._cut(rows_behind=0)

    def _hold(self, rows: npt.NDArray[Any], *, copy: bool) -> None:
        if len(rows):  # converted here, a batch at a time: the item may be a memory map larger than memory
            single = rows.dtype.kind == "f" and rows.dtype.itemsize == 4
            self._held.append(rows.astype(np.float32 if single else np.float64, copy=copy))
            self._n_held += len(rows)

    def _cut(self, rows_behind: int) -> Batch:
        first_row = self._rows_taken - rows_behind - self._n_held
        x = self._held[0] if len(self._held) == 1 else np.concatenate(self._held)  # f4 with f8 gives f8
        self._held, self._n_held = [], 0
        check_rows(x, first_row)
        return Batch(first_row, x)

    def _table(self, item: Any) -> npt.NDArray[Any]:
        """The item as a table (n, D) of real numbers."""
        at = self._rows_taken
        raw = _as_array(item, at)
        if raw.ndim not in (1, 2):
            what = f"one number, {raw.item()!r}" if raw.ndim == 0 else f"an array of shape {raw.shape}"
            raise BadPointsError(f"row {at} is {what}; a point is a row of numbers, a table has shape (N, D)", row=at)
        table = raw[None, :] if raw.ndim == 1 else raw
        if table.ndim == 2 and len(table) == 0:
            return np.empty((0, self._width or 0))
        if self._width is None and table.shape[1]:
            self._width = table.shape[1]
        if table.shape[1] != self._width:
            expected = (
                f"the rows before it {self._width}; rows must be of equal length"
                if self._width
                else "send at least one"
            )
            raise BadPointsError(f"row {at} has {table.shape[1]} features, {expected}", row=at)
        return table


def check_rows(x: Table, first_row: int) -> None:
    """BadPointsError if a value of x (n, D) is NaN, infinite or beyond 1e150, by the row's number in the source."""
    try:
        check_finite(x)
    except NotFiniteError as error:
        row = error.row or 0
        values = np.array2string(x[row], threshold=8, edgeitems=4, separator=", ")
        at = first_row + row
        raise BadPointsError(
            f"row {at} holds a number that is not finite, or above 1e150 in magnitude: {values}; mend it or drop it",
            row=at,
        ) from error


def _as_array(item: Any, row: int) -> npt.NDArray[Any]:
    """Real numbers only; a list is looked through for the booleans and strings that NumPy would turn into numbers."""
    if isinstance(item, list | tuple):
        _refuse_non_numbers(item, row)
    try:
        raw = np.asarray(item)
    except ValueError as error:
        raise BadPointsError(f"row {row}: the rows of a table must be of equal length", row=row) from error
    if raw.dtype.kind not in "fiu" and raw.size:
        raise BadPointsError(f"row {row} has dtype {raw.dtype}; send real numbers (float or integer)", row=row)
    return raw


def _refuse_non_numbers(values: list[Any] | tuple[Any, ...], row: int) -> None:
    kinds = set(map(type, values))
    if kinds <= {float, int}:
        return
    for i, value in enumerate(values):
        if isinstance(value, list | tuple):
            _refuse_non_numbers(value, row + i)
        elif isinstance(value, bool | str | bytes | None):
            raise BadPointsError(f"row {row} holds {value!r}; send real numbers (float or integer)", row=row)
