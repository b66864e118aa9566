"""High-water marks of a process: the last entry of each stream that the server has acknowledged to it.

A server that restarts with an older file has lost entries, and its counters went back with them. Only the processes
know better. With a folder, the marks survive them in a file. Processes that share a folder each have a file of their
own, and read all of them at the start.

A file is a row of slots: CRC-32 of the rest, key of the stream, last acknowledged entry. It is not synced each time: a
power cut may leave an older mark, which never raises a false alarm.
"""

import fcntl
import hashlib
import logging
import os
import struct
import threading
import zlib
from pathlib import Path

from shoal_service.store import rules

MARKS_FILE = "shoal.high-water.redis-{}"
MAX_FILES = 256
MAX_SLOTS = 65_536
"""Slots that a process takes over from its file. Older ones are of streams that are long deleted."""
_CRC, _BODY = struct.Struct(">I"), struct.Struct(">16sQ")
_SLOT = _CRC.size + _BODY.size

_log = logging.getLogger("shoal_service.store")


class AcknowledgedEntries:
    """High-water marks, from construction to `close`. They are not kept where the durability allows a loss."""

    def __init__(self, kept: bool, folder: Path | None = None) -> None:
        """`folder`: where the marks survive the process. Where it cannot be written, they end with the process."""
        self._kept = kept
        self._lock = threading.Lock()
        self._last: dict[bytes, int] = {}
        self._slots: dict[bytes, int] = {}
        self._fd = -1
        self._how = "restart it"
        if kept and folder is not None:
            try:
                self._open(folder)
            except OSError as error:
                _log.info("high-water marks cannot be kept in %s: %s", folder, error)

    def _open(self, folder: Path) -> None:
        """Read the marks of all processes, and take a file that no other process uses."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._how = f"stop shoal and remove {folder.absolute() / MARKS_FILE.format('*')}"
        for path in sorted(folder.glob(MARKS_FILE.format("*"))):
            for key, seq in _marks_in(path.read_bytes()):
                self._last[key] = max(seq, self._last.get(key, 0))
        for n in range(MAX_FILES):
            fd = os.open(folder / MARKS_FILE.format(n), os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                continue
            self._fd = fd
            own = dict(_marks_in(os.pread(fd, os.fstat(fd).st_size, 0)))
            os.ftruncate(fd, 0)
            for key in list(own)[-MAX_SLOTS:]:
                self._write(key, self._last[key])
            return

    def last(self, tag: str) -> int:
        """Return the last acknowledged entry. Ask before the question to the server, or the answer may be older."""
        return self._last.get(_key(tag), 0)

    def note(self, tag: str, seq: int) -> None:
        """Note an acknowledged entry."""
        if not self._kept:
            return
        key = _key(tag)
        with self._lock:
            self._last[key] = max(seq, self._last.get(key, 0))
            if self._fd >= 0:
                try:
                    self._write(key, self._last[key])
                except OSError as error:
                    _log.warning("high-water marks are kept no longer: %s", error)
                    self._close()

    def check(self, name: str, end_seq: int, acknowledged: int) -> None:
        """Raise LogGapError when the log ends before an acknowledged entry."""
        if end_seq < acknowledged:
            raise rules.gap(
                name,
                f"the log ends at entry {end_seq}, but entry {acknowledged} was acknowledged to this process or to one "
                f"before it (to go on without the lost entries, {self._how})",
            )

    def close(self) -> None:
        """Sync and close the file. May be called again."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write(self, key: bytes, seq: int) -> None:
        slot = self._slots.setdefault(key, len(self._slots))
        body = _BODY.pack(key, seq)
        os.pwrite(self._fd, _CRC.pack(zlib.crc32(body)) + body, slot * _SLOT)


def _key(tag: str) -> bytes:
    return hashlib.sha256(tag.encode()).digest()[:16]


def _marks_in(found: bytes) -> list[tuple[bytes, int]]:
    """Return the marks of a file, without damaged ones."""
    marks: list[tuple[bytes, int]] = []
    for at in range(0, len(found) - _SLOT + 1, _SLOT):
        body = found[at + _CRC.size : at + _SLOT]
        if _CRC.unpack_from(found, at)[0] == zlib.crc32(body):
            marks.append(_BODY.unpack(body))
    return marks
