"""Rows of numbers in JSON and NDJSON, as a table; or the first bad row.

Good rows are read fast: by a typed decoder in C, then all lengths and values at once. The decoder stops at the first
fault that it sees, which may come after the first bad row (it does not see a row of another length). So the rows of a
refused body are read once more, slowly, one after another.
"""

import json
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from shoal.errors import NotNumericError, ShapeError, counted
from shoal_service.errors import LimitError
from shoal_service.wire.points import (
    MAX_MAGNITUDE,
    Body,
    Table,
    WireLimits,
    check_shape,
    check_values,
    not_finite,
    place_of,
)

VALUE_TYPES: tuple[Any, ...] = (float, float | None, float | str, float | str | None)
"""What a value of a feature may be: a number, also null for a missing one, also a text for a category, or all three."""
EXPECTED = "[1.0, 2.0]"
_LONG = 20
"""Digits from which an integer is read as a float. Python refuses more than 4,300 digits, and none is exact then."""


def value_type(limits: WireLimits) -> Any:
    """The one of `VALUE_TYPES` that the stream accepts."""
    return VALUE_TYPES[2 * limits.texts + limits.holes]


def table_of(rows: Sequence[Sequence[Any]], limits: WireLimits) -> Table:
    """Make the table (N, D) of `rows`, as float64; None, where it may be, is a missing value.

    Raises ShapeError, NotFiniteError and LimitError.
    """
    width = len(rows[0]) if rows else 0
    check_shape(len(rows), width, limits)
    if any(length != width for length in set(map(len, rows))):
        refuse_first_bad_row(rows, holes=limits.holes)
    if limits.holes:
        x = np.array(rows, np.float64)
    else:
        x = np.fromiter(chain.from_iterable(rows), np.float64, len(rows) * width).reshape(len(rows), width)
    check_values(x, holes=limits.holes)
    return x


def check_count(body: Body, limits: WireLimits) -> None:
    """Refuse by the commas, before a number is read: each becomes an object of some 32 bytes."""
    n_values = body.count(b",") + 1
    if n_values > limits.max_values:
        raise LimitError(f"the body holds {n_values} numbers, the limit is {limits.max_values}; send smaller batches")


def slow_json(text: str) -> Any:
    """Read any JSON, and also NaN and Infinity, which most bad bodies hold. Raises ValueError and RecursionError."""
    return json.loads(text, parse_int=_integer)


def refuse_first_bad_row(rows: Iterable[object], width: int = 0, *, holes: bool = False, texts: bool = False) -> None:
    """Raise the error for the first row that is not a list, holds a bad number, or is not as long as the first row.
    With `holes`, None is a missing value. With `texts`, a text is no bad number.

    `rows` may be an iterator that raises errors itself. They come after the faults of the rows before.
    """
    for i, row in enumerate(rows):
        if not isinstance(row, list):
            raise ShapeError(f"row {i} is {shown(row)}, which is not an array; send rows like {EXPECTED}", row=i)
        for j, value in enumerate(row):
            if not (holes and value is None) and not (texts and isinstance(value, str)):
                check_number(i, j, value)
        width = width or len(row)
        if len(row) != width or width == 0:
            others = f"the rows before hold {width}" if i else "at least one is needed"
            raise ShapeError(f"row {i} holds {counted(len(row), 'number')}, {others}; send rows of equal length", row=i)


def check_number(row: int, column: int | str, value: object) -> None:
    """Check one number, of a column or of a feature with a name.

    Raises NotNumericError, and NotFiniteError for a number that is too large or not finite.
    """
    if isinstance(value, bool) or not isinstance(value, float | int):
        remedy = "send numbers only"
        if isinstance(value, str):
            remedy += ", or name a family of categories for the column when you create the stream"
        elif value is None:
            remedy += ", or create the stream with missing=marginal"
        raise NotNumericError(
            f"row {row} holds {shown(value)} in {place_of(column)}, which is not a number; {remedy}",
            row=row,
            column=column if isinstance(column, int) else None,
        )
    if not abs(value) <= MAX_MAGNITUDE:
        raise not_finite(row, column, float(value))


def shown(value: object) -> str:
    """A value as JSON, shortened for a message."""
    if isinstance(value, list | dict):
        return "an array" if isinstance(value, list) else "an object"
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) < _LONG else float(digits)
