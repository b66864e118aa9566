"""Sparse points: npz files of `scipy.sparse.save_npz`, and ndjson of `{"indices": [...], "values": [...]}`.

A line of ndjson may also be a record with such a point, as the service takes it:
`{"point": {"indices": [0], "values": [1.5]}, "key": "a"}`.
"""

import itertools
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from shoal.errors import InputError
from shoal_service.cli.exits import CommandError
from shoal_service.cli.readers.bad_rows import BadRowError, BadRows, RowPlace
from shoal_service.cli.readers.chunk import Chunk, Fields, checked_chunk
from shoal_service.wire import WireLimits
from shoal_service.wire.formats import SparseRow, refuse_first_bad_sparse_row, slow_json, sparse_of

if TYPE_CHECKING:
    from shoal.points.rows import SparseRows

CHUNK_BYTES = 4 << 20


class _Record(msgspec.Struct, forbid_unknown_fields=True):
    """A line with fields beside its point."""

    point: SparseRow
    key: Any = None
    time: Any = None
    payload: Any = None
    weight: Any = None


_ROW, _RECORD = msgspec.json.Decoder(SparseRow), msgspec.json.Decoder(_Record)
_ANY = WireLimits(2**62, 2**62, 2**62)
"""No limits for files. The server has its own."""


def is_sparse_npz(path: Path) -> bool:
    """Whether an npz holds the parts of one sparse matrix."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {"format.npy", "shape.npy", "data.npy"} <= set(archive.namelist())
    except zipfile.BadZipFile:
        return False


def open_sparse_npz(path: Path, name: str) -> "tuple[Iterator[SparseRows], int]":
    """Chunks of the matrix, and the number of its rows. The whole file is read, because rows lie in several parts."""
    from scipy.sparse import load_npz

    from shoal.points.rows import SparseRows

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
    """Whether a line of ndjson is a sparse row, or a record of one."""
    try:
        value = slow_json(line)
    except (ValueError, RecursionError):
        return False
    point = value.get("point", value) if isinstance(value, dict) else None
    return isinstance(point, dict) and set(point) == {"indices", "values"}


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
            matrix, fields = _read([line for _, line in block], width)
        except (InputError, msgspec.DecodeError):
            block = _good(block, width, bad)
            if not block:
                continue
            matrix, fields = _read([line for _, line in block], width)
        numbers = np.array([number for number, _ in block], dtype=np.int64)
        yield checked_chunk(matrix, "line", numbers, bad, fields=fields, rows=[line.strip() for _, line in block])


def _read(lines: list[str], width: int) -> "tuple[SparseRows, Fields]":
    """The matrix of some lines, and the fields beside their points."""
    from shoal.points.rows import SparseRows

    records = [_RECORD.decode(line) if '"point"' in line else _Record(_ROW.decode(line)) for line in lines]
    lists = ([getattr(record, name) for record in records] for name in ("key", "time", "payload", "weight"))
    given = (values if any(value is not None for value in values) else None for values in lists)
    return SparseRows.of(sparse_of([record.point for record in records], width, _ANY)), Fields(*given)


def _good(block: list[tuple[int, str]], width: int, bad: BadRows) -> list[tuple[int, str]]:
    """The lines of a block that can be used."""
    good = []
    for number, line in block:
        try:
            _read([line], width)
        except (InputError, msgspec.DecodeError):
            bad.add(RowPlace("line", number), _fault(line, width), line.strip())
        else:
            good.append((number, line))
    return good


def _fault(line: str, width: int) -> BadRowError:
    """What is wrong with a line that was refused."""
    try:
        value = slow_json(line)
        is_record = isinstance(value, dict) and "point" in value
        refuse_first_bad_sparse_row([value["point"] if is_record else value], width)
        if is_record and (unknown := value.keys() - set(_Record.__struct_fields__)):
            return BadRowError(f"has the field {min(unknown)[:60]!r}", "a record has point, key, time, payload, weight")
    except InputError as error:
        reason, _, remedy = str(error).removeprefix("row 0 ").partition("; ")
        return BadRowError(reason, remedy)
    except (ValueError, RecursionError) as error:
        return BadRowError(f"is not JSON ({error})", "write one row per line")
    raise AssertionError("unreachable: the line was refused, and nothing is wrong with it")
