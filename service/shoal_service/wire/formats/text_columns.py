"""Rows of numbers and texts, as a table: a text is replaced by its place among the texts of its column."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.errors import NotNumericError
from shoal_service.errors import MalformedBodyError
from shoal_service.wire.formats.text_rows import check_number, refuse_first_bad_row, shown, table_of
from shoal_service.wire.points import Table, Texts, WireLimits, check_shape

MAX_TEXT = 200
"""Most characters of a text. The library has the same limit."""


def table_with_texts(rows: Sequence[Sequence[Any]], limits: WireLimits) -> tuple[Table, Texts | None]:
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
            raise NotNumericError(
                f"row {row} holds {shown(value)} in column {column}, which holds texts too; send one kind",
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


def checked_texts(given: Sequence[tuple[int, list[str]]], x: Table, limits: WireLimits) -> Texts | None:
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
