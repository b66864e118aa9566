"""Rows of numbers and texts, as a table; or the first bad row.

Good rows are read fast: by a typed decoder in C, then all lengths and values at once. The decoder stops at the first
fault that it sees, which may come after the first bad row (it does not see a row of another length). So the rows of a
refused body are read once more, slowly, one after another.

A text is a level of a category. It is replaced by its place among the texts of its column.
"""

import json
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from shoal.errors import NotNumericError, ShapeError, counted
from shoal_service.errors import LimitError, MalformedBodyError
from shoal_service.wire.points import (
    MAX_MAGNITUDE,
    Body,
    Table,
    TextColumns,
    WireLimits,
    check_shape,
    check_values,
    not_finite,
    place_of,
)

VALUE_TYPES: tuple[Any, ...] = (float, float | None, float | str, float | str | None)
"""What a value of a feature may be: a number, also null for a missing one, also a text for a category, or all three."""
EXPECTED = "[1.0, 2.0]"
MAX_TEXT = 200
"""Most characters of a text. The library has the same limit."""
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


def table_with_texts(rows: Sequence[Sequence[Any]], limits: WireLimits) -> tuple[Table, TextColumns | None]:
    """Make the table (N, D) of `rows`, as float64, and the texts of the columns that hold some; None where none does.

    Raises as `table_of`, and NotNumericError for a column of texts and numbers, or for texts where the stream has none.
    """
    if not limits.texts or not any(isinstance(value, str) for row in rows for value in row):
        return table_of(rows, limits), None
    width = len(rows[0])
    check_shape(len(rows), width, limits)
    if any(length != width for length in set(map(len, rows))):
        refuse_first_bad_row(rows, holes=limits.holes, texts=True)
    columns: list[list[Any]] = []
    found: list[tuple[int, tuple[str, ...]]] = []
    for column, values in enumerate(zip(*rows, strict=True)):
        if any(isinstance(value, str) for value in values):
            places, texts = places_of(values, column, holes=limits.holes)
            found.append((column, texts))
            columns.append(places)
        else:
            columns.append(list(values))
    return table_of(list(zip(*columns, strict=True)), limits), tuple(found)


def places_of(values: Sequence[Any], column: int, *, holes: bool = False) -> tuple[list[float | None], tuple[str, ...]]:
    """The place of each text of a column among its distinct texts, and these in the order in which they come.

    With `holes`, None is a missing value. Raises NotNumericError, with the row, for any other value that is no text of
    1 to 200 characters.
    """
    for row, value in enumerate(values):
        if holes and value is None:
            continue
        if not isinstance(value, str):
            others = "texts"
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                first_text = next(i for i, other in enumerate(values) if isinstance(other, str))
                if first_text > row:  # the rows before it agree
                    row, value, others = first_text, values[first_text], "numbers"
            raise NotNumericError(
                f"row {row} holds {shown(value)} in column {column}, which holds {others} too; send one kind",
                row=row,
                column=column,
            )
        if not 1 <= len(value) <= MAX_TEXT:
            raise NotNumericError(
                f"row {row} holds a text of {len(value)} characters in column {column}; send 1 to {MAX_TEXT}",
                row=row,
                column=column,
            )
    texts = tuple(text for text in dict.fromkeys(values) if text is not None)
    places: dict[str | None, float | None] = {text: float(place) for place, text in enumerate(texts)}
    return [places.get(text) for text in values], texts


def checked_texts(given: Sequence[tuple[int, list[str]]], x: Table, limits: WireLimits) -> TextColumns | None:
    """Check the texts of columns of a table (N, D): distinct texts of 1 to 200 characters for the number of a column.
    The values of such a column are places among its texts, or NaN where the stream accepts missing values.

    Raises MalformedBodyError, and NotNumericError where no column may hold texts.
    """
    found: dict[int, tuple[str, ...]] = {}
    for column, texts in given:
        usable = 0 < len(set(texts)) == len(texts) and all(1 <= len(text) <= MAX_TEXT for text in texts)
        if not 0 <= column < x.shape[1] or column in found or not usable:
            raise MalformedBodyError(
                f"c has the entry {str((column, texts))[:60]}; send the number of each column of texts once, with its "
                f"distinct texts of 1 to {MAX_TEXT} characters"
            )
        values = x[:, column]
        missing = limits.holes & np.isnan(values)
        wrong = ~((values >= 0) & (values < len(texts)) & (values == np.floor(values)) | missing)
        if wrong.any():
            row = int(wrong.argmax())
            raise MalformedBodyError(
                f"row {row} holds {float(values[row])!r} in column {column}, which is the place of none of its "
                f"{len(texts)} texts; send 0 for the first one"
            )
        if not limits.texts:
            check_number(0, column, texts[0 if missing[0] else int(values[0])])
        found[column] = tuple(texts)
    return tuple(found.items()) or None


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
