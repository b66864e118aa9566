"""What the SQLite store holds in memory: where each stream stands, as of the last commit, and who waits for more.

`Published.streams` is replaced as a whole after each commit and never changed in place, so that a reader takes no lock.
"""

import sqlite3
import threading
from collections.abc import Iterable
from typing import NamedTuple

from shoal_service.store import rules
from shoal_service.store.contract import StreamRecord, Tail
from shoal_service.store.rules import START, LogMark


class StreamState(NamedTuple):
    """A stream's counters and record."""

    id: int
    record: StreamRecord
    epoch: int
    floor: LogMark
    """Behind the last entry that was trimmed."""
    end: LogMark
    """Behind the last entry of the log."""
    answers_end: int
    """Ordinal of the newest idempotency key."""


Streams = dict[str, StreamState]


def find(streams: Streams, name: str, incarnation: str) -> StreamState:
    """The stream, or StreamGoneError."""
    state = streams.get(name)
    if state is None or state.record.incarnation != incarnation:
        raise rules.gone(name, incarnation)
    return state


def load(db: sqlite3.Connection) -> tuple[Streams, dict[str, LogMark]]:
    """All streams of the file, and by incarnation how far it is applied, as far as the file tells: its checkpoint."""
    streams: Streams = {}
    applied: dict[str, LogMark] = {}
    columns = "id, name, incarnation, settings, created_at, epoch, floor_seq, floor_offset, floor_bytes"
    for row in db.execute(f"SELECT {columns} FROM streams").fetchall():
        stream, floor = row[0], LogMark(*row[6:9])
        state = StreamState(stream, StreamRecord(*row[1:5]), row[5], floor, floor, 0)
        last, ordinal, checkpoint = db.execute(
            "SELECT (SELECT max(seq) FROM entries WHERE stream = :id), (SELECT max(ordinal) FROM answers WHERE"
            " stream = :id), (SELECT max(seq) FROM checkpoints WHERE stream = :id)",
            {"id": stream},
        ).fetchone()
        end = mark_at(db, state, last or 0)
        streams[state.record.name] = state._replace(end=end, answers_end=ordinal or 0)
        applied[state.record.incarnation] = mark_at(db, streams[state.record.name], checkpoint or 0)
    return streams, applied


def mark_at(db: sqlite3.Connection, state: StreamState, seq: int) -> LogMark:
    """The place behind entry `seq`; behind the last trimmed one where that is later."""
    if seq == state.end.seq:
        return state.end
    row = db.execute(
        "SELECT seq, log_offset, payload_bytes FROM entries WHERE stream = ? AND seq = ?", (state.id, seq)
    ).fetchone()
    return LogMark(*row) if row is not None else state.floor


class Published:
    """The streams as everybody may see them, the learners' marks, and the threads that wait for entries."""

    def __init__(self, streams: Streams, applied: dict[str, LogMark]) -> None:
        self.streams = streams
        self._applied = applied
        self._lock = threading.Lock()
        self._waiting: dict[str, threading.Condition] = {}
        self._closed = False

    def all(self) -> Streams:
        """The streams as of the last commit; not to be changed. StoreUnavailableError after the end."""
        if self._closed:
            raise rules.closed()
        return self.streams

    def find(self, name: str, incarnation: str) -> StreamState:
        """The stream as of the last commit, or StreamGoneError."""
        return find(self.all(), name, incarnation)

    def tail(self, name: str, incarnation: str) -> Tail:
        """The end of the log as of the last commit."""
        state = self.find(name, incarnation)
        return Tail(state.end.seq, state.end.log_offset, self.unapplied_bytes(state), state.floor.seq + 1)

    def unapplied_bytes(self, state: StreamState) -> int:
        """Payload bytes between the applied mark and the end of `state`, which may be ahead of what is published."""
        return state.end.payload_bytes - self._applied.get(state.record.incarnation, START).payload_bytes

    def mark_applied(self, name: str, incarnation: str, epoch: int, mark: LogMark) -> None:
        """Move the applied mark, under the epoch check."""
        with self._lock:
            rules.check_epoch(name, epoch, self.find(name, incarnation).epoch)
            self._applied[incarnation] = mark

    def publish(self, streams: Streams, touched: Iterable[str]) -> None:
        """Show a committed state, and wake who waits for one of the `touched` streams."""
        with self._lock:
            before, self.streams = self.streams, streams
            for name in touched:
                if (waiting := self._waiting.get(name)) is not None:
                    waiting.notify_all()
                if name in before and name not in streams:
                    self._applied.pop(before[name].record.incarnation, None)
                    self._waiting.pop(name, None)

    def wait_for_entries(self, name: str, incarnation: str, after_seq: int, timeout_s: float) -> bool:
        """Block until the log is longer than `after_seq` or the time is up; True when it is longer."""
        with self._lock:
            waiting = self._waiting.setdefault(name, threading.Condition(self._lock))
            return waiting.wait_for(lambda: self.find(name, incarnation).end.seq > after_seq, timeout_s)

    def close(self) -> None:
        """Refuse everything from now on, and wake everybody."""
        with self._lock:
            self._closed = True
            for waiting in self._waiting.values():
                waiting.notify_all()
