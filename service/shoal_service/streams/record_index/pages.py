"""Bytes of records in the store: the head, and runs of pages. All numbers are little-endian.

Page 0 of run 0 is the head: which runs there are, oldest first, and the last entry of the log that they contain. Page 0
of every other run is its directory. Then come the pages of its rows, in ascending order of the hash of their keys, some
five kilobytes each; then those of its columns, which hold what a search for the members of a component reads.

Every page begins with the CRC-32 of the rest.
"""

import struct
import zlib
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from shoal.points.arrays import Array, IntArray
from shoal_service.errors import StoreFormatError
from shoal_service.streams.record_index.rows import REASSIGNED, Hashes, RecordRows
from shoal_service.streams.record_index.texts import Texts

PAGE_BYTES = 5_300
"""Size at which a page of rows ends. Three of them fill a page of a SQLite file."""
_ROW_BYTES = 36
"""Of a row, without its key, its payload, a time and a reassignment."""
COLUMN_ROWS = 8_192
"""Rows of a page of columns."""
HEAD = (0, 0)
VERSION = 1

_CRC = struct.Struct("<I")
_PAGE = struct.Struct("<HB")
_WIDE_IDS, _REFINED, _TIMES, _PAYLOADS = 1, 2, 4, 8


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
    """Which runs there are."""

    version: int = VERSION
    seq: int = 0
    """Records of all entries up to this one are in the runs."""
    next_run: int = 1
    runs: list[Run] = []
    """Oldest first."""


class Directory(NamedTuple):
    """What is where in a run."""

    first_hash: Hashes
    """(P,) hash of the first row of each page of rows. They are pages 1 to P."""
    first_row: IntArray
    """(P,) number of that row."""
    n_rows: int

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
        return range(first, first + -(-self.n_rows // COLUMN_ROWS))


class Columns(NamedTuple):
    """What a search reads of some rows of a run, in the order of the run."""

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
        raise StoreFormatError(f"the records have version {head.version}, this shoal reads {VERSION}; use a newer one")
    return head


def decode_directory(page: bytes) -> Directory:
    """The directory of a run. Raises StoreFormatError."""
    n_rows, hashes, rows = msgspec.msgpack.decode(opened(page))
    return Directory(np.frombuffer(hashes, "<u8"), np.frombuffer(rows, "<u4").astype(np.int64), n_rows)


# -- a run


def encode_run(number: int, rows: RecordRows, hashes: Hashes) -> tuple[Run, list[bytes]]:
    """The pages of a run, from 0. The rows are sorted by hash."""
    n = rows.n
    sizes = rows.keys.lengths + rows.payloads.lengths + _ROW_BYTES
    begins = np.cumsum(sizes) - sizes
    starts = np.flatnonzero(np.diff(begins // PAGE_BYTES, prepend=-1))
    ends = [*starts[1:].tolist(), n]
    directory = [n, hashes[starts].astype("<u8").tobytes(), starts.astype("<u4").tobytes()]
    pages = [sealed(msgspec.msgpack.encode(directory))]
    pages += [encode_rows(rows, start, end) for start, end in zip(starts.tolist(), ends, strict=True)]
    pages += [_encode_columns(rows, slice(at, at + COLUMN_ROWS)) for at in range(0, n, COLUMN_ROWS)]
    reassigned = (rows.flags & REASSIGNED) != 0
    run = Run(
        number,
        len(pages),
        n,
        sum(map(len, pages)),
        int(rows.log_offset.min()),
        int(rows.log_offset.max()),
        float(rows.arrived.max()),
        int(reassigned.sum()),
    )
    return run, pages


def encode_rows(rows: RecordRows, start: int = 0, end: int | None = None) -> bytes:
    """The rows from `start` to `end` as one page."""
    end = rows.n if end is None else end
    part = slice(start, end)
    ids = (rows.assigned[part], rows.refined[part])
    n, kinds = end - start, 0
    kinds |= _WIDE_IDS if max(int(ids[0].max()), int(ids[1].max())) >= 1 << 31 else 0
    kinds |= _REFINED if int(ids[1].max()) >= 0 else 0
    kinds |= _TIMES if not np.isnan(rows.time[part]).all() else 0
    kinds |= _PAYLOADS if rows.payloads.lengths[part].any() else 0
    id_type = "<i8" if kinds & _WIDE_IDS else "<i4"
    parts = [
        _PAGE.pack(n, kinds),
        rows.log_offset[part].astype("<i8").tobytes(),
        ids[0].astype(id_type).tobytes(),
        ids[1].astype(id_type).tobytes() if kinds & _REFINED else b"",
        rows.novelty[part].astype("<f8").tobytes(),
        rows.log_density[part].astype("<f8").tobytes(),
        rows.time[part].astype("<f8").tobytes() if kinds & _TIMES else b"",
        np.ceil(rows.arrived[part]).astype("<u4").tobytes(),
        rows.flags[part].tobytes(),
        rows.keys.lengths[part].astype("<u2").tobytes(),
    ]
    if kinds & _PAYLOADS:
        parts.append(rows.payloads.lengths[part].astype("<u4").tobytes())
    return sealed(b"".join([*parts, rows.keys.between(start, end), rows.payloads.between(start, end)]))


def decode_rows(page: bytes) -> RecordRows:
    """Inverse of `encode_rows`. Raises StoreFormatError."""
    reader = _Reader(opened(page))
    n, kinds = reader.head()
    id_type = "<i8" if kinds & _WIDE_IDS else "<i4"
    log_offset, assigned = reader.array("<i8", n).astype(np.int64), reader.array(id_type, n).astype(np.int64)
    refined = reader.array(id_type, n).astype(np.int64) if kinds & _REFINED else np.full(n, -1, dtype=np.int64)
    novelty, log_density = reader.array("<f8", n), reader.array("<f8", n)
    time = reader.array("<f8", n) if kinds & _TIMES else np.full(n, np.nan)
    arrived = reader.array("<u4", n).astype(np.float64)
    flags = reader.array("<u1", n)
    key_lengths = reader.array("<u2", n)
    payload_lengths = reader.array("<u4", n) if kinds & _PAYLOADS else None
    keys = reader.texts(key_lengths)
    payloads = Texts.empty(n) if payload_lengths is None else reader.texts(payload_lengths)
    return RecordRows(log_offset, assigned, refined, novelty, log_density, time, arrived, flags, keys, payloads)


def _encode_columns(rows: RecordRows, part: slice) -> bytes:
    assigned, refined = rows.assigned[part], rows.refined[part]
    kinds = _WIDE_IDS if max(int(assigned.max()), int(refined.max())) >= 1 << 31 else 0
    kinds |= _REFINED if int(refined.max()) >= 0 else 0
    id_type = "<i8" if kinds & _WIDE_IDS else "<i4"
    arrays = (
        rows.log_offset[part].astype("<i8"),
        assigned.astype(id_type),
        *((refined.astype(id_type),) if kinds & _REFINED else ()),
        rows.log_density[part].astype("<f4"),
        np.ceil(rows.arrived[part]).astype("<u4"),
        rows.flags[part],
    )
    return sealed(b"".join((_PAGE.pack(len(assigned), kinds), *(array.tobytes() for array in arrays))))


def decode_columns(page: bytes) -> Columns:
    """The columns of a page of them. Raises StoreFormatError."""
    reader = _Reader(opened(page))
    n, kinds = reader.head()
    id_type = "<i8" if kinds & _WIDE_IDS else "<i4"
    log_offset, assigned = reader.array("<i8", n).astype(np.int64), reader.array(id_type, n).astype(np.int64)
    refined = reader.array(id_type, n).astype(np.int64) if kinds & _REFINED else np.full(n, -1, dtype=np.int64)
    density, arrived = reader.array("<f4", n), reader.array("<u4", n).astype(np.float64)
    return Columns(log_offset, assigned, refined, density, arrived, reader.array("<u1", n))


class _Reader:
    """A place in a page."""

    def __init__(self, view: memoryview) -> None:
        self.view = view
        self.at = 0

    def head(self) -> tuple[int, int]:
        self.at = _PAGE.size
        n, kinds = _PAGE.unpack_from(self.view)
        return n, kinds

    def array(self, dtype: str, n: int) -> npt.NDArray[Any]:
        found = np.frombuffer(self.view, dtype, n, self.at)
        self.at += found.nbytes
        return found

    def texts(self, lengths: npt.NDArray[Any]) -> Texts:
        return Texts(self.array("<u1", int(lengths.sum())), lengths)
