"""Rows of a file that cannot be used: the first one stops the command, or all are skipped, or also reported."""

from collections.abc import Callable
from functools import cache
from typing import IO, Any, NamedTuple

import msgspec

from shoal_service.cli.exits import CommandError
from shoal_service.cli.readers.categories import Categories

_VERBS = ("is ", "has ", "holds ")


class RowPlace(NamedTuple):
    """Place of a row in a file."""

    unit: str
    """`line`, counted from 1, in text; `row`, counted from 0, elsewhere."""
    number: int

    def __str__(self) -> str:
        return f"line {self.number}" if self.unit == "line" else f"row {self.number} (from 0)"


class BadRowError(Exception):
    """A row of a file cannot be used. It is raised while the row is read, and handled by its reader."""

    def __init__(self, reason: str, remedy: str = "", column: str = "") -> None:
        super().__init__(reason)
        self.reason, self.remedy, self.column = reason, remedy, column

    def text(self) -> str:
        """Column and reason."""
        return f"{self.column}: {self.reason}" if self.column else self.reason


class BadRows:
    """The bad rows of one file.

    `stops`: the first one is an error; otherwise they are counted. `report` is open for text; it gets one JSON object
    per line. `takes_holes` says whether a missing value is none of them; it is called once, when the first is seen.
    `categories` gives the columns in which a text is none of them; it is called once, when they matter.
    """

    def __init__(
        self,
        file: str,
        *,
        stops: bool = True,
        report: IO[str] | None = None,
        takes_holes: Callable[[], bool] = lambda: False,
        categories: Callable[[], Categories] = Categories,
    ) -> None:
        self.file, self.stops = file, stops
        self._categories: Callable[[], Categories] = cache(categories)
        self._takes_holes: Callable[[], bool] = cache(takes_holes)
        self.count = 0
        self._report = report

    @property
    def takes_holes(self) -> bool:
        """Whether a row may have missing values."""
        return self._takes_holes()

    @property
    def categories(self) -> Categories:
        """The columns of categories."""
        return self._categories()

    @property
    def reports(self) -> bool:
        """Whether rows are reported as they stand in the file."""
        return self._report is not None

    def add(self, place: RowPlace, bad: BadRowError, row: Any) -> None:
        """Handle a bad row. `row` is what the file holds there. Raises CommandError if the command is to stop."""
        row = row.strip() if isinstance(row, str) else row
        if self.stops:
            where = f"{place}, {bad.column}" if bad.column else str(place)
            link = " " if bad.reason.startswith(_VERBS) else ": "
            remedy = f"; {bad.remedy}" if bad.remedy else ""
            raise CommandError(f"{self.file}, {where}{link}{bad.reason}{remedy}") from bad
        self.count += 1
        if self._report is not None:
            entry = {place.unit: place.number, "reason": bad.text(), "row": row}
            self._report.write(msgspec.json.encode(entry, enc_hook=str).decode() + "\n")
            self._report.flush()
