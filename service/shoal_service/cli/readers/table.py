"""Columns of a table, chosen by name or by number."""

import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from shoal.errors import did_you_mean
from shoal_service.cli.exits import CommandError
from shoal_service.cli.readers.bad_rows import BadRowError, BadRows
from shoal_service.cli.readers.chunk import Chunk, checked_chunk
from shoal_service.wire.record_columns import RecordColumns

_NUMBERS = re.compile(r"\d+(-\d+)?")
MAX_TEXT = 200
"""Most characters of the text of a category. The service and the library have the same limit."""


def choose_columns(choice: str | None, names: list[str] | None, width: int, file: str) -> list[int] | None:
    """Indices for `--columns`: numbers from 0 and ranges (`0,2-5`, including both ends), or names; None for all.

    `names` is the header, where there is one, and wins: a column may be called `3`.
    """
    if choice is None:
        return None
    parts = [part.strip() for part in choice.split(",") if part.strip()]
    if not parts:
        raise CommandError("--columns is empty; use names (x,y) or numbers from 0 (0,2-5)")
    if names is not None and all(part in names for part in parts):
        for part in parts:
            if names.count(part) > 1:
                raise CommandError(
                    f"{file} has {names.count(part)} columns called {part!r}; choose --columns by number from 0, or "
                    "rename all but one"
                )
        return [names.index(part) for part in parts]
    if all(_NUMBERS.fullmatch(part) for part in parts):
        return [index for part in parts for index in _numbers(part, width, file)]
    if names is None:
        raise CommandError(f"{file} has no column names; choose --columns by number from 0, such as 0,2-5")
    missing = [part for part in parts if part not in names]
    advice = did_you_mean(missing[0], names)
    raise CommandError(f"{file} has no column {missing[0]!r}; {advice}it has {_listed(names)}")


def _listed(names: list[str], at_most: int = 30) -> str:
    """The first names, and how many follow."""
    more = f" and {len(names) - at_most:,} more" if len(names) > at_most else ""
    return ", ".join(names[:at_most]) + more


class FieldPlaces(NamedTuple):
    """Indices of the columns that hold fields of records."""

    key: int | None
    time: int | None
    payload: list[tuple[str, int]]
    weight: int | None


class Layout(NamedTuple):
    """Meaning of the columns of a table."""

    named: bool
    """Whether the first line holds names."""
    names: list[str] | None
    features: list[int]
    at: FieldPlaces

    def label(self, feature: int) -> str:
        """Name of a feature in an error."""
        name = self.name(feature)
        return f"column {self.features[feature]}" if name is None else f"column {name!r}"

    def name(self, feature: int) -> str | None:
        """Name of a feature, where the file has names."""
        return self.names[self.features[feature]] if self.names else None


def choose_layout(
    first: list[str], header: bool | None, columns: str | None, records: RecordColumns, bad: BadRows
) -> Layout:
    """Decide what the columns of a csv hold, from the cells of its first line.

    If `header` is None, the line is a header if it has all the names of `records`, or if a feature of it is not a
    number; but for categories beside numbers. Raises CommandError.
    """
    file = bad.file
    titles = [cell.strip() for cell in first]
    named = header
    if named is None:
        named = bool(records) and not all(name.isdigit() for name in records.named)
    if not named and header is None:
        by_number = choose_columns(columns, None, len(first), file) if columns and _all_digits(columns) else None
        maybe = by_number or [i for i in range(len(first)) if str(i) not in records.named]
        texts = frozenset(place for place, i in enumerate(maybe) if not is_number(first[i]))
        beside_numbers = 0 < len(texts) < len(maybe) and texts <= bad.categories.among(None, len(maybe))
        named = bool(texts) and not beside_numbers
    names = titles if named else None
    return Layout(named, names, *features_and_fields(names, len(first), columns, records, file))


def features_and_fields(
    names: list[str] | None,
    width: int,
    columns: str | None,
    records: RecordColumns,
    file: str,
    index: frozenset[str] = frozenset(),
) -> tuple[list[int], FieldPlaces]:
    """Indices of the features, and of the fields of records. Raises CommandError.

    `index`: columns that are no features unless they are chosen.
    """

    def place(name: str | None) -> int | None:
        return None if name is None else _column(name, names, width, file)

    payload = [(name, _column(name, names, width, file)) for name in records.payload]
    at = FieldPlaces(place(records.key), place(records.time), payload, place(records.weight))
    taken = {i for i in (at.key, at.time, at.weight, *(i for _, i in payload)) if i is not None}
    chosen = choose_columns(columns, names, width, file)
    if chosen is None:
        chosen = [i for i in range(width) if i not in taken and not (names and names[i] in index)]
        if not width:
            raise CommandError(f"{file} has no columns")
        if not chosen:
            raise CommandError(f"{file} has no column left for the features; name fewer columns of fields")
    elif both := [i for i in chosen if i in taken]:
        name = names[both[0]] if names else both[0]
        raise CommandError(f"--columns holds column {name!r}, which is a field of records; leave it out of --columns")
    return chosen, at


def _column(name: str, names: list[str] | None, width: int, file: str) -> int:
    if names is not None and name in names:
        if names.count(name) > 1:
            raise CommandError(f"{file} has {names.count(name)} columns called {name!r}; rename all but one")
        return names.index(name)
    if name.isdigit() and int(name) < width:
        return int(name)
    shown = ", ".join(names) if names is not None else f"no names, and the columns 0 to {width - 1}"
    advice = did_you_mean(name, names or ())
    raise CommandError(f"{file} has no column {name!r}; {advice}it has {shown}")


def is_number(cell: str) -> bool:
    """Whether a cell of text is a number, as Python reads it, without underscores."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


ACCEPT_MISSING = "with missing=marginal (--missing marginal of `shoal fit`), a value may be missing"


def checked_text(value: str, label: str) -> str:
    """The text of a category, without spaces around it. Raises BadRowError for an empty or too long one."""
    text = value.strip()
    if not text:
        remedy = f"fix it, drop the row, or choose --columns without it; {ACCEPT_MISSING}"
        raise BadRowError("empty", remedy, label)
    if len(text) > MAX_TEXT:
        raise BadRowError(f"a text of {len(text)} characters", f"a category has 1 to {MAX_TEXT}", label)
    return text


def _all_digits(columns: str) -> bool:
    return all(character in "0123456789-, " for character in columns)


def table_chunks(chunks: Iterator[Any], choice: str | None, bad: BadRows) -> Iterator[Chunk]:
    """Give the chosen columns of each table (n, D), dense or sparse, checked."""
    done = 0
    for table in chunks:
        picked = choose_columns(choice, None, table.shape[1], bad.file)
        taken = table if picked is None else table[:, picked]
        used = range(table.shape[1]) if picked is None else picked
        label = functools.partial(_numbered_column, used)
        yield checked_chunk(taken, "row", np.arange(done, done + len(table)), bad, labels=label)
        done += len(table)


def _numbered_column(used: Sequence[int], feature: int) -> str:
    return f"column {used[feature]}"


def _numbers(part: str, width: int, file: str) -> range:
    first, _, last = part.partition("-")
    chosen = range(int(first), int(last or first) + 1)
    if not chosen or chosen[-1] >= width:
        raise CommandError(f"--columns {part} does not exist in {file}, whose columns are 0 to {width - 1}")
    return chosen
