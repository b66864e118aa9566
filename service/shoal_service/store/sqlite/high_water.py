"""High-water marks in a file of their own: how far the log of each stream was acknowledged.

A damaged write-ahead log ends early when SQLite opens it, without a word. The marks tell then that entries are missing.
A mark is written after its commit and before the acknowledgement. It is not synced each time: a power cut may leave an
older mark, which never raises a false alarm.
"""

import hashlib
import logging
import os
import struct
import zlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from shoal_service.errors import StoreFormatError
from shoal_service.store import rules
from shoal_service.store.sqlite.folder_lock import unusable
from shoal_service.store.sqlite.stream_state import Loaded, StreamState

MARKS_FILE = "shoal.high-water"
_CRC, _BODY = struct.Struct(">I"), struct.Struct(">16sQ100s")
"""A slot is the CRC-32 of the rest, the key of the stream, the last acknowledged entry, and the name of the stream."""
_SLOT_BYTES = 128
"""The slot of a stream is at this multiple of its id."""
_USED_BYTES = _CRC.size + _BODY.size

_log = logging.getLogger("shoal_service.store")


class Mark(NamedTuple):
    """Mark of a stream."""

    key: bytes
    seq: int
    """The last acknowledged entry."""
    name: str
    """The name of the stream, for people: its first hundred bytes."""


def read_marks(folder: Path) -> list[Mark | None] | None:
    """Return the marks in a folder, None for each damaged one. None for the list when there is no file."""
    try:
        return _marks_in((folder / MARKS_FILE).read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unusable(folder, error) from error


def _marks_in(found: bytes) -> list[Mark | None]:
    marks: list[Mark | None] = []
    for at in range(0, len(found), _SLOT_BYTES):
        slot = found[at : at + _SLOT_BYTES]
        if len(slot) < _USED_BYTES or not any(slot):
            continue
        key, seq, name = _BODY.unpack_from(slot, _CRC.size)
        whole = _CRC.unpack_from(slot)[0] == zlib.crc32(slot[_CRC.size : _USED_BYTES])
        marks.append(Mark(key, seq, name.rstrip(b"\0").decode("utf-8", "replace")) if whole else None)
    return marks


class HighWaterMarks:
    """Marks of all streams, from construction to `close`. After that, one thread writes them."""

    def __init__(self, folder: Path) -> None:
        """Open the file, which is created if it is missing."""
        self._path = folder / MARKS_FILE
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise unusable(folder, error) from error
        self._failed = False

    def check(self, loaded: Loaded) -> Loaded:
        """Return the streams, with the reason on each that lacks acknowledged entries, and write the other marks.

        StoreFormatError when a whole stream is missing, unless some record is damaged: it may be the missing one.
        """
        by_key = {key_of(state.record.name, state.record.incarnation): state for state in loaded.streams.values()}
        checked, damaged = dict(loaded.streams), set(loaded.damaged)
        for mark in _marks_in(os.pread(self._fd, os.fstat(self._fd).st_size, 0)):
            if mark is None:
                _log.warning("a high-water mark in %s is damaged and left out", self._path)
                continue
            state = by_key.pop(mark.key, None)
            if state is None and damaged:
                damaged.add(mark.name)
                continue
            if state is None:
                raise StoreFormatError(
                    f"the database in {self._path.parent} lacks stream {mark.name!r}, which was acknowledged; restore "
                    f"it from a copy, or remove {self._path} to go on without the stream"
                )
            if mark.seq > state.end.seq:
                damage = (
                    f"the log ends at entry {state.end.seq}, but entry {mark.seq} was acknowledged (to go on without "
                    f"the lost entries, stop shoal and remove {self._path})"
                )
                checked[state.record.name] = state._replace(damage=state.damage or damage)
                _log.error("%s", rules.gap(state.record.name, damage))
        self.write(checked.values())
        return loaded._replace(streams=checked, damaged=damaged)

    def write(self, states: Iterable[StreamState]) -> None:
        """Write the marks of streams. A failure is logged once, and never fails the commit."""
        for state in states:
            if state.damage is None:
                name, incarnation = state.record[:2]
                body = _BODY.pack(key_of(name, incarnation), state.end.seq, name.encode()[:100])
                self._put(state.id, _CRC.pack(zlib.crc32(body)) + body)

    def remove(self, state: StreamState) -> None:
        """Remove the mark of a stream that is being deleted, durably, so that it never counts as lost."""
        self._put(state.id, bytes(_USED_BYTES))
        self.sync()

    def sync(self) -> None:
        """Sync the file."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            self._report(error)

    def close(self) -> None:
        """Sync and close the file. May be called again."""
        if self._fd >= 0:
            self.sync()
            os.close(self._fd)
            self._fd = -1

    def _put(self, stream: int, slot: bytes) -> None:
        try:
            os.pwrite(self._fd, slot, stream * _SLOT_BYTES)
        except OSError as error:
            self._report(error)

    def _report(self, error: OSError) -> None:
        if not self._failed:
            self._failed = True
            _log.warning("high-water marks cannot be written to %s: %s", self._path, error)


@lru_cache(4096)
def key_of(name: str, incarnation: str) -> bytes:
    """Return the key of a stream in the file."""
    return hashlib.sha256(f"{name}/{incarnation}".encode()).digest()[:16]
