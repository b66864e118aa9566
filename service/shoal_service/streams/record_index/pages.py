"""Bytes of records in the store: the head, and runs of pages. All numbers are little-endian.

Page 0 of run 0 is the head: which runs there are, oldest first, and the last entry of the log that they contain. Page 0
of every other run is its directory. Then come the pages of its rows, in ascending order of the hash of their keys, some
sixty kilobytes each; then those of its columns, which hold what a search for the members of a component reads.

Every page begins with the CRC-32 of the rest. A column of whole numbers is the least of them, and what each has above
it in as few bytes as that needs.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from shoal.points.arrays import Array, IntArray
from shoal_service.errors import StoreFormatError
from shoal_service.streams.record_index.rows import REASSIGNED, Hashes, NewRun, RecordRows
from shoal_service.wire import Texts

PAGE_BYTES = 64_000
"""Size at which a page of rows ends: four pages of a SQLite file."""
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


def sealed(*parts: bytes | memoryview) -> bytes:
    """The parts, one after another, with their checksum before them."""
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return b"".join((_CRC.pack(checksum), *parts))


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

    def add(self, run: NewRun) -> dict[int, bytes]:
        """Pages by number. Rows of one hash are in one stretch. At least one row."""
        rows, places, hashes = run
        columns = _row_columns(rows, places)
        sizes = rows.keys.lengths_at(places) + rows.payloads.lengths_at(places) + sum(each.width for each in columns)
        begins = np.cumsum(sizes) - sizes
        starts = np.flatnonzero(np.diff(begins // PAGE_BYTES, prepend=-1))
        self._first_hash.append(hashes[starts])
        self._first_row.append(self.n_rows + starts)
        self.n_rows += run.n_rows
        offsets = run.any_order(rows.log_offset)
        self._first_offset = min(self._first_offset, int(offsets.min()))
        self._last_offset = max(self._last_offset, int(offsets.max()))
        self._last_arrival = max(self._last_arrival, run.last_arrival)
        self._n_reassigned += int(np.count_nonzero(run.any_order(rows.flags) & REASSIGNED))
        self._columns += _encode_columns(rows, places, columns)
        return self._numbered(_encode_rows(rows, places, columns, [*starts.tolist(), run.n_rows]))

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
    """All rows as one page, in their order."""
    places = np.arange(rows.n)
    return next(_encode_rows(rows, places, _row_columns(rows, places), [0, rows.n]))


class _Column(NamedTuple):
    """A column as it is written."""

    head: bytes
    width: int
    """Bytes of a value."""
    data: bytes | memoryview


class _RowColumns(NamedTuple):
    """The columns of a page of rows, in order."""

    log_offset: _Column
    assigned: _Column
    refined: _Column
    novelty: _Column
    log_density: _Column
    time: _Column
    arrived: _Column
    flags: _Column
    key_lengths: _Column
    payload_lengths: _Column


def _row_columns(rows: RecordRows, places: IntArray) -> _RowColumns:
    """The columns of the rows at some places."""
    return _RowColumns(
        _whole(rows.log_offset, places),
        _whole(rows.assigned, places),
        _whole(rows.refined, places),
        _real(rows.novelty, places),
        _real(rows.log_density, places),
        _real(rows.time, places),
        _whole(_ceiled(rows.arrived), places),
        _whole(rows.flags, places),
        _whole(rows.keys.lengths, places),
        _whole(rows.payloads.lengths, places),
    )


def _encode_rows(rows: RecordRows, places: IntArray, columns: _RowColumns, cuts: list[int]) -> Iterator[bytes]:
    """The rows between neighbouring cuts as pages."""
    encoded = _with_values(columns)
    for start, end in pairwise(cuts):
        part = places[start:end]
        yield _page(encoded, start, end, rows.keys.data_at(part).data, rows.payloads.data_at(part).data)


def _with_values(columns: Sequence[_Column]) -> list[_Column]:
    """The columns that have values, each with the heads of those without before its own; the last one may have none."""
    found, heads = [], b""
    for head, width, data in columns:
        heads += head
        if width:
            found.append(_Column(heads, width, data))
            heads = b""
    return [*found, _Column(heads, 0, b"")]


def _page(encoded: list[_Column], start: int, end: int, *texts: memoryview) -> bytes:
    """The rows from `start` to `end` of the columns, then texts."""
    parts: list[bytes | memoryview] = [_N_ROWS.pack(end - start)]
    for head, width, data in encoded:
        parts += (head, data[start * width : end * width])
    return sealed(b"".join(parts), *texts)


def decode_rows(page: bytes) -> RecordRows:
    """Inverse of `encode_rows`. Raises StoreFormatError."""
    reader = _Reader(opened(page))
    log_offset, assigned, refined = reader.whole(), reader.whole(), reader.whole()
    novelty, log_density, time = reader.real(), reader.real(), reader.real()
    arrived, flags = reader.whole().astype(np.float64), reader.whole().astype(np.uint8)
    key_lengths, payload_lengths = reader.whole(), reader.whole()
    keys, payloads = reader.texts(key_lengths), reader.texts(payload_lengths)
    return RecordRows(log_offset, assigned, refined, novelty, log_density, time, arrived, flags, keys, payloads)


def _encode_columns(rows: RecordRows, places: IntArray, of_rows: _RowColumns) -> list[bytes]:
    density = _Column(b"", 4, _bytes_of(rows.log_density.astype("<f4")[places]))
    encoded = _with_values(
        (of_rows.log_offset, of_rows.assigned, of_rows.refined, density, of_rows.arrived, of_rows.flags)
    )
    n = len(places)
    return [_page(encoded, start, min(start + COLUMN_ROWS, n)) for start in range(0, n, COLUMN_ROWS)]


def decode_columns(page: bytes) -> Columns:
    """The columns of a page of them. Raises StoreFormatError."""
    reader = _Reader(opened(page))
    log_offset, assigned, refined = reader.whole(), reader.whole(), reader.whole()
    density, arrived = reader.array("<f4", reader.n), reader.whole().astype(np.float64)
    return Columns(log_offset, assigned, refined, density, arrived, reader.whole().astype(np.uint8))


def _ceiled(arrived: Array) -> Array:
    """Whole seconds that are not before an arrival."""
    whole: Array = np.broadcast_to(np.ceil(arrived[:1]), len(arrived)) if arrived.strides == (0,) else np.ceil(arrived)
    return whole


def _whole(values: npt.NDArray[Any], places: IntArray) -> _Column:
    """Whole numbers at some places: the least is in the head, and what each has above it in the data."""
    repeated = values.strides == (0,)
    least = int(values[0] if repeated else values.min())
    span = 0 if repeated else int(values.max()) - least
    if span == 0:
        return _Column(_LEAST.pack(least, 0), 0, b"")
    width = next(width for width in (1, 2, 4, 8) if span < 1 << 8 * width)
    above = (values - least).astype(f"<u{width}")[places]
    return _Column(_LEAST.pack(least, width), width, _bytes_of(above))


def _real(values: Array, places: IntArray) -> _Column:
    """Real numbers at some places; none where all are NaN."""
    if np.isnan(values[0]) and (values.strides == (0,) or np.isnan(values).all()):
        return _Column(b"\0", 0, b"")
    return _Column(b"\1", 8, _bytes_of(values.astype("<f8", copy=False)[places]))


def _bytes_of(values: npt.NDArray[Any]) -> memoryview:
    """The bytes of an array, as a view."""
    return values.view(np.uint8).data


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
