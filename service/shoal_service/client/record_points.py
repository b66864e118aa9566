"""Points with the fields of records (keys, times, payloads, weights), on their way to the service."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np

from shoal.errors import counted
from shoal.points.frames import moments_of
from shoal_service.client.errors import BadPointsError


@dataclass(frozen=True)
class Records:
    """Points that carry fields. It is a source of points, or one item of a source.

    Each list is as long as `points`, with None for a point without the field. The service checks the values.
    """

    points: Any
    """A table (n, D), or a sparse matrix of SciPy."""
    keys: Sequence[str | None] | None = None
    """Text of 1 to 256 bytes in UTF-8."""
    times: Sequence[str | float | datetime | None] | None = None
    """RFC 3339 text, seconds since 1970, or a `datetime` with a time zone. Also an array of `datetime64`, in UTC, or a
    column of moments of a data frame."""
    payloads: Sequence[Mapping[str, Any] | None] | None = None
    """JSON objects."""
    weights: Sequence[float | None] | None = None
    """Numbers above 0."""
    feature_names: Sequence[str] | None = None
    """A name for each column. Those of a data frame by default."""


class FieldLists(NamedTuple):
    """The fields of n points as lists of n values, or None for a field that no point has."""

    keys: list[Any] | None = None
    times: list[Any] | None = None
    payloads: list[Any] | None = None
    weights: list[Any] | None = None

    def rows(self, rows: slice) -> "FieldLists":
        """The fields of some points."""
        return FieldLists(*(None if values is None else values[rows] for values in self))

    def without(self, row: int) -> "FieldLists":
        """The fields of all points but one."""
        return FieldLists(*(None if values is None else values[:row] + values[row + 1 :] for values in self))


def fields_of(records: Records, n: int, row: int) -> FieldLists | None:
    """The fields of n points, the first of which is `row` of the source. None where there are none.

    Raises BadPointsError for a list of another length, and for a time without a zone.
    """
    found = {name: getattr(records, name) for name in FieldLists._fields}
    lists = {name: _list(name, values, n, row) for name, values in found.items() if values is not None}
    return FieldLists(**lists) if lists else None


def joined_fields(parts: Sequence[tuple[FieldLists | None, int]]) -> FieldLists | None:
    """Join the fields of tables; each comes with its number of points."""
    if all(fields is None for fields, _ in parts):
        return None
    return FieldLists(*(_joined([(fields and fields[i], n) for fields, n in parts]) for i in range(4)))


def _joined(parts: Sequence[tuple[list[Any] | None, int]]) -> list[Any] | None:
    if all(values is None for values, _ in parts):
        return None
    return [value for values, n in parts for value in (values or [None] * n)]


def _list(name: str, values: Any, n: int, row: int) -> list[Any]:
    moments = moments_of(values) if name == "times" else None
    if moments is not None:
        values = _datetimes(moments)
    elif hasattr(values, "isna"):  # a column of pandas, whose missing values are of several types
        missing = values.isna()
        values = [None if gone else value for value, gone in zip(values.tolist(), missing.tolist(), strict=True)]
    else:  # an array, or a column of a data frame: of NumPy, of Polars, of Arrow
        listing = next((own for own in ("tolist", "to_list", "to_pylist") if hasattr(values, own)), None)
        values = values if listing is None else getattr(values, listing)()
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise BadPointsError(f"{name} is a {type(values).__name__}; send a list with one value for each point")
    if len(values) != n:
        raise BadPointsError(
            f"{name} holds {counted(len(values), 'value')} for {counted(n, 'point')}; send one for each point, None "
            "where there is none",
            row=row,
        )
    return [_time(value, row + i) for i, value in enumerate(values)] if name == "times" else list(values)


def _datetimes(values: Any) -> list[Any]:
    """Moments in UTC as RFC 3339 text; None for NaT."""
    texts = np.datetime_as_string(values, timezone="UTC").tolist()
    return [None if missing else text for text, missing in zip(texts, np.isnat(values).tolist(), strict=True)]


def _time(value: Any, row: int) -> Any:
    if not isinstance(value, datetime):
        return value
    if value.tzinfo is None:
        raise BadPointsError(f"row {row} has the time {value} without a zone; use a datetime with tzinfo", row=row)
    return value.isoformat()
