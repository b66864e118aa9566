"""Bytes of records in the store: the head, and runs of pages. All numbers are little-endian.

Page 0 of run 0 is the head: which runs there are, oldest first, and the last entry of the log that they contain. Page 0
of every other run is its directory. Then come the pages of its rows, in ascending order of the hash of their keys, some
thirty kilobytes each; then those of its columns, which hold what a search for the members of a component reads.

Every page begins with the CRC-32 of the rest. A column of whole numbers is the least of them, and what each has above
it in as few bytes as that needs.
"""

import struct
import zlib
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from shoal.points.arrays import Array, IntArray
from shoal_service.errors import StoreFormatError
from shoal_service.streams.record_index.rows import REASSIGNED, Hashes, RecordRows
from shoal_service.streams.record_index.texts import Texts

PAGE_BYTES = 32_000
"""Size at which a page of rows ends: two pages of a SQLite file."""
ROW_BYTES = 24
"""Of a row, roughly, without its key, its payload, a time and a reassignment."""
COLUMN_ROWS = 8_192
"""Most rows of a page of columns."""
HEAD = (0, 0)
VERSION = 2

_CRC = struct.Struct("<I")
_N_ROWS = struct.Struct("<I")
_LEAST = struct.Struct("<qB")


class Run(msgspec.Struct, frozen=True, array_like=True):
    """A run of pages."""

    number: int
    n_pages: int
    n_rows: int
    n_bytes: int
    first_offset: int
    """Smallest and largest log offset of the records."""
    last_offset: int
    last_arrival: float
    """Largest arrival of a record."""
    n_reassigned: int
    """Rows with REASSIGNED."""


class Head(msgspec.Struct, frozen=True):
    """List of the runs."""

    version: int = VERSION
    seq: int = 0
    """Records of all entries up to this one are in the runs."""
    next_run: int = 1
    runs: list[Run] = []
    """Oldest first."""


class Directory(NamedTuple):
    """Places of the pages in a run."""

    first_hash: Hashes
    """(P,) hash of the first row of each page of rows. They are pages 1 to P."""
    first_row: IntArray
    """(P,) number of that row."""
    n_column_pages: int

    def pages_of(self, hashed: int) -> range:
        """Numbers of the pages that may hold rows of a hash."""
        value = np.uint64(hashed)
        low = int(np.searchsorted(self.first_hash, value, side="left"))
        high = int(np.searchsorted(self.first_hash, value, side="right"))
        return range(max(low, 1), high + 1)

    def page_of_row(self, row: int) -> tuple[int, int]:
        """Number of the page that holds a row, and the row's place in it."""
        page = int(np.searchsorted(self.first_row, row, side="right"))
        return page, row - int(self.first_row[page - 1])

    @property
    def column_pages(self) -> range:
        """Numbers of the pages of columns."""
        first = len(self.first_row) + 1
        return range(first, first + self.n_column_pages)


class Columns(NamedTuple):
    """Values that a search reads from some rows of a run, in the order of the run."""

    log_offset: IntArray
    assigned: IntArray
    refined: IntArray
    log_density: npt.NDArray[np.float32]
    arrived: Array
    flags: npt.NDArray[np.uint8]


# -- the checksum


def sealed(data: bytes) -> bytes:
    """The bytes with their checksum before them."""
    return _CRC.pack(zlib.crc32(data)) + data


def opened(page: bytes) -> memoryview:
    """Inverse of `sealed`. StoreFormatError for damage."""
    view = memoryview(page)
    if len(view) < _CRC.size or _CRC.unpack_from(view)[0] != zlib.crc32(view[_CRC.size :]):
        raise StoreFormatError("a page of records is damaged; restore the store from a copy, or delete the stream")
    return view[_CRC.size :]


# -- head and directory


def encode_head(head: Head) -> bytes:
    """The head as a page."""
    return sealed(msgspec.msgpack.encode(head))


def decode_head(page: bytes | None) -> Head:
    """Inverse of `encode_head`; of a stream without records, None, an empty one. Raises StoreFormatError."""
    if page is None:
        return Head()
    head = msgspec.msgpack.decode(opened(page), type=Head)
    if head.version != VERSION:
        raise StoreFormatError(
            f"the records have version {head.version}, this shoal reads {VERSION}; use the shoal that wrote them"
        )
    return head


def decode_directory(page: bytes) -> Directory:
    """The directory of a run. Raises StoreFormatError."""
    n_column_pages, hashes, rows = msgspec.msgpack.decode(opened(page))
    return Directory(np.frombuffer(hashes, "<u8"), np.frombuffer(rows, "<u4").astype(np.int64), n_column_pages)


# -- a run


class RunEncoder:
    """The pages of a run, whose rows come in stretches, in ascending order of hash."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.n_rows = 0
        self._n_bytes = self._n_reassigned = 0
        self._first_hash: list[Hashes] = []
        self._first_row: list[IntArray] = []
        self._columns: list[bytes] = []
        self._n_pages = 1
        self._first_offset, self._last_offset, self._last_arrival = 1 << 62, -1, 0.0

    def add(self, rows: RecordRows, hashes: Hashes) -> dict[int, bytes]:
        """Pages by number. Rows of one hash are in one stretch. At least one row."""
        sizes = rows.keys.lengths + rows.payloads.lengths + ROW_BYTES
        begins = np.cumsum(sizes) - sizes
        starts = np.flatnonzero(np.diff(begins // PAGE_BYTES, prepend=-1))
        cuts = [*starts.tolist(), rows.n]
        self._first_hash.append(hashes[starts])
        self._first_row.append(self.n_rows + starts)
        self.n_rows += rows.n
        self._first_offset = min(self._first_offset, int(rows.log_offset.min()))
        self._last_offset = max(self._last_offset, int(rows.log_offset.max()))
        self._last_arrival = max(self._last_arrival, float(rows.arrived.max()))
        self._n_reassigned += int(np.count_nonzero(rows.flags & REASSIGNED))
        self._columns += _encode_columns(rows)
        return self._numbered(_encode_rows(rows, cuts))

    def finish(self) -> tuple[Run, dict[int, bytes]]:
        """The run, and its last pages."""
        last = self._numbered(self._columns)
        first_hash, first_row = np.concatenate(self._first_hash), np.concatenate(self._first_row)
        directory = [len(self._columns), first_hash.astype("<u8").tobytes(), first_row.astype("<u4").tobytes()]
        last[0] = sealed(msgspec.msgpack.encode(directory))
        self._n_bytes += len(last[0])
        offsets = (self._first_offset, self._last_offset)
        counts = (self._n_pages, self.n_rows, self._n_bytes)
        return Run(self.number, *counts, *offsets, self._last_arrival, self._n_reassigned), last

    def _numbered(self, pages: "Iterator[bytes] | list[bytes]") -> dict[int, bytes]:
        numbered = dict(enumerate(pages, start=self._n_pages))
        self._n_pages += len(numbered)
        self._n_bytes += sum(map(len, numbered.values()))
        return numbered


def encode_rows(rows: RecordRows) -> bytes:
    """All rows as one page."""
    return next(_encode_rows(rows, [0, rows.n]))


def _encode_rows(rows: RecordRows, cuts: list[int]) -> Iterator[bytes]:
    """The rows between neighbouring cuts as pages."""
    columns = [
        _whole(rows.log_offset),
        _whole(rows.assigned),
        _whole(rows.refined),
        _real(rows.novelty),
        _real(rows.log_density),
        _real(rows.time),
        _whole(np.ceil(rows.arrived).astype(np.int64)),
        _whole(rows.flags),
        _whole(rows.keys.lengths),
        _whole(rows.payloads.lengths),
    ]
    for start, end in pairwise(cuts):
        parts = [_N_ROWS.pack(end - start)]
        for head, values in columns:
            parts += (head, values[start:end].tobytes())
        yield sealed(b"".join((*parts, rows.keys.between(start, end), rows.payloads.between(start, end))))


def decode_rows(page: bytes) -> RecordRows:
    """Inverse of `encode_rows`. Raises StoreFormatError."""
    reader = _Reader(opened(page))
    log_offset, assigned, refined = reader.whole(), reader.whole(), reader.whole()
    novelty, log_density, time = reader.real(), reader.real(), reader.real()
    arrived, flags = reader.whole().astype(np.float64), reader.whole().astype(np.uint8)
    key_lengths, payload_lengths = reader.whole(), reader.whole()
    keys, payloads = reader.texts(key_lengths), reader.texts(payload_lengths)
    return RecordRows(log_offset, assigned, refined, novelty, log_density, time, arrived, flags, keys, payloads)


def _encode_columns(rows: RecordRows) -> list[bytes]:
    columns = [
        _whole(rows.log_offset),
        _whole(rows.assigned),
        _whole(rows.refined),
        (b"", rows.log_density.astype("<f4")),
        _whole(np.ceil(rows.arrived).astype(np.int64)),
        _whole(rows.flags),
    ]
    pages = []
    for start in range(0, rows.n, COLUMN_ROWS):
        end = min(start + COLUMN_ROWS, rows.n)
        parts = [_N_ROWS.pack(end - start)]
        for head, values in columns:
            parts += (head, values[start:end].tobytes())
        pages.append(sealed(b"".join(parts)))
    return pages


def decode_columns(page: bytes) -> Columns:
    """The columns of a page of them. Raises StoreFormatError."""
    reader = _Reader(opened(page))
    log_offset, assigned, refined = reader.whole(), reader.whole(), reader.whole()
    density, arrived = reader.array("<f4", reader.n), reader.whole().astype(np.float64)
    return Columns(log_offset, assigned, refined, density, arrived, reader.whole().astype(np.uint8))


def _whole(values: npt.NDArray[Any]) -> tuple[bytes, npt.NDArray[Any]]:
    """The head of a column of whole numbers, and what each has above the least."""
    least = int(values.min())
    span = int(values.max()) - least
    width = 0 if span == 0 else next(width for width in (1, 2, 4, 8) if span < 1 << 8 * width)
    above = np.zeros((len(values), 0), np.uint8) if width == 0 else (values - least).astype(f"<u{width}")
    return _LEAST.pack(least, width), above


def _real(values: Array) -> tuple[bytes, npt.NDArray[Any]]:
    """The head of a column of real numbers, and the numbers; none where all are NaN."""
    if np.isnan(values).all():
        return b"\0", np.zeros((len(values), 0))
    return b"\1", values.astype("<f8", copy=False)


class _Reader:
    """A place in a page."""

    def __init__(self, view: memoryview) -> None:
        self.view = view
        self.at = _N_ROWS.size
        (self.n,) = _N_ROWS.unpack_from(view)

    def array(self, dtype: str, n: int) -> npt.NDArray[Any]:
        found = np.frombuffer(self.view, dtype, n, self.at)
        self.at += found.nbytes
        return found

    def whole(self) -> IntArray:
        least, width = _LEAST.unpack_from(self.view, self.at)
        self.at += _LEAST.size
        if width == 0:
            return np.full(self.n, least, np.int64)
        values: IntArray = self.array(f"<u{width}", self.n).astype(np.int64)
        values += least
        return values

    def real(self) -> Array:
        self.at += 1
        if not self.view[self.at - 1]:
            return np.full(self.n, np.nan)
        found: Array = self.array("<f8", self.n)
        return found

    def texts(self, lengths: IntArray) -> Texts:
        return Texts(self.array("<u1", int(lengths.sum())), lengths)
