"""Columns of a table, chosen by name or by number."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from shoal.errors import NotFiniteError, did_you_mean
from shoal.points.arrays import MAX_MAGNITUDE, check_finite
from shoal.points.rows import SparseRows
from shoal_service.cli.exits import CommandError

_NUMBERS = re.compile(r"\d+(-\d+)?")


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
        return [names.index(part) for part in parts]
    if all(_NUMBERS.fullmatch(part) for part in parts):
        return [index for part in parts for index in _numbers(part, width, file)]
    if names is None:
        raise CommandError(f"{file} has no column names; choose --columns by number from 0, such as 0,2-5")
    missing = [part for part in parts if part not in names]
    advice = did_you_mean(missing[0], names)
    raise CommandError(f"{file} has no column {missing[0]!r}; {advice}it has {', '.join(names)}")


def bad_number(chunk: Any) -> tuple[int, str] | None:
    """First row of a chunk (n, D) with NaN, infinity or a magnitude above 1e150, and that number; or None."""
    sparse = isinstance(chunk, SparseRows)
    try:
        check_finite(chunk.data[:, None] if sparse else chunk)
    except NotFiniteError as error:
        row = error.row or 0
        if sparse:
            row = int(np.searchsorted(chunk.indptr, row, side="right")) - 1
        values = chunk[[row]].data if sparse else chunk[row]
        return row, f"{next(float(v) for v in values if not abs(float(v)) <= MAX_MAGNITUDE):g}"
    return None


def take_columns(chunks: Iterator[Any], choice: str | None, file: str) -> Iterator[Any]:
    """Give the chosen columns of each chunk (n, D), dense or sparse, checked."""
    done = 0
    for chunk in chunks:
        picked = choose_columns(choice, None, chunk.shape[1], file)
        taken = chunk if picked is None else chunk[:, picked]
        if (bad := bad_number(taken)) is not None:
            raise CommandError(f"{file}, row {done + bad[0]} (from 0): {bad[1]} among the numbers; fix or drop the row")
        done += len(chunk)
        yield taken


def _numbers(part: str, width: int, file: str) -> range:
    first, _, last = part.partition("-")
    chosen = range(int(first), int(last or first) + 1)
    if not chosen or chosen[-1] >= width:
        raise CommandError(f"--columns {part} does not exist in {file}, whose columns are 0 to {width - 1}")
    return chosen
