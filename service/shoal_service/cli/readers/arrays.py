"""npy and npz files, read as a stream of bytes. Only an npy whose columns follow one another is mapped into memory.

A file that becomes shorter while it is mapped ends the process (SIGBUS). Pickle is never used.
"""

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from shoal_service.cli.exits import CommandError

CHUNK_BYTES = 4 << 20
"""Number of bytes that are read at a time."""


def open_array(
    stream: Any, kind: str, name: str, *, key: str | None, path: Path | None
) -> tuple[Iterator[npt.NDArray[Any]], int]:
    """Chunks of the table in an open npy or npz, and the number of its rows."""
    try:
        if kind == "npz":
            return _open_npz(stream, name, key, path)
        if key is not None:
            raise CommandError(f"--key is for npz files; {name} is an npy file, which holds one array")
        return _open_file(path, stream, name) if path is not None else _open_stream(stream, name)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise CommandError(f"{name} is not a usable {kind} file: {error}") from error


def _open_file(path: Path, stream: Any, name: str) -> tuple[Iterator[npt.NDArray[Any]], int]:
    with path.open("rb") as start:
        npy.read_magic(start)  # `load` reads other files as well, and advises to trust a text as a pickle
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    _check_table(array.shape, array.dtype, name)
    if array.flags.c_contiguous:
        return _open_stream(stream, name)
    rows = _rows_at_a_time(array.shape, array.dtype)
    return (array[i : i + rows] for i in range(0, len(array), rows)), len(array)


def _open_npz(stream: Any, name: str, key: str | None, path: Path | None) -> tuple[Iterator[npt.NDArray[Any]], int]:
    if path is None:
        raise CommandError(
            f"an npz cannot be read from {name}, because its list of contents is at its end; save it to a file without "
            "gzip, and give the path of that"
        )
    archive = zipfile.ZipFile(stream)
    members = {info.filename.removesuffix(".npy"): info.filename for info in archive.infolist()}
    headers = {member: _header(archive.open(file)) for member, file in members.items()}
    if key is None:
        tables = [member for member, (shape, _, dtype) in headers.items() if len(shape) == 2 and dtype.kind in "fiu"]
        if not tables:
            raise CommandError(f"{name} has no table (N, D) of numbers; it holds {_listing(headers)}")
        if len(tables) > 1:
            raise CommandError(f"{name} holds {len(tables)} tables; choose with --key NAME: {_listing(headers)}")
        key = tables[0]
    if key not in members:
        raise CommandError(f"{name} has no array {key!r}; it holds {_listing(headers)}")
    return _open_stream(archive.open(members[key]), f"{name}:{key}")


def _open_stream(stream: Any, name: str) -> tuple[Iterator[npt.NDArray[Any]], int]:
    shape, fortran, dtype = _header(stream)
    _check_table(shape, dtype, name)
    if fortran:  # column after column: a row is complete only when all is read
        values = np.frombuffer(_read_exactly(stream, shape[0] * shape[1] * dtype.itemsize, name), dtype=dtype)
        return iter([values.reshape(shape, order="F")]), shape[0]
    return _stream_chunks(stream, shape, dtype, name), shape[0]


def _stream_chunks(stream: Any, shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> Iterator[npt.NDArray[Any]]:
    rows = _rows_at_a_time(shape, dtype)
    for start in range(0, shape[0], rows):
        n = min(rows, shape[0] - start)
        data = _read_exactly(stream, n * shape[1] * dtype.itemsize, name)
        yield np.frombuffer(data, dtype=dtype).reshape(n, shape[1])


def _header(stream: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = npy.read_magic(stream)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = read(stream)
    return shape, fortran, dtype


def _read_exactly(stream: Any, n_bytes: int, name: str) -> bytes:
    parts = []
    left = n_bytes
    while left and (part := stream.read(left)):
        parts.append(part)
        left -= len(part)
    if left:
        raise CommandError(f"{name} is cut short: {left:,} bytes are missing")
    return b"".join(parts)


def _check_table(shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> None:
    if dtype.kind not in "fiu":
        raise CommandError(f"{name} holds {dtype}; points must be real numbers (float or integer)")
    if len(shape) != 2:
        raise CommandError(f"{name} has shape {shape}; points must be a table (N, D), one row per point")


def _rows_at_a_time(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    return max(1, CHUNK_BYTES // max(1, shape[1] * dtype.itemsize))


def _listing(headers: dict[str, tuple[tuple[int, ...], bool, np.dtype[Any]]]) -> str:
    return ", ".join(f"{member} {shape} {dtype}" for member, (shape, _, dtype) in headers.items()) or "nothing"
