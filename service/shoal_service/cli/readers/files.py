"""Open a file of points, or stdin: detect its format, and give its rows in chunks."""

import gzip
import io
import itertools
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, cast

from shoal.errors import did_you_mean
from shoal_service.cli.exits import CommandError
from shoal_service.cli.readers import arrays, columnar, sparse, table, text
from shoal_service.cli.readers.bad_rows import BadRows
from shoal_service.cli.readers.chunk import Chunk, Table
from shoal_service.cli.readers.ndjson import NdjsonFile
from shoal_service.wire import RecordColumns

FORMATS = ("npy", "npz", "csv", "ndjson", "parquet", "arrow")
_SUFFIXES = {
    ".npy": "npy",
    ".npz": "npz",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".dat": "csv",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
}
_BINARY = {
    "npy": (b"\x93NUMPY",),
    "npz": (b"PK\x03\x04", b"PK\x05\x06"),  # the second begins an empty one
    "parquet": (b"PAR1",),
    "arrow": (b"ARROW1", b"\xff\xff\xff\xff"),
}
"""First bytes of a file, by format. The other formats are texts."""
_NOT_READ = {
    ".json": "a JSON document is not read; write one array a line (.ndjson)",
    ".xlsx": "spreadsheets are not read",
    ".pkl": "pickles are not read: they can run code",
}


@dataclass(frozen=True)
class ReadOptions:
    """Options of the command line for reading a file."""

    format: str | None = None
    key: str | None = None
    columns: str | None = None
    header: bool | None = None
    delimiter: str | None = None
    chunk_rows: int = 1000
    """Number of lines of text in a chunk. For a slow pipe it should be small."""
    features: Callable[[], int | None] = lambda: None
    """Number of features of sparse rows in ndjson. It is called with the first such row."""
    records: RecordColumns | None = None
    """Columns that hold fields of records and are no features."""


class PointFile:
    """Points in chunks (n, D), once from the beginning; a context manager that closes the file.

    Iterating gives tables. `chunks` gives them with the fields of records, and the place of each row.

    Text, Arrow, Parquet, npy, npz and stdin are read in bounded memory, a sparse npz whole.
    """

    def __init__(self, path: str, options: ReadOptions, bad: BadRows | None = None) -> None:
        self.name = "stdin" if path == "-" else path
        self.bad = bad or BadRows(self.name)
        self._stack = ExitStack()
        try:
            with self._damage_named():
                self._open(path, options)
        except BaseException:
            self._stack.close()
            raise

    def _open(self, path: str, options: ReadOptions) -> None:
        binary, self._size = self._bytes_of(path)
        self._tell: Callable[[], int] = binary.tell if self._size is not None else lambda: 0
        packed = binary.peek(2)[:2] == b"\x1f\x8b"
        stream = self._stack.enter_context(_unzipped(binary)) if packed else binary
        kind = _format_of(path, stream, options.format)
        self.n_points: int | None = None
        chunks: Iterator[Chunk]
        on_disk = Path(path) if path != "-" and not packed else None
        if options.records and kind in ("npy", "npz"):
            raise CommandError(f"{self.name} holds numbers only, and no columns of keys, times, payloads or weights")
        if kind == "parquet":
            chunks, self.n_points = columnar.open_parquet(
                on_disk, options.columns, options.chunk_rows, self.bad, options.records
            )
        elif kind == "arrow":
            chunks = columnar.open_arrow(
                stream, on_disk is not None, options.columns, options.chunk_rows, self.bad, options.records
            )
        elif kind == "npz" and on_disk is not None and options.key is None and sparse.is_sparse_npz(on_disk):
            matrices, self.n_points = sparse.open_sparse_npz(on_disk, self.name)
            chunks = table.table_chunks(matrices, options.columns, self.bad)
        elif kind in ("npy", "npz"):
            tables, self.n_points = arrays.open_array(stream, kind, self.name, key=options.key, path=on_disk)
            chunks = table.table_chunks(tables, options.columns, self.bad)
        else:
            lines = io.TextIOWrapper(cast(IO[bytes], stream), encoding="utf-8-sig", newline="")
            self._stack.callback(_let_go, lines)
            chunks = self._text_chunks(kind, lines, options)
        self.format = kind
        self._chunks = chunks

    def _text_chunks(self, kind: str, lines: io.TextIOWrapper, options: ReadOptions) -> Iterator[Chunk]:
        bad, columns, records = self.bad, options.columns, options.records
        if kind == "csv":
            csv_file = text.CsvFile(lines, bad, columns, options.header, options.delimiter, records)
            for chunk in text.gather(csv_file.rows(), options.chunk_rows, bad, csv_file.label):
                yield chunk._replace(names=csv_file.names)
            return
        numbered: Iterator[tuple[int, str]] = ((n, line) for n, line in enumerate(lines, 1) if line.strip())
        first = next(numbered, None)
        numbered = itertools.chain([] if first is None else [first], numbered)
        if first is not None and columns is None and not records and sparse.is_sparse_row(first[1]):
            yield from sparse.ndjson_chunks(numbered, options.chunk_rows, options.features, bad)
            return
        file = NdjsonFile(numbered, bad, columns, records)
        for chunk in text.gather(file.rows(), options.chunk_rows, bad, file.label):
            yield chunk._replace(names=file.names)

    def _bytes_of(self, path: str) -> tuple[io.BufferedReader, int | None]:
        if path == "-":
            return io.BufferedReader(_Borrowed(sys.stdin.buffer)), None
        try:
            binary = self._stack.enter_context(Path(path).open("rb"))  # noqa: SIM115  the stack closes it
            return binary, Path(path).stat().st_size
        except OSError as error:
            raise CommandError(f"cannot read {path}: {error.strerror or error}") from error

    def __iter__(self) -> Iterator[Table]:
        """Give the tables. Raises CommandError, which names the file, the line and the fault."""
        return (chunk.points for chunk in self.chunks())

    def chunks(self) -> Iterator[Chunk]:
        """Give the chunks that hold rows. Raises CommandError, which names the file, the line and the fault."""
        with self._damage_named():
            for chunk in self._chunks:
                if not len(chunk.points):
                    continue
                if chunk.points.shape[1] == 0:
                    raise CommandError(f"{self.name} has rows without numbers; points need at least one column")
                yield chunk

    @contextmanager
    def _damage_named(self) -> Iterator[None]:
        try:
            yield
        except UnicodeDecodeError as error:
            raise CommandError(f"{self.name} is not UTF-8 text ({error.reason} at byte {error.start})") from error
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise CommandError(f"{self.name} is damaged: {error}") from error
        except OSError as error:  # of the device, or of a file that is not one of bytes in order
            raise CommandError(f"cannot read {self.name}: {error.strerror or error}") from error

    def progress(self, done: int) -> tuple[float, float | None]:
        """Progress after `done` points: (completed, total), in points or in bytes; None if unknown."""
        if self.n_points is not None:
            return done, self.n_points
        return (self._tell(), self._size) if self._size else (done, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()


def open_points(path: str, options: ReadOptions | None = None, bad: BadRows | None = None) -> PointFile:
    """Open `path` (`-`: stdin). `bad` handles bad rows; without it, the first one is an error.

    Raises CommandError if it cannot be read, or if its format is unknown.
    """
    return PointFile(path, options or ReadOptions(), bad)


def _format_of(path: str, stream: Any, given: str | None) -> str:
    if given is not None:
        if given not in FORMATS:
            raise CommandError(
                f"--format {given} is unknown; {did_you_mean(given, FORMATS)}use one of {', '.join(FORMATS)}"
            )
        return given
    name = path.lower().removesuffix(".gz")
    suffix = Path(name).suffix
    if suffix in _NOT_READ:
        raise CommandError(f"{path}: {_NOT_READ[suffix]}; save the points as npy, npz, csv, ndjson or Parquet")
    start = stream.peek(64)[:64]
    named, held = _SUFFIXES.get(suffix), _sniff(start)
    if named is None:
        return held
    if held != named and (held in _BINARY or (named in _BINARY and _is_text(start))):
        raise CommandError(f"{path} holds {held}, but its name says {named}; rename it, or add --format {held}")
    return named


def _sniff(start: bytes) -> str:
    for kind, marks in _BINARY.items():
        if start.startswith(marks):
            return kind
    return "ndjson" if start.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"[", b"{") else "csv"


def _is_text(start: bytes) -> bool:
    return start != b"" and all(byte >= 32 or byte in b"\t\r\n" for byte in start)


def _unzipped(binary: io.BufferedReader) -> io.BufferedReader:
    return io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=binary)))


def _let_go(lines: io.TextIOWrapper) -> None:
    """Detach, so that closing the text does not close the bytes below it, which have another owner."""
    lines.detach()


class _Borrowed(io.RawIOBase):
    """Bytes of stdin, in a buffer of our own for `peek`. Closing it does not close stdin."""

    def __init__(self, below: Any) -> None:
        self._below = below

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        read = getattr(self._below, "read1", self._below.read)
        data = read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
