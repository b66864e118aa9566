"""Rows whose features have names, such as `{"cpu": 0.3, "mem": 0.7}`: the first row gives the order of the columns."""

from collections.abc import Iterable, Sequence
from typing import Any

from shoal_service.errors import RecordFieldError
from shoal_service.wire.feature_names import column_order
from shoal_service.wire.formats.text_rows import check_number, shown, table_of
from shoal_service.wire.points import Table, WireLimits


def named_table(rows: Sequence[dict[str, float]], limits: WireLimits) -> tuple[Table, tuple[str, ...]]:
    """Make the table (N, D) of `rows`, and the names of its columns. The order of names may differ between rows.

    Raises FeatureNamesError, with the first row that lacks a name of row 0 or has another one; ShapeError,
    NotFiniteError and LimitError as `table_of`.
    """
    names = tuple(rows[0]) if rows else ()
    return table_of([_values(i, row, names) for i, row in enumerate(rows)], limits), names


def refuse_first_bad_named_row(rows: Iterable[object]) -> None:
    """Raise the error for the first row that is not an object, holds other names than row 0, or a bad number."""
    names: tuple[str, ...] | None = None
    for i, row in enumerate(rows):
        if not isinstance(row, dict):
            raise RecordFieldError(
                f"row {i} is {shown(row)}, and the rows before have named features; send one kind of rows", row=i
            )
        names = tuple(row) if names is None else names
        for j, value in enumerate(_values(i, row, names)):
            check_number(i, j, value)


def _values(number: int, row: dict[str, Any], names: tuple[str, ...]) -> list[Any]:
    """The values of a row in the order of `names`."""
    if tuple(row) == names:
        return list(row.values())
    given = list(row)
    column_order(given, names, "row 0", number)
    return [row[name] for name in names]
