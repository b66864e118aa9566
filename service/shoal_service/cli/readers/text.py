"""csv files, read line by line in bounded memory; and rows of text as chunks. Errors name the line."""

import csv
import io
import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from shoal.errors import counted
from shoal_service.cli.exits import CommandError
from shoal_service.cli.readers.bad_rows import BadRowError, BadRows, RowPlace
from shoal_service.cli.readers.chunk import Chunk, Fields, checked_chunk
from shoal_service.cli.readers.table import ACCEPT_MISSING, Layout, checked_text, choose_layout, is_number
from shoal_service.wire.record_columns import RecordColumns, payload_of_cell, time_of_cell, weight_of_cell

SHOWN_CHARS = 80
"""Characters of a cell that an error shows."""
_DELIMITERS = {"tab": "\t", "\\t": "\t", "space": " "}


Row: TypeAlias = tuple[int, list[Any], tuple[Any, Any, Any, Any] | None, Any]
"""A line of text: its number from 1; its point, of floats and of texts of categories; its key, time, payload and
weight; how it stands in the file, for a report. A plain tuple, because making a named one takes a quarter of the time
to read a short line."""


def gather(
    rows: Iterator[Row], chunk_rows: int, bad: BadRows, labels: Callable[[int], str] | None = None
) -> Iterator[Chunk]:
    """Make checked chunks of `chunk_rows` rows. The last may be shorter, and so may those with bad rows."""
    width: int | None = None
    while block := list(itertools.islice(rows, chunk_rows)):
        lines, points, fields, texts = zip(*block, strict=True)
        width = len(points[0]) if width is None else width
        if any(length != width for length in set(map(len, points))):
            for line, values, _, text in block:
                if len(values) != width:
                    fault = BadRowError(f"{counted(len(values), 'number')}, the lines before have {width}")
                    bad.add(RowPlace("line", line), fault, text)
            block = [row for row in block if len(row[1]) == width]
            if not block:
                continue
            lines, points, fields, texts = zip(*block, strict=True)
        yield checked_chunk(
            _table(points),
            "line",
            np.array(lines, dtype=np.int64),
            bad,
            fields=_fields(fields),
            rows=texts if bad.reports else None,
            labels=labels,
        )


def _table(points: Sequence[list[Any]]) -> Any:
    """Rows as a table (n, D) of float64; of objects where a row holds texts."""
    table = np.array(points)
    return table if table.dtype == np.float64 else np.array(points, dtype=object)


def _fields(rows: Sequence[tuple[Any, Any, Any, Any] | None]) -> Fields:
    if not any(rows):
        return Fields()
    columns = zip(*(row or (None,) * 4 for row in rows), strict=True)
    return Fields(*(list(column) if any(v is not None for v in column) else None for column in columns))


class CsvFile:
    """The rows of a csv. The first line is a header if a feature of it is not a number, unless `header` says so."""

    def __init__(
        self,
        lines: io.TextIOWrapper,
        bad: BadRows,
        columns: str | None,
        header: bool | None,
        delimiter: str | None,
        records: RecordColumns | None,
    ) -> None:
        self._lines, self._bad, self._columns = lines, bad, columns
        self._header, self._delimiter, self._records = header, delimiter, records or RecordColumns()
        self._layout: Layout | None = None
        self.texts: frozenset[int] | None = None
        """The features that hold texts, as the first row or the caller says. None before it."""
        self._without_value: frozenset[int] = frozenset()
        """Features of categories of which all rows so far lacked a value, so that they may hold texts."""

    def label(self, feature: int) -> str:
        """Name of a feature in the file."""
        assert self._layout is not None
        return self._layout.label(feature)

    @property
    def names(self) -> list[str] | None:
        """Names of the features, from the header. None before the first row, and without a header."""
        layout = self._layout
        return None if layout is None or layout.names is None else [layout.names[i] for i in layout.features]

    def rows(self) -> Iterator[Row]:
        """Rows that hold numbers. Others go to the bad rows."""
        records = _records(self._lines, self._delimiter, self._bad.file)
        first = next(records, None)
        if first is None:
            return
        width = len(first[1])
        layout = choose_layout(first[1], self._header, self._columns, self._records, self._bad)
        self._layout = layout
        kept = self._bad.reports  # keeping the cells of a chunk takes a fifth of the time to read them
        has_fields = bool(self._records)
        features, all_cells = layout.features, layout.features == list(range(width))
        for line, cells in records if layout.named else itertools.chain([first], records):
            try:
                if len(cells) != width:
                    raise BadRowError(f"{counted(len(cells), 'column')}, the lines before have {width}")
                values: list[Any] = cells if all_cells else [cells[i] for i in features]
                if self.texts is None:
                    self.texts, self._without_value = self._columns_of_texts(values)
                elif waiting := self._without_value:
                    texts, empty = self._columns_of_texts(values)
                    self.texts, self._without_value = self.texts | (waiting & texts), waiting & empty
                if self.texts:
                    values = _with_texts(values, layout, self._bad, self.texts)
                else:
                    values = _numbers(values, layout, self._bad)
            except BadRowError as fault:
                self._bad.add(RowPlace("line", line), fault, cells)
            else:
                yield line, values, self._fields_of(cells, layout) if has_fields else None, cells if kept else None

    def _columns_of_texts(self, first: list[str]) -> tuple[frozenset[int], frozenset[int]]:
        """The features that hold texts: categories whose first cell is no number, or whose levels have names. And the
        categories without a first cell."""
        words = frozenset(place for place, cell in enumerate(first) if cell.strip() and not is_number(cell))
        empty = frozenset(place for place, cell in enumerate(first) if not cell.strip())
        categories, width = self._bad.categories, len(first)
        found = categories.known_texts(self.names, width)
        among = categories.among(self.names, width) if words or empty else frozenset()
        return found | (words & among), (empty & among) - found

    def _fields_of(self, cells: list[str], layout: Layout) -> tuple[Any, Any, Any, Any]:
        at = layout.at
        key, time, weight = (None if i is None else cells[i] for i in (at.key, at.time, at.weight))
        payload = {name: payload_of_cell(cells[i]) for name, i in at.payload} or None
        return key or None, time_of_cell(time or ""), payload, weight_of_cell(weight or "")


def _numbers(cells: list[str], layout: Layout, bad: BadRows) -> list[float]:
    """The numbers of the features, NaN for a missing one. Raises BadRowError."""
    try:
        values = list(map(float, cells))
    except ValueError:
        pass
    else:
        if "_" not in "".join(cells):  # Python reads 1_0 as ten
            return values
    if any(map(_is_missing, cells)) and bad.takes_holes:
        filled = ["nan" if _is_missing(cell) else cell for cell in cells]
        return _numbers(filled, layout, bad)
    place = next(i for i, cell in enumerate(cells) if not is_number(cell))
    cell, label = cells[place], layout.label(place)
    shown = repr(cell if len(cell) <= SHOWN_CHARS else cell[:SHOWN_CHARS] + "...")
    if advice := bad.categories.misnamed(layout.name(place)):
        raise BadRowError(f"{shown} is not a number", advice, label)
    remedy = "fix it, drop the line, or choose --columns without it"
    if _is_missing(cell):
        raise BadRowError(f"{cell!r} is no value" if cell.strip() else "empty", f"{remedy}; {ACCEPT_MISSING}", label)
    remedy += "; `shoal ingest` keeps texts by --key-column and --payload-columns"
    remedy += "; a column of categories needs a family of its own, "
    name = json.dumps(str(layout.name(place) or layout.features[place]), ensure_ascii=False)
    remedy += f'as in {{{name}: "categorical", ...}}, and a text in its first line'
    raise BadRowError(f"{shown} is not a number", remedy, label)


def _is_missing(cell: str) -> bool:
    """Whether a cell in a column of numbers stands for a missing value: an empty one, or NA, as R writes it."""
    return cell.strip() in ("", "NA")


def _with_texts(cells: list[str], layout: Layout, bad: BadRows, texts: frozenset[int]) -> list[Any]:
    """The cells of the features: of those in `texts` as they are, of the others as numbers. Raises BadRowError."""
    others = [place for place in range(len(cells)) if place not in texts]
    numbers = iter(
        _numbers([cells[i] for i in others], layout._replace(features=[layout.features[i] for i in others]), bad)
    )
    missing = {place for place in texts if bad.takes_holes and not cells[place].strip()}
    return [
        math.nan if i in missing else checked_text(cell, layout.label(i)) if i in texts else next(numbers)
        for i, cell in enumerate(cells)
    ]


def _records(lines: io.TextIOWrapper, delimiter: str | None, file: str) -> Iterator[tuple[int, list[str]]]:
    """(line number from 1, cells) of every line that is not blank. Raises CommandError for one that is no csv."""
    blank = 0
    for start in lines:
        if start.strip():
            break
        blank += 1
    else:
        return
    delimiter = _DELIMITERS.get(delimiter, delimiter) if delimiter else _seen_delimiter(start)
    rest = itertools.chain([start], lines)
    if delimiter == " ":  # runs of spaces are one; the csv module would see empty cells
        yield from ((i, line.split()) for i, line in enumerate(rest, blank + 1) if line.strip())
        return
    if len(delimiter) != 1:
        raise CommandError(f"--delimiter {delimiter!r} is not one character; use one character, `tab` or `space`")
    reader = csv.reader(rest, delimiter=delimiter, skipinitialspace=True)
    done = blank
    try:
        for cells in reader:
            done = blank + reader.line_num
            if cells:
                yield done, cells
    except csv.Error as error:
        words = str(error)
        if "field limit" in words:
            words = f"a cell has more than {csv.field_size_limit():,} characters; shorten it, or close its quote"
        raise CommandError(f"{file}, line {done + 1}: {words}") from error


def _seen_delimiter(line: str) -> str:
    for candidate in ("\t", ";", ",", "|"):
        if candidate in line:
            return candidate
    return " " if len(line.split()) > 1 else ","
