"""Rows of numbers, as the formats of text write them, to a table; and the first bad row, where there is one.

Good rows take the fast way: a typed decoder in C, then lengths and values all at once. It stops at the first fault that
*it* sees, which need not be the first bad row (a ragged one before it passes), so refused rows are read once more,
slowly, one after another.
"""

import json
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from shoal.errors import NotNumericError, ShapeError
from shoal_service.errors import LimitError
from shoal_service.wire.points import MAX_MAGNITUDE, Body, Table, WireLimits, check_shape, check_values, not_finite

EXPECTED = "[1.0, 2.0]"
_LONG = 20
"""Digits from which an integer is read as a float: of more than 4,300 Python makes none, and none of them is exact."""


def table_of(rows: Sequence[Sequence[float]], limits: WireLimits) -> Table:
    """The table (N, D) of `rows`, as float64. ShapeError (none, ragged), NotFiniteError, LimitError."""
    width = len(rows[0]) if rows else 0
    check_shape(len(rows), width, limits)
    if any(length != width for length in set(map(len, rows))):
        refuse_first_bad_row(rows)
    x = np.fromiter(chain.from_iterable(rows), np.float64, len(rows) * width).reshape(len(rows), width)
    check_values(x)
    return x


def check_count(body: Body, limits: WireLimits) -> None:
    """Refuse by the commas, before a number is read: each becomes an object of some 32 bytes."""
    n_values = body.count(b",") + 1
    if n_values > limits.max_values:
        raise LimitError(
            f"the body holds {n_values} numbers, at most {limits.max_values} are taken; send smaller batches"
        )


def slow_json(text: str) -> Any:
    """Any JSON, and NaN and Infinity too, which is what most bad bodies hold. ValueError, RecursionError."""
    return json.loads(text, parse_int=_integer)


def refuse_first_bad_row(rows: Iterable[object], width: int = 0) -> None:
    """Raise for the first row that is no list, holds what is no usable number, or is not as long as the first.

    `rows` may be read as it goes: what reading it raises comes after the faults of the rows before.
    """
    for i, row in enumerate(rows):
        if not isinstance(row, list):
            raise ShapeError(f"row {i} is {shown(row)}, which is no array; send rows like {EXPECTED}", row=i)
        for j, value in enumerate(row):
            check_number(i, j, value)
        width = width or len(row)
        if len(row) != width or width == 0:
            others = f"the rows before it {width}" if i else "at least one is needed"
            raise ShapeError(f"row {i} holds {len(row)} numbers, {others}; send rows of equal length", row=i)


def check_number(row: int, column: int, value: object) -> None:
    """NotNumericError for what is no number, NotFiniteError for one that cannot be used."""
    if isinstance(value, bool) or not isinstance(value, float | int):
        raise NotNumericError(f"row {row} holds {shown(value)} in column {column}, which is no number", row=row)
    if not abs(value) <= MAX_MAGNITUDE:
        raise not_finite(row, column, float(value))


def shown(value: object) -> str:
    """A value as JSON has it, cut to what fits in a message."""
    if isinstance(value, list | dict):
        return "an array" if isinstance(value, list) else "an object"
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) < _LONG else float(digits)
