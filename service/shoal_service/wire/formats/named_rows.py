"""Rows whose features have names, such as `{"cpu": 0.3, "mem": 0.7}`: the first row gives the order of the columns.

A missing value is null. A name that a row leaves out is an error, as it may be a misspelt one.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from shoal_service.errors import RecordFieldError
from shoal_service.wire.feature_names import checked_names, column_order
from shoal_service.wire.formats.text_rows import check_number, shown


def named_rows(rows: Sequence[dict[str, Any]]) -> tuple[list[list[Any]], tuple[str, ...]]:
    """Values of `rows`, and the names of their columns. The order of names may differ between rows.

    Raises FeatureNamesError, with the first row that lacks a name of row 0 or has another one, and for a name that is
    empty or too long.
    """
    names = tuple(rows[0]) if rows else ()
    checked_names(list(names), len(names))
    return [_values(i, row, names) for i, row in enumerate(rows)], names


def refuse_first_bad_named_row(rows: Iterable[object], *, holes: bool = False, texts: bool = False) -> None:
    """Raise the error for the first row that is not an object, holds other names than row 0, or a bad number.
    With `holes`, None is a missing value. With `texts`, a text is no bad number.
    """
    names: tuple[str, ...] | None = None
    for i, row in enumerate(rows):
        if not isinstance(row, dict):
            raise RecordFieldError(
                f"row {i} is {shown(row)}, and the rows before have named features; send one kind of rows", row=i
            )
        names = tuple(row) if names is None else names
        for name, value in zip(names, _values(i, row, names), strict=True):
            if not (holes and value is None) and not (texts and isinstance(value, str)):
                check_number(i, name, value)


def _values(number: int, row: dict[str, Any], names: tuple[str, ...]) -> list[Any]:
    """The values of a row in the order of `names`."""
    if tuple(row) == names:
        return list(row.values())
    given = list(row)
    column_order(given, names, "row 0", number)
    return [row[name] for name in names]
