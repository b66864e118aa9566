"""Connections of a SQLite store: one that writes, and read-only ones that any thread may borrow.

A store in memory has one connection for both, guarded by a lock.
"""

import queue
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Protocol

from shoal_service.store import rules
from shoal_service.store.sqlite.read_only import one_commit
from shoal_service.store.sqlite.schema import DATABASE_ERRORS, open_reader, store_error

MAX_READERS = 8


class Readers(Protocol):
    """Source of connections to read from."""

    def snapshot(self) -> AbstractContextManager[sqlite3.Connection]:
        """Give a connection that sees one commit. Errors of SQLite come out as errors of the store."""

    def writing(self) -> AbstractContextManager[object]:
        """Keep the connection for the writer during one transaction, where it has none of its own."""

    def close(self) -> None:
        """Wait for borrowed connections, then close all. May be called again."""


class ReaderPool:
    """Pool of at most eight read-only connections to a file, opened on first use. A ninth reader waits."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._free = threading.Semaphore(MAX_READERS)
        self._idle: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()
        self._closed = False

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """Give a connection, as `Readers.snapshot`."""
        with self._free:
            if self._closed:
                raise rules.closed()
            try:
                db = self._borrow()
                try:
                    with one_commit(db):
                        yield db
                finally:
                    self._idle.put(db)
            except DATABASE_ERRORS as error:
                raise store_error(error, "reading") from error

    def writing(self) -> AbstractContextManager[object]:
        """Do nothing: the writer of a file has its own connection."""
        return nullcontext()

    def _borrow(self) -> sqlite3.Connection:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            return open_reader(self._folder)

    def close(self) -> None:
        """Close the pool, as `Readers.close`."""
        self._closed = True
        for _ in range(MAX_READERS):
            self._free.acquire()
        while not self._idle.empty():
            self._idle.get().close()
        self._free.release(MAX_READERS)


class OneConnection:
    """The only connection of a store in memory. The writer closes it."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """Give the connection, as `Readers.snapshot`."""
        with self._lock:
            if self._closed:
                raise rules.closed()
            try:
                with one_commit(self._db):
                    yield self._db
            except DATABASE_ERRORS as error:
                raise store_error(error, "reading") from error

    def writing(self) -> AbstractContextManager[object]:
        """Keep the connection, as `Readers.writing`."""
        return self._lock

    def close(self) -> None:
        """Refuse further readers."""
        with self._lock:
            self._closed = True
