"""Streams of a SQLite store as held in memory: counters and records as of the last commit, and threads that wait.

`StreamTable.streams` is replaced as a whole after each commit and never changed in place. Readers therefore need no
lock.
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Iterable
from typing import NamedTuple

from shoal_service.store import checksums, rules
from shoal_service.store.contract import StreamRecord, Tail, Wake
from shoal_service.store.rules import START, LogPosition

_log = logging.getLogger("shoal_service.store")


class StreamState(NamedTuple):
    """Counters and record of a stream."""

    id: int
    record: StreamRecord
    epoch: int
    floor: LogPosition
    """Position behind the last entry that was trimmed."""
    end: LogPosition
    """Position behind the last entry of the log."""
    answers_end: int
    """Ordinal of the newest idempotency key."""
    damage: str | None = None
    """Reason why the end of the log is not known. Nothing is appended then."""


Streams = dict[str, StreamState]


def find(streams: Streams, name: str, incarnation: str) -> StreamState:
    """Return the stream. StreamGoneError when there is none."""
    state = streams.get(name)
    if state is None or state.record.incarnation != incarnation:
        raise rules.gone(name, incarnation)
    return state


# -- rows of the database


class EntryRow(NamedTuple):
    """Row of the table `entries`."""

    seq: int
    log_offset: int
    payload_bytes: int
    n_points: int
    kind: str
    size: int
    first_chunk: int
    checksum: bytes | None

    @property
    def is_whole(self) -> bool:
        """Whether the row matches its checksum. The payload is not read."""
        return checksums.is_row_whole(self.checksum, *self[:-1])

    @property
    def position(self) -> LogPosition:
        """Position behind the entry."""
        return LogPosition(self.seq, self.log_offset, self.payload_bytes)


SELECT_ENTRIES = f"SELECT {', '.join(EntryRow._fields)} FROM entries WHERE stream = ?"


class Loaded(NamedTuple):
    """All streams of a database."""

    streams: Streams
    applied: dict[str, LogPosition]
    """Position of the newest checkpoint by incarnation."""
    damaged: set[str]
    """Names of the streams whose record is damaged. They are not among `streams`."""


def load(db: sqlite3.Connection) -> Loaded:
    """Read all streams."""
    streams: Streams = {}
    applied: dict[str, LogPosition] = {}
    damaged: set[str] = set()
    for row in db.execute(f"SELECT {STREAM_COLUMNS} FROM streams").fetchall():
        if not checksums.is_row_whole(row[-1], *row[:-1]):
            damaged.add(str(row[1]))
            _log.error("%s", rules.damaged_record(str(row[1])))
            continue
        stream, floor = row[0], LogPosition(*row[6:9])
        state = StreamState(stream, StreamRecord(*row[1:5]), row[5], floor, floor, 0)
        ordinal, checkpoint = db.execute(
            "SELECT (SELECT max(ordinal) FROM answers WHERE stream = :id),"
            " (SELECT max(seq) FROM checkpoints WHERE stream = :id)",
            {"id": stream},
        ).fetchone()
        last = db.execute(f"{SELECT_ENTRIES} ORDER BY seq DESC LIMIT 1", (stream,)).fetchone()
        if last is not None:
            entry = EntryRow(*last)
            damage = None if entry.is_whole else f"entry {entry.seq} is missing or damaged"
            state = state._replace(end=entry.position, damage=damage)
        state = state._replace(answers_end=ordinal or 0)
        streams[state.record.name] = state
        applied[state.record.incarnation] = position_of(db, state, checkpoint or 0)
    return Loaded(streams, applied, damaged)


STREAM_COLUMNS = "id, name, incarnation, settings, created_at, epoch, floor_seq, floor_offset, floor_bytes, checksum"


def write_row(db: sqlite3.Connection, state: StreamState) -> None:
    """Write what may change in the row of a stream."""
    settings, epoch, floor = state.record.settings, state.epoch, state.floor
    checksum = checksums.row_checksum(0, state.id, *state.record, epoch, *floor)
    db.execute(
        "UPDATE streams SET settings = ?, epoch = ?, floor_seq = ?, floor_offset = ?, floor_bytes = ?, checksum = ?"
        " WHERE id = ?",
        (settings, epoch, *floor, checksum, state.id),
    )


def position_of(db: sqlite3.Connection, state: StreamState, seq: int) -> LogPosition:
    """Return the position behind the last whole entry up to `seq`, or behind the last trimmed one."""
    if seq == state.end.seq:
        return state.end
    for row in db.execute(f"{SELECT_ENTRIES} AND seq <= ? ORDER BY seq DESC", (state.id, seq)):
        if (entry := EntryRow(*row)).is_whole:
            return entry.position
    return state.floor


class StreamTable:
    """Committed state of all streams, the applied positions of the learners, and threads that wait for entries."""

    def __init__(self, loaded: Loaded) -> None:
        self.streams = loaded.streams
        self.damaged = frozenset(loaded.damaged)
        """Names of the streams whose record is damaged."""
        self._applied = loaded.applied
        self._lock = threading.Lock()
        self._waiting: dict[str, set[Wake]] = {}
        self._closed = False

    def all(self) -> Streams:
        """Return the streams, which must not be changed. StoreUnavailableError after `close`."""
        if self._closed:
            raise rules.closed()
        return self.streams

    def of_name(self, name: str) -> StreamState | None:
        """Return the stream of a name, if there is one. StoreFormatError when its record is damaged."""
        if name in self.damaged:
            raise rules.damaged_record(name)
        return self.all().get(name)

    def find(self, name: str, incarnation: str) -> StreamState:
        """Return the stream. StreamGoneError when there is none."""
        return find(self.all(), name, incarnation)

    def tail(self, name: str, incarnation: str) -> Tail:
        """Return the end of the log."""
        state = self.find(name, incarnation)
        return Tail(state.end.seq, state.end.log_offset, self.unapplied_bytes(state), state.floor.seq + 1)

    def unapplied_bytes(self, state: StreamState) -> int:
        """Count payload bytes from the applied position to the end of `state`, which may be newer than the table."""
        return state.end.payload_bytes - self._applied.get(state.record.incarnation, START).payload_bytes

    def mark_applied(self, name: str, incarnation: str, epoch: int, position: LogPosition) -> None:
        """Set the applied position, with a check of the epoch."""
        with self._lock:
            rules.check_epoch(name, epoch, self.find(name, incarnation).epoch)
            self._applied[incarnation] = position

    def replace(self, streams: Streams, changed: Iterable[str]) -> None:
        """Take over the state after a commit, and wake the threads that wait for one of the `changed` streams."""
        with self._lock:
            before, self.streams = self.streams, streams
            for name in changed:
                for event in self._waiting.get(name, ()):
                    event.set()
                if name in before and name not in streams:
                    self._applied.pop(before[name].record.incarnation, None)
                    self._waiting.pop(name, None)

    def wait_for_entries(
        self, name: str, incarnation: str, after_seq: int, timeout_s: float, wake: threading.Event | None
    ) -> bool:
        """Block until the log holds an entry after `after_seq`, `wake` is set, or the time is up."""
        until = time.monotonic() + timeout_s
        event = threading.Event() if wake is None else wake
        with self._lock:
            self._waiting.setdefault(name, set()).add(event)
        try:
            while True:
                if self.find(name, incarnation).end.seq > after_seq:
                    return True
                left = until - time.monotonic()
                if left <= 0 or (wake is not None and wake.is_set()):
                    return False
                event.wait(left)
                if wake is None:
                    event.clear()
        finally:
            with self._lock:
                self._waiting.get(name, set()).discard(event)

    def watch(self, name: str, event: Wake) -> None:
        """As `Store.watch`."""
        with self._lock:
            self._waiting.setdefault(name, set()).add(event)

    def unwatch(self, name: str, event: Wake) -> None:
        """As `Store.unwatch`."""
        with self._lock:
            self._waiting.get(name, set()).discard(event)

    def close(self) -> None:
        """Refuse all calls from now on, and wake all threads."""
        with self._lock:
            self._closed = True
            for waiting in self._waiting.values():
                for event in waiting:
                    event.set()
