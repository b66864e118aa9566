"""Sparse points: npz files of `scipy.sparse.save_npz`, and ndjson of `{"indices": [...], "values": [...]}`."""

import itertools
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from shoal.errors import InputError
from shoal.points.rows import SparseRows
from shoal_service.cli.exits import CommandError
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
    lines: Iterable[tuple[int, str]], file: str, chunk_rows: int, features: Callable[[], int | None]
) -> Iterator[SparseRows]:
    """Make matrices of `chunk_rows` rows from numbered lines. The last may be shorter."""
    width = features()
    if width is None:
        raise CommandError(f"{file} holds sparse rows, which do not contain the number of features; add --features N")
    numbered = iter(lines)
    while block := list(itertools.islice(numbered, chunk_rows)):
        try:
            yield SparseRows.of(sparse_of([_ROW.decode(line) for _, line in block], width, _ANY))
        except (InputError, msgspec.DecodeError):
            _refuse(block, file, width)


def _refuse(block: list[tuple[int, str]], file: str, width: int) -> None:
    """Raise the error for the first bad line of a block."""
    for number, line in block:
        try:
            refuse_first_bad_sparse_row([slow_json(line)], width)
        except InputError as error:
            words = str(error).removeprefix("row 0 ")
            raise CommandError(f"{file}, line {number} {words}") from error
        except (ValueError, RecursionError) as error:
            raise CommandError(f"{file}, line {number} is not JSON ({error}); write one row per line") from error
    raise AssertionError("unreachable: the block was refused, and no line of it is")
