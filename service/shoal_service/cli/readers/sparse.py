"""Sparse points: npz files of `scipy.sparse.save_npz`, and ndjson of `{"indices": [...], "values": [...]}`."""

import itertools
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from shoal.errors import InputError
from shoal.points.rows import SparseRows
from shoal_service.cli.exits import CommandError
from shoal_service.cli.readers.bad_rows import BadRowError, BadRows, Place
from shoal_service.cli.readers.chunk import Chunk, Fields
from shoal_service.wire import WireLimits
from shoal_service.wire.formats import SparseRow, refuse_first_bad_sparse_row, slow_json, sparse_of

CHUNK_BYTES = 4 << 20
_ROW = msgspec.json.Decoder(SparseRow)
_ANY = WireLimits(2**62, 2**62, 2**62)
"""No limits for files. The server has its own."""


def is_sparse_npz(path: Path) -> bool:
    """Whether an npz holds the parts of one sparse matrix."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {"format.npy", "shape.npy", "data.npy"} <= set(archive.namelist())
    except zipfile.BadZipFile:
        return False


def open_sparse_npz(path: Path, name: str) -> tuple[Iterator[SparseRows], int]:
    """Chunks of the matrix, and the number of its rows. The whole file is read, because rows lie in several parts."""
    from scipy.sparse import load_npz

    try:
        matrix: Any = load_npz(path)  # it allows no pickle
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile, NotImplementedError) as error:
        raise CommandError(f"{name} is not a usable sparse npz file: {error}") from error
    if matrix.dtype.kind not in "fiu" or matrix.ndim != 2:
        raise CommandError(
            f"{name} holds a matrix of {matrix.dtype}, shape {matrix.shape}; points must be real numbers (N, D)"
        )
    rows = SparseRows.of(matrix.tocsr())
    step = max(1, CHUNK_BYTES * len(rows) // max(1, rows.data.nbytes + rows.indices.nbytes))
    return (rows[i : i + step] for i in range(0, len(rows), step)), len(rows)


def is_sparse_row(line: str) -> bool:
    """Whether a line of ndjson is a sparse row."""
    try:
        value = slow_json(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and set(value) == {"indices", "values"}


def ndjson_chunks(
    lines: Iterable[tuple[int, str]], chunk_rows: int, features: Callable[[], int | None], bad: BadRows
) -> Iterator[Chunk]:
    """Make matrices of `chunk_rows` rows from numbered lines. The last may be shorter, and those with bad lines."""
    width = features()
    if width is None:
        raise CommandError(
            f"{bad.file} holds sparse rows, which do not contain the number of features; add --features N"
        )
    numbered = iter(lines)
    while block := list(itertools.islice(numbered, chunk_rows)):
        try:
            matrix = _matrix([line for _, line in block], width)
        except (InputError, msgspec.DecodeError):
            block = _good(block, width, bad)
            if not block:
                continue
            matrix = _matrix([line for _, line in block], width)
        yield Chunk(matrix, Fields(), "line", np.array([number for number, _ in block], dtype=np.int64))


def _matrix(lines: list[str], width: int) -> SparseRows:
    return SparseRows.of(sparse_of([_ROW.decode(line) for line in lines], width, _ANY))


def _good(block: list[tuple[int, str]], width: int, bad: BadRows) -> list[tuple[int, str]]:
    """The lines of a block that can be used."""
    good = []
    for number, line in block:
        try:
            _matrix([line], width)
        except (InputError, msgspec.DecodeError):
            bad.add(Place("line", number), _fault(line, width), line.strip())
        else:
            good.append((number, line))
    return good


def _fault(line: str, width: int) -> BadRowError:
    """What is wrong with a line that was refused."""
    try:
        refuse_first_bad_sparse_row([slow_json(line)], width)
    except InputError as error:
        reason, _, remedy = str(error).removeprefix("row 0 ").partition("; ")
        return BadRowError(reason, remedy)
    except (ValueError, RecursionError) as error:
        return BadRowError(f"is not JSON ({error})", "write one row per line")
    raise AssertionError("unreachable: the line was refused, and nothing is wrong with it")
