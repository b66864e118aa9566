"""csv and ndjson files, read line by line in bounded memory. Errors name the line."""

import csv
import io
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn, TypeAlias

import msgspec
import numpy as np

from shoal.errors import counted
from shoal.points.arrays import Array
from shoal_service.cli.exits import CommandError
from shoal_service.cli.readers.table import bad_number, choose_columns

Rows: TypeAlias = Iterator[tuple[int, list[float]]]
"""(line number from 1, numbers of the row)"""

_DELIMITERS = {"tab": "\t", "\\t": "\t", "space": " "}


def gather(rows: Rows, file: str, chunk_rows: int) -> Iterator[Array]:
    """Make checked tables (n, D) of `chunk_rows` rows. The last may be shorter."""
    width: int | None = None
    while block := list(itertools.islice(rows, chunk_rows)):
        width = len(block[0][1]) if width is None else width
        for line, values in block:
            if len(values) != width:
                raise CommandError(
                    f"{file}, line {line}: {counted(len(values), 'number')}, the lines before have {width}"
                )
        chunk = np.array([values for _, values in block], dtype=np.float64)
        if (bad := bad_number(chunk)) is not None:
            line = block[bad[0]][0]
            raise CommandError(f"{file}, line {line}: {bad[1]} among the numbers; fix or drop the line")
        yield chunk


def csv_rows(
    lines: io.TextIOWrapper, file: str, columns: str | None, header: bool | None, delimiter: str | None
) -> Rows:
    """Rows of a csv. If `header` is None, the first line is a header if a chosen cell of it is not a number."""
    try:
        yield from _csv_rows(lines, file, columns, header, delimiter)
    except csv.Error as error:
        raise CommandError(f"{file} is not a usable csv: {error}") from error


def _csv_rows(
    lines: io.TextIOWrapper, file: str, columns: str | None, header: bool | None, delimiter: str | None
) -> Rows:
    records = _records(lines, delimiter)
    first = next(records, None)
    if first is None:
        return
    line, cells = first
    width = len(cells)
    named = header
    if named is None:
        by_number = choose_columns(columns, None, width, file) if columns and _all_digits(columns) else None
        named = not all(_is_number(cells[i]) for i in (by_number or range(width)))
    names = [cell.strip() for cell in cells] if named else None
    picked = choose_columns(columns, names, width, file)
    for line, cells in records if named else itertools.chain([first], records):
        if len(cells) != width:
            raise CommandError(f"{file}, line {line}: {counted(len(cells), 'column')}, the lines before have {width}")
        chosen = cells if picked is None else [cells[i] for i in picked]
        try:
            values = list(map(float, chosen))
        except ValueError:
            _blame(file, line, chosen, picked, names)
        if "_" in "".join(chosen):  # Python reads 1_0 as ten
            _blame(file, line, chosen, picked, names)
        yield line, values


def _records(lines: io.TextIOWrapper, delimiter: str | None) -> Iterator[tuple[int, list[str]]]:
    """(line number from 1, cells) of every line that is not blank."""
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
    yield from ((blank + reader.line_num, cells) for cells in reader if cells)


def _seen_delimiter(line: str) -> str:
    for candidate in ("\t", ";", ",", "|"):
        if candidate in line:
            return candidate
    return " " if len(line.split()) > 1 else ","


def _blame(file: str, line: int, cells: list[str], picked: list[int] | None, names: list[str] | None) -> NoReturn:
    place = next(i for i, cell in enumerate(cells) if not _is_number(cell))
    column = place if picked is None else picked[place]
    label = f"column {names[column]!r}" if names else f"column {column}"
    what = f"{cells[place]!r} is not a number" if cells[place].strip() else "empty"
    raise CommandError(f"{file}, line {line}, {label}: {what}; fix it, drop the line, or choose --columns without it")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def _all_digits(columns: str) -> bool:
    return all(character in "0123456789-, " for character in columns)


def ndjson_rows(lines: Iterable[tuple[int, str]], file: str, columns: str | None) -> Rows:
    """Rows of ndjson, with line numbers: one JSON array of numbers per line, or objects with the fields `columns`."""
    numbers = msgspec.json.Decoder(list[float])
    for line, text in lines:
        try:
            row = numbers.decode(text)
        except msgspec.DecodeError:
            row = _unusual_row(text, file, line, columns)
        else:
            picked = choose_columns(columns, None, len(row), file)
            row = row if picked is None else [row[i] for i in picked]
        yield line, row


def _unusual_row(text: str, file: str, line: int, columns: str | None) -> list[float]:
    """Chosen fields of an object. Other values are refused."""
    try:
        value: Any = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise CommandError(f"{file}, line {line} is not JSON ({error}); write one array of numbers per line") from error
    if not isinstance(value, dict):
        raise CommandError(f"{file}, line {line}: {text.strip()[:60]} is not an array of numbers; write one per line")
    if columns is None:
        raise CommandError(f"{file}, line {line} is an object; choose its fields with --columns {','.join(value)}")
    names = [name.strip() for name in columns.split(",")]
    try:
        return msgspec.convert([value.get(name) for name in names], list[float], strict=True)
    except msgspec.ValidationError as error:
        bad = next(
            name for name in names if isinstance(value.get(name), bool) or not isinstance(value.get(name), int | float)
        )
        raise CommandError(f"{file}, line {line}: field {bad!r} is {value.get(bad)!r}, not a number") from error
