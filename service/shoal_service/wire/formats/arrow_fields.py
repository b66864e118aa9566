"""Fields of records in columns of Arrow: keys, times, payloads and weights of a record batch."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from shoal_service.errors import RecordFieldError
from shoal_service.wire.record_columns import RecordColumns


class ArrowFields(NamedTuple):
    """Fields of the rows of a batch, as `checked_fields` takes them."""

    keys: list[Any] | None
    times: Any
    """A list, or an array of datetime64 in UTC, in days or down to microseconds."""
    payloads: list[Any] | None
    weights: list[Any] | None


def fields_of_batch(pa: Any, batch: Any, columns: RecordColumns) -> ArrowFields:
    """Take the fields out of the named columns of a batch. Their values are checked later, row by row.

    Keys may be integers, which become text. Times may be timestamps or dates; without a zone they are in UTC.
    In a payload NaN is null, as tables write missing values so.
    """
    keys = None if columns.key is None else [_key(value) for value in _values(pa, batch, columns.key)]
    weights = None if columns.weight is None else _values(pa, batch, columns.weight)
    times = None if columns.time is None else _times(pa, batch, columns.time)
    payloads = None
    if columns.payload:
        fields = [[_payload(value) for value in _values(pa, batch, name)] for name in columns.payload]
        payloads = [dict(zip(columns.payload, row, strict=True)) for row in zip(*fields, strict=True)]
    return ArrowFields(keys, times, payloads, weights)


def joined(parts: Sequence[ArrowFields]) -> ArrowFields:
    """Join the fields of batches of one schema."""
    return ArrowFields(*map(_concatenated, zip(*parts, strict=True)))


def _concatenated(parts: Sequence[Any]) -> Any:
    if parts[0] is None or isinstance(parts[0], np.ndarray):
        return None if parts[0] is None else np.concatenate(parts)
    return [value for part in parts for value in part]


def _key(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _payload(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def without_dictionary(pa: Any, column: Any) -> Any:
    """A column with its values in the place of a dictionary of them. Texts stay, as a long one may be in every row."""
    if not pa.types.is_dictionary(column.type) or is_text(pa, column.type.value_type):
        return column
    return column.dictionary_decode()


def is_text(pa: Any, kind: Any) -> bool:
    """Whether a type is one of texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def values_of(pa: Any, column: Any) -> list[Any]:
    """The values of a column as Python objects; None for a null. Equal texts of a dictionary are one object."""
    if not pa.types.is_dictionary(column.type):
        return list(column.to_pylist())
    words = column.dictionary.to_pylist()
    return [None if place is None else words[place] for place in column.indices.to_pylist()]


def _times(pa: Any, batch: Any, name: str) -> Any:
    column = without_dictionary(pa, batch.column(batch.schema.get_field_index(name)))
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        return _without_nanoseconds(pa, column).to_numpy(zero_copy_only=False)
    return _values(pa, batch, name)


def _values(pa: Any, batch: Any, name: str) -> list[Any]:
    """The values of a column as Python objects; None for a null.

    Nested types and views are refused: a short body can hold them with any number of elements.
    """
    column = batch.column(batch.schema.get_field_index(name))
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not any(check(kind) for check in _plain_types(pa)):
        raise RecordFieldError(
            f"column {name[:60]!r} holds {str(column.type)[:60]}; fields of records take text, numbers, "
            "booleans, dates and timestamps"
        )
    try:
        return values_of(pa, _without_nanoseconds(pa, without_dictionary(pa, column)))
    except (pa.ArrowException, ValueError, OverflowError) as error:
        words = str(error).splitlines() or [type(error).__name__]
        raise RecordFieldError(f"column {name[:60]!r} cannot be read: {words[0][:200]}; leave it out") from None


def _without_nanoseconds(pa: Any, column: Any) -> Any:
    """A column whose times have microseconds at most. Coarser ones stay: as microseconds large ones would overflow."""
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        return column.cast(pa.timestamp("us", tz=column.type.tz), safe=False)
    return column


def _plain_types(pa: Any) -> tuple[Callable[[Any], bool], ...]:
    types = pa.types
    numbers = (types.is_integer, types.is_floating, types.is_boolean)
    return (*numbers, types.is_string, types.is_large_string, types.is_timestamp, types.is_date, types.is_null)
