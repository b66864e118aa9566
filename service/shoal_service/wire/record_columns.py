"""Columns of a table that hold fields of records (key, time, payload, weight) and are no features."""

import json
import re
from typing import Any

import msgspec

from shoal.errors import did_you_mean
from shoal_service.errors import ParameterError

_JSON_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d{1,2})?", re.ASCII)
_EXACT_DIGITS = 15
"""Longest text of a number that a float64 gives back with all its digits."""


class RecordColumns(msgspec.Struct, frozen=True):
    """Names of the columns of a table that hold fields of records. A column may be named twice.

    In a table without names they are numbers from 0, as text.
    """

    key: str | None = None
    time: str | None = None
    payload: tuple[str, ...] = ()
    """Each becomes a field of the payload, under its name."""
    weight: str | None = None

    def __bool__(self) -> bool:
        """Whether any column is named."""
        return bool(self.named)

    @property
    def named(self) -> tuple[str, ...]:
        """All names, each once."""
        single = (name for name in (self.key, self.time, self.weight) if name is not None)
        return tuple(dict.fromkeys((*single, *self.payload)))

    def check_in(self, names: list[str]) -> None:
        """Check that each is one of `names`. Raises ParameterError."""
        for name in self.named:
            if names.count(name) > 1:
                raise ParameterError(f"{names.count(name)} columns are called {name[:60]!r}; rename all but one")
            if name not in names:
                shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
                advice = did_you_mean(name, names)
                raise ParameterError(f"there is no column {name[:60]!r}; {advice}the columns are {shown[:400]}")


def payload_of_cell(cell: str) -> Any:
    """The value of a cell of text in a payload: None if empty, a number if JSON writes it so, otherwise the text.

    Numbers of many digits and those with leading zeros, such as the number of an account, stay text.
    """
    if not cell:
        return None
    return json.loads(cell) if len(cell) <= _EXACT_DIGITS and _JSON_NUMBER.fullmatch(cell) else cell


def time_of_cell(cell: str) -> Any:
    """The time in a cell of text: seconds since 1970 if it is a number, otherwise text; None if empty."""
    cell = cell.strip()
    if not cell:
        return None
    try:
        return float(cell) if "_" not in cell else cell
    except ValueError:
        return cell


def weight_of_cell(cell: str) -> Any:
    """The weight in a cell of text; the text itself if it is not a number, which the check of weights refuses."""
    return time_of_cell(cell)
