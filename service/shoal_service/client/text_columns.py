"""Columns of texts, which stand for categories: in tables of objects, and as places among their distinct texts."""

import math
import numbers
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shoal_service.client.errors import BadPointsError

TextColumns: TypeAlias = tuple[tuple[int, tuple[str, ...]], ...]
"""Columns of texts with their distinct texts, in the order in which they come."""

MAX_TEXT = 200
"""Most characters of a text. The service has the same limit."""


def holds_texts(table: npt.NDArray[Any]) -> bool:
    """Whether a table or a row is of texts by its type, or is of objects and holds a text."""
    return table.dtype.kind in "UT" or (
        table.dtype.kind == "O" and any(isinstance(value, str) for value in table.ravel())
    )


def columns_of_texts(table: npt.NDArray[Any], *, holes: bool) -> frozenset[int]:
    """The columns of a table (n, D) whose first value is a text; with `holes`, the first one that is not missing."""
    firsts = (next((v for v in values if not (holes and _is_missing(v))), None) for values in table.T)
    return frozenset(column for column, value in enumerate(firsts) if isinstance(value, str))


def with_places(
    table: npt.NDArray[Any], columns: frozenset[int], first_row: int, names: Sequence[str] | None, *, holes: bool
) -> tuple[npt.NDArray[np.float64], TextColumns]:
    """The table (n, D) of objects as numbers, with the place of each text among the texts of its column; and these.

    `columns` hold texts, the others numbers. With `holes`, None and NaN are missing values. Raises BadPointsError with
    the row in the source and the column of the first value of another kind.
    """
    for row, values in enumerate(table.tolist()):
        for column, value in enumerate(values):
            _check(value, column in columns, first_row + row, names[column] if names else column, holes)
    x = np.empty(table.shape)
    texts = []
    for column in range(table.shape[1]):
        values = table[:, column]
        if column in columns:
            known = [text for text in dict.fromkeys(values) if isinstance(text, str)]
            places = {text: float(place) for place, text in enumerate(known)}
            if known:
                texts.append((column, tuple(map(str, known))))
            values = [places.get(text, math.nan) for text in values]
        x[:, column] = values
    return x, tuple(texts)


def _check(value: Any, text: bool, row: int, column: object, holes: bool) -> None:
    where = f"row {row} holds {value!r:.60} in column {column!r}"
    if holes and _is_missing(value):
        return
    if not text:
        if isinstance(value, str):
            raise BadPointsError(f"{where}, which holds numbers in the rows before; send one kind", row=row)
        if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
            raise BadPointsError(f"{where}; send real numbers (float or integer)", row=row)
        if isinstance(value, int) and abs(value) > 10**300:  # has no float
            raise BadPointsError(f"{where}, which is above 1e150 in magnitude; fix or drop the row", row=row)
    elif not isinstance(value, str):
        raise BadPointsError(f"{where}, which holds texts in the rows before; send one kind", row=row)
    elif not 1 <= len(value) <= MAX_TEXT:
        raise BadPointsError(
            f"row {row} holds a text of {len(value)} characters in column {column!r}; send 1 to {MAX_TEXT}", row=row
        )


def texts_in_place(x: npt.NDArray[Any], texts: TextColumns) -> npt.NDArray[Any]:
    """The table (n, D) as objects, with the texts in the place of their places."""
    table = x.astype(object)
    for column, words in texts:
        table[:, column] = [None if math.isnan(place) else words[int(place)] for place in x[:, column]]
    return table


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))
