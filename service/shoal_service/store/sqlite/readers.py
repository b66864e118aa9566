"""Reading the SQLite file: a few read-only connections that any thread may borrow, and the questions asked of them."""

import hashlib
import logging
import queue
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shoal_service.store import rules
from shoal_service.store.contract import Checkpoint, DeadLetter, Entry, EntryKind
from shoal_service.store.sqlite import chunks
from shoal_service.store.sqlite.schema import open_reader, store_error
from shoal_service.store.sqlite.stream_state import StreamState

MAX_READERS = 8

_log = logging.getLogger("shoal_service.store")


class ReaderPool:
    """At most eight connections, opened when first needed; a ninth reader waits for one to come back."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._room = threading.Semaphore(MAX_READERS)
        self._idle: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()
        self._closed = False

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """A connection on which all questions are answered as of one commit. SQLite's errors come out as ours."""
        with self._room:
            if self._closed:
                raise rules.closed()
            try:
                db = self._borrow()
                try:
                    db.execute("BEGIN")
                    yield db
                finally:
                    if db.in_transaction:
                        db.execute("ROLLBACK")
                    self._idle.put(db)
            except sqlite3.Error as error:
                raise store_error(error, "reading") from error

    def _borrow(self) -> sqlite3.Connection:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            return open_reader(self._folder)

    def close(self) -> None:
        """Wait for the readers that are on the way, then close all connections. Idempotent."""
        self._closed = True
        for _ in range(MAX_READERS):
            self._room.acquire()
        while not self._idle.empty():
            self._idle.get().close()
        self._room.release(MAX_READERS)


_ENTRY = "SELECT seq, log_offset, n_points, kind, size, first_chunk FROM entries WHERE stream = ?"


def entries_after(db: sqlite3.Connection, state: StreamState, after_seq: int, max_bytes: int) -> list[Entry]:
    """As `Store.read`, once the ends are checked."""
    found: list[Entry] = []
    within = (state.id, after_seq, state.end.seq)  # what is committed but not yet announced is not there yet
    for row in db.execute(f"{_ENTRY} AND seq > ? AND seq <= ? ORDER BY seq", within):
        max_bytes -= row[4]
        if found and max_bytes < 0:
            break
        found.append(_entry(db, state, row, after_seq + 1 + len(found)))
    if not found and after_seq < state.end.seq:
        raise rules.gap(state.record.name, f"entry {after_seq + 1} is missing")
    return found


def _entry(db: sqlite3.Connection, state: StreamState, row: tuple[int, int, int, str, int, int], due: int) -> Entry:
    """The entry of one row with its payload; LogGapError unless it is number `due`, and whole."""
    seq, log_offset, n_points, kind, size, first_chunk = row
    payload = chunks.read_run(db, first_chunk, size)
    if seq != due or payload is None:
        raise rules.gap(state.record.name, f"entry {due} is missing or not whole")
    return Entry(seq, log_offset, n_points, EntryKind(kind), payload)


def checkpoints(db: sqlite3.Connection, state: StreamState) -> tuple[list[Checkpoint], set[int]]:
    """The checkpoints whose checksum holds, newest first, and the first chunks of those whose does not."""
    whole: list[Checkpoint] = []
    damaged: set[int] = set()
    rows = db.execute(
        "SELECT seq, log_offset, sha256, size, first_chunk, window_seq FROM checkpoints WHERE stream = ?"
        " ORDER BY seq DESC",
        (state.id,),
    ).fetchall()
    for seq, log_offset, digest, size, first_chunk, window_seq in rows:
        blob = _blob(db, first_chunk, size)
        if blob is not None and hashlib.sha256(blob).digest() == digest:
            whole.append(Checkpoint(seq, log_offset, blob, window_seq))
            continue
        damaged.add(first_chunk)
        _log.warning(
            "the checkpoint at entry %d of stream %r is damaged and left out; "
            "the older one takes its place, or the log from its beginning",
            seq,
            state.record.name,
        )
    return whole, damaged


def _blob(db: sqlite3.Connection, first_chunk: int, size: int) -> bytes | None:
    try:
        return chunks.read_run(db, first_chunk, size)
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_CORRUPT:
            raise
        return None


def dead_letters(db: sqlite3.Connection, state: StreamState) -> list[DeadLetter]:
    """As `Store.dead_letters`. LogGapError when one is not whole."""
    rows = db.execute(
        "SELECT seq, log_offset, n_points, reason, size, first_chunk FROM dead_letters WHERE stream = ? ORDER BY seq",
        (state.id,),
    )
    letters: list[DeadLetter] = []
    for seq, log_offset, n_points, reason, size, first_chunk in rows:
        payload = chunks.read_run(db, first_chunk, size)
        if payload is None:
            raise rules.gap(state.record.name, f"the dead letter of entry {seq} is not whole")
        letters.append(DeadLetter(seq, log_offset, n_points, reason, payload))
    return letters


def dead_letter_reasons(db: sqlite3.Connection, state: StreamState) -> dict[int, str]:
    """As `Store.dead_letter_reasons`."""
    return dict(
        db.execute("SELECT seq, reason FROM dead_letters WHERE stream = ? ORDER BY seq", (state.id,)).fetchall()
    )
