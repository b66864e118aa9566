"""Chunks of a file: a table of points with the fields of records beside it, and the places of its rows."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from shoal.points.arrays import MAX_MAGNITUDE, IntArray, largest_magnitude
from shoal_service.cli.readers.bad_rows import BadRowError, BadRows, RowPlace
from shoal_service.errors import RecordFieldError
from shoal_service.wire.record_fields import checked_fields

if TYPE_CHECKING:
    from shoal.points.rows import SparseRows

Table: TypeAlias = "npt.NDArray[Any] | SparseRows"
"""Whoever makes compressed rows imports their type: with SciPy's it takes a fifth of the start of a connector."""

_ANY_PAYLOAD = 2**31
"""The server has its own limit."""


class Fields(NamedTuple):
    """Lists as long as the points, or None."""

    keys: Sequence[Any] | None = None
    times: Any = None
    """A list, or an array of datetime64."""
    payloads: Sequence[Any] | None = None
    weights: Sequence[Any] | None = None


class Chunk(NamedTuple):
    """Rows of a file that can be used."""

    points: Table
    fields: Fields
    unit: str
    numbers: IntArray
    """(n,) place of each row, in `unit`."""
    names: Sequence[str] | None = None
    """Names of the columns, where the file has them."""
    texts: Sequence[str] | None = None
    """The texts that were embedded as the points."""

    def place(self, i: int) -> RowPlace:
        """Place of a row in the file."""
        return RowPlace(self.unit, int(self.numbers[i]))

    def shown(self, i: int) -> Any:
        """The numbers of a row, for a report."""
        return _shown(self.points, i)


def checked_chunk(
    points: Any,
    unit: str,
    numbers: IntArray,
    bad: BadRows,
    *,
    fields: Fields | None = None,
    rows: Sequence[Any] | None = None,
    labels: Callable[[int], str] | None = None,
) -> Chunk:
    """Keep the rows whose numbers and fields can be used.

    `rows`: each as it stands in the file, for a report; None: its numbers. `labels`: what each column is called.
    """
    chunk, shown = Chunk(points, fields or Fields(), unit, numbers), rows
    for check in (lambda chunk: _bad_numbers(chunk.points, labels, bad), _bad_fields):
        found = check(chunk)
        for i, fault in found.items():
            bad.add(chunk.place(i), fault, _shown(chunk.points, i) if shown is None else shown[i])
        if found:
            kept = np.ones(len(chunk.points), np.bool_)
            kept[list(found)] = False
            chunk = Chunk(chunk.points[kept], _some(chunk.fields, kept), unit, chunk.numbers[kept])
            shown = None if shown is None else [row for row, keep in zip(shown, kept.tolist(), strict=True) if keep]
    return chunk


def _numbers_of(points: Any) -> Any:
    """The points, with zeros in the place of texts."""
    if not isinstance(points, np.ndarray) or points.dtype != object:
        return points
    texts = np.array([isinstance(value, str) for value in points.ravel()], np.bool_).reshape(points.shape)
    return np.where(texts, 0.0, points).astype(np.float64)


def _bad_numbers(points: Any, labels: Callable[[int], str] | None, bad: BadRows) -> dict[int, BadRowError]:
    """The rows that hold infinity, a magnitude above 1e150, or NaN where it is no missing value."""
    points = _numbers_of(points)
    if isinstance(points, np.ndarray) and largest_magnitude(points) <= MAX_MAGNITUDE:
        return {}
    with np.errstate(invalid="ignore"):
        if not isinstance(points, np.ndarray):
            at = np.flatnonzero(~(np.abs(points.data) <= MAX_MAGNITUDE))
            rows = np.unique(np.searchsorted(points.indptr, at, side="right") - 1)
        else:
            usable = np.abs(points) <= MAX_MAGNITUDE
            if not usable.all() and (missing := np.isnan(points)).any() and bad.takes_holes:
                usable |= missing & ~missing.all(axis=1, keepdims=True)
            rows = np.flatnonzero(~usable.all(axis=1))
    return {i: _bad_number(points, i, labels, bad) for i in rows.tolist()}


def _bad_number(points: Any, i: int, labels: Callable[[int], str] | None, bad: BadRows) -> BadRowError:
    values = points[[i]].data if not isinstance(points, np.ndarray) else points[i]
    if np.isnan(values).all() and bad.takes_holes:
        return BadRowError("all its values are missing", "a point needs one value at least; drop the row")
    j = int(np.flatnonzero(~(np.abs(values) <= MAX_MAGNITUDE))[0])
    name = f" ({labels(j)})" if labels is not None else ""
    return BadRowError(f"{float(values[j]):g} among the numbers{name}", "fix or drop the row")


def _bad_fields(chunk: Chunk) -> dict[int, BadRowError]:
    """The rows with a key, a time, a payload or a weight that the service does not take."""
    if not len(chunk.points) or not any(values is not None for values in chunk.fields):
        return {}
    try:
        checked_fields(len(chunk.points), *chunk.fields, max_payload_bytes=_ANY_PAYLOAD)
    except RecordFieldError:
        rows = ((i, _some(chunk.fields, slice(i, i + 1))) for i in range(len(chunk.points)))
        return {i: fault for i, fields in rows if (fault := _bad_field(fields)) is not None}
    return {}


def _bad_field(fields: Fields) -> BadRowError | None:
    try:
        checked_fields(1, *fields, max_payload_bytes=_ANY_PAYLOAD)
    except RecordFieldError as error:
        reason, _, remedy = str(error).removeprefix("row 0 has ").partition("; ")
        return BadRowError(reason, remedy)
    return None


def _some(fields: Fields, rows: Any) -> Fields:
    """The fields of some rows: a slice, or a mask (n,)."""
    return Fields(*(_taken(values, rows) for values in fields))


def _taken(values: Any, rows: Any) -> Any:
    if values is None or isinstance(values, np.ndarray) or isinstance(rows, slice):
        return None if values is None else values[rows]
    return [value for value, kept in zip(values, rows.tolist(), strict=True) if kept]


def _shown(points: Any, i: int) -> Any:
    if not isinstance(points, np.ndarray):
        row = points[[i]]
        return {"indices": row.indices.tolist(), "values": row.data.tolist()}
    return points[i].tolist()
