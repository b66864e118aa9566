"""A file that grows as a source, across rotation and truncation.

A position is `OFFSET:INODE:LENGTH:DIGEST:FOLDER`: the bytes that are read, the inode, how many first bytes have which
digest, and a digest of the path of the folder. So the file is found again under another name or in another folder, and
another file with its name or inode is not mistaken for it.
"""

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from shoal_service.cli.connectors.lines import LineDecoder
from shoal_service.cli.connectors.progress import Lag
from shoal_service.cli.connectors.steps import OTHER_SOURCE, SourceAwayError, Step, not_a_position
from shoal_service.cli.exits import CommandError

if TYPE_CHECKING:
    from shoal_service.cli.embedding import TextLines

HEAD_BYTES = 256
"""First bytes that tell files apart."""
PACKED = (".gz", ".bz2", ".xz", ".zst")
READ_BYTES = 4 << 20
LONGEST_LINE_BYTES = 64 << 20
"""Longest line: as much as the largest body that a server accepts by default."""
POLL_S, QUIET_S = 0.25, 1.0
"""Time between two looks at the file, and how long a file that was moved away must be quiet to count as complete."""


class FilePlace(NamedTuple):
    """Place in a file, and what tells the file from others."""

    offset: int
    inode: int
    head_bytes: int
    digest: str
    folder: str
    """Digest of its folder; empty in positions of earlier versions."""

    def text(self) -> str:
        """The position."""
        return f"{self.offset}:{self.inode}:{self.head_bytes}:{self.digest}:{self.folder}"

    @classmethod
    def of(cls, text: str) -> "FilePlace":
        """Read a position. CommandError for one of another kind of source."""
        try:
            offset, inode, head_bytes, digest, *folder = text.split(":")
            return cls(int(offset), int(inode), int(head_bytes), digest, "".join(folder))
        except ValueError:
            raise not_a_position(text, "place in a file") from None

    def is_in(self, file: IO[bytes]) -> bool:
        """Whether the file begins as this one did, and is as long at least."""
        size = os.fstat(file.fileno()).st_size
        return size >= self.offset and _digest(_head(file, self.head_bytes)) == self.digest


class FileFollower:
    """Reader of a file of lines that other programs write, rotate and truncate."""

    ended = False
    lag = Lag()
    """Not known of files."""

    def __init__(
        self,
        path: Path,
        decoder: "LineDecoder | TextLines",
        log: Any,
        *,
        count: int = 1000,
        place: Callable[[Path], Path] = lambda path: path,
    ) -> None:
        """`place` returns the path to open for a path, and raises CommandError for a file that may not be read."""
        self._place = place
        self._path, self._decoder, self._log, self._count = path, decoder, log, count
        if path.suffix in PACKED:
            raise CommandError(
                f"{path} is compressed, and a compressed file is not followed; ingest it without --follow"
            )
        self._partition = quote(path.name, safe=".:_-")[:150]
        self._folder = _digest(os.path.abspath(path.parent).encode("utf-8", "surrogateescape"))
        self._file: IO[bytes] | None = None
        self._offset = 0
        self._rest = b""
        """Bytes from `offset` on that are read and not decoded."""
        self._head = b""
        """First bytes of the open file, as far as it is read."""
        self._quiet_s = 0.0
        self._last: FilePlace | None = None
        """Place behind the last step in the open file."""

    def begin(self, positions: Mapping[str, str]) -> None:
        """See `SourceReader.begin`."""
        with self._away_on_errors():
            self._begin(positions.get(self._partition))

    def _begin(self, stored: str | None) -> None:
        self.close()
        if stored is None:
            self._open(self._path, 0)
            return
        place = FilePlace.of(stored)
        for path in self._candidates(place.inode):
            if self._open(path, place.offset) and self._file is not None and place.is_in(self._file):
                self._last = place
                return
            self.close()
        if place.folder not in ("", self._folder):
            raise CommandError(
                f"the stored position of {self._partition} is that of a file in another folder; {OTHER_SOURCE}"
            )
        self._log.warning("file_gone", file=str(self._path), position=stored)
        self._open(self._path, 0)

    def read(self) -> Step | None:
        """See `SourceReader.read`."""
        with self._away_on_errors():
            return self._read()

    @contextlib.contextmanager
    def _away_on_errors(self) -> Iterator[None]:
        """Raise SourceAwayError where a file cannot be read, or was deleted between two looks at it."""
        try:
            yield
        except IsADirectoryError as error:
            raise CommandError(
                f"{self._path} is a folder; give a file, or read a folder of Parquet files with shoal connect parquet"
            ) from error
        except OSError as error:
            raise SourceAwayError(
                f"{error.filename or self._path} cannot be read: {error.strerror or error}"
            ) from error

    def _read(self) -> Step | None:
        if self._file is None and not self._open(self._path, 0):
            time.sleep(POLL_S)
            return None
        lines = self._lines(complete=True)
        if lines:
            self._quiet_s = 0.0
            return self._step(lines)
        following = self._following()
        if following is None or self._quiet_s < QUIET_S:
            self._quiet_s = 0.0 if following is None else self._quiet_s + POLL_S
            time.sleep(POLL_S)
            return None
        last = self._lines(complete=False)
        step = self._step(last) if last else None
        self._log.info("next_file", file=str(following))
        self._open(following, 0)
        return step

    def stored(self, step: Step) -> None:
        """See `SourceReader.stored`."""

    def close(self) -> None:
        """See `SourceReader.close`."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, path: Path, offset: int) -> bool:
        self.close()
        self._offset, self._rest, self._quiet_s, self._last = offset, b"", 0.0, None
        try:
            self._file = self._place(path).open("rb")
        except FileNotFoundError:
            return False
        self._head = _head(self._file, min(offset, HEAD_BYTES))
        self._decoder.begin(self._file)
        return True

    def _lines(self, complete: bool) -> list[tuple[int, bytes]]:
        """Return up to `count` lines with their offsets. Without `complete`, also a last one without its end."""
        assert self._file is not None
        if b"\n" not in self._rest:
            at = self._offset + len(self._rest)
            self._file.seek(at)
            data = self._file.read(READ_BYTES)
            if self._was_truncated():
                return []
            if at == len(self._head):
                self._head += data[: HEAD_BYTES - at]
            self._rest += data
            if len(self._rest) > LONGEST_LINE_BYTES and b"\n" not in self._rest:
                raise CommandError(
                    f"{self._path} has a line of more than {LONGEST_LINE_BYTES} bytes at byte {self._offset}; give a "
                    "file of lines, one record in each"
                )
        found: list[tuple[int, bytes]] = []
        at = 0
        while len(found) < self._count and (end := self._rest.find(b"\n", at)) >= 0:
            found.append((self._offset + at, self._rest[at : end + 1]))
            at = end + 1
        if not complete and at < len(self._rest):
            found.append((self._offset + at, self._rest[at:]))
            at = len(self._rest)
        self._rest = self._rest[at:]
        self._offset += at
        return found

    def _was_truncated(self) -> bool:
        """Begin again when the file was truncated, also if it has grown beyond the old place since. Where it was copied
        before, the rest of the copy comes first.
        """
        assert self._file is not None
        last = self._last
        if last is None or last.is_in(self._file):
            return False
        for path in self._rotated():
            if self._open(path, last.offset) and last.is_in(self._file):
                self._last = last
                return True
        self._log.info("file_truncated", file=str(self._path), read=last.offset)
        self._open(self._path, 0)
        return True

    def _step(self, lines: list[tuple[int, bytes]]) -> Step:
        assert self._file is not None
        head = self._head[: self._offset]
        self._last = FilePlace(
            self._offset, os.fstat(self._file.fileno()).st_ino, len(head), _digest(head), self._folder
        )
        bad = self._decoder.bad.count
        points = self._decoder.decode(lines)
        return Step(self._partition, self._last.text(), points, len(lines), self._decoder.bad.count - bad)

    def _following(self) -> Path | None:
        """Return the file after the open one, or None while that has its name still."""
        assert self._file is not None
        mine = os.fstat(self._file.fileno())
        try:
            if self._path.stat().st_ino == mine.st_ino:
                return None
        except FileNotFoundError:
            return None  # the new one comes in a moment
        others = [path for path in self._rotated() if path.stat().st_ino != mine.st_ino]
        later = sorted((path.stat().st_mtime_ns, path) for path in others if path.stat().st_mtime_ns > mine.st_mtime_ns)
        return later[0][1] if later else self._path

    def _candidates(self, inode: int) -> Iterator[Path]:
        """Yield the files that may be the one of a position, those of its inode first."""
        found = [self._path, *self._rotated()]
        yield from sorted((path for path in found if path.exists()), key=lambda path: path.stat().st_ino != inode)

    def _rotated(self) -> list[Path]:
        """Files beside it whose names begin with its own, as rotation makes them."""
        folder, name = self._path.parent, self._path.name
        return [
            path
            for path in sorted(folder.glob(f"{_escaped(name)}[.-]*"))
            if path.is_file() and path.suffix not in PACKED
        ]


def _head(file: IO[bytes], n: int) -> bytes:
    return os.pread(file.fileno(), n, 0)


def _digest(head: bytes) -> str:
    return hashlib.sha256(head).hexdigest()[:16]


def _escaped(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)
