"""Writer of a SQLite store: one connection, whose transactions each commit a group of requests.

A request is a function of the `Transaction`. It first checks, and refuses by raising a `ServiceError` before it has
written anything. Then it writes. A refusal concerns its own caller only, and the group goes on.

Any other error rolls the whole group back. Then each request is tried in a transaction of its own, so that the error
reaches exactly those that cause it. One batch that is too large for the last megabytes of the disk does not fail small
ones. There are two exceptions: the transaction could not begin, or the COMMIT failed for another reason than a full
disk. Then all callers of the group get the error, because after a failed sync nothing is known to be on the disk.
"""

import logging
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from shoal_service.errors import ServiceError, StoreUnavailableError
from shoal_service.store.group_commit import GroupCommit, fail
from shoal_service.store.sqlite import chunks
from shoal_service.store.sqlite.connections import Readers
from shoal_service.store.sqlite.high_water import HighWaterMarks
from shoal_service.store.sqlite.schema import DATABASE_ERRORS, file_identity, store_error
from shoal_service.store.sqlite.stream_state import Streams, StreamState, StreamTable

T = TypeVar("T")

_WAL_BYTES = 8 << 20
"""Bytes in the write-ahead log that start a copy into the database. More saves little and makes the pause longer."""
_REQUEST_BYTES = 32 << 10
"""Bytes that a request writes beside its payload: a page in each of two or three trees, some of them shared."""
_WAL_LIMIT_BYTES = 256 << 20
"""Size of the write-ahead log at which the writer waits for readers, so that the log can shrink."""

_log = logging.getLogger("shoal_service.store")


class Transaction:
    """Connection for a request, and the streams as they will be if the commit succeeds."""

    def __init__(
        self, db: sqlite3.Connection, table: StreamTable, ids: "ChunkIds", marks: HighWaterMarks | None
    ) -> None:
        self.db = db
        self._marks = marks
        self.ids = ids
        self.streams: Streams = dict(table.streams)
        self.damaged = table.damaged
        self.changed: set[str] = set()
        self.leaves_garbage = False
        self.unapplied_bytes = table.unapplied_bytes

    def put(self, state: StreamState) -> None:
        """Set the new state of a stream."""
        self.streams[state.record.name] = state
        self.changed.add(state.record.name)

    def remove(self, name: str) -> None:
        """Remove a stream."""
        if self._marks is not None:
            self._marks.remove(self.streams[name])
        del self.streams[name]
        self.changed.add(name)


class ChunkIds:
    """Source of ids for chunks. The ids of a failed transaction are never used again."""

    def __init__(self, first_free: int) -> None:
        self._next = first_free
        self.staged: set[int] = set()
        """First ids of the runs that are being staged."""

    def take(self, size: int) -> int:
        """Return the first of as many consecutive ids as `size` bytes need."""
        first = self._next
        self._next += chunks.n_chunks(size)
        return first


class _Request(NamedTuple):
    future: Future[Any]
    work: Callable[[Transaction], Any]
    n_bytes: int


class SqliteWriter:
    """Owner of the writing connection, from construction to `close`."""

    def __init__(
        self,
        db: sqlite3.Connection,
        table: StreamTable,
        readers: Readers,
        marks: HighWaterMarks | None,
        folder: Path | None,
    ) -> None:
        """`folder` with the file that `db` has open, None for a database in memory."""
        self.commits = 0
        """Transactions that changed the file. Each costs one sync."""
        self.ids = ChunkIds(chunks.first_free_chunk(db))
        self._db = db
        (self._page_bytes,) = db.execute("PRAGMA page_size").fetchone()
        self._table = table
        self._readers = readers
        self._marks = marks
        self._folder, self._identity = folder, None if folder is None else file_identity(folder)
        self._garbage = True  # an earlier process may have left some
        self._wal_bytes = 0
        self._groups = GroupCommit[_Request](
            "shoal-sqlite-writer",
            self._commit_group,
            idle_s=lambda: 0.0 if self._garbage else None,
            finish=self._finish,
        )

    def submit(self, work: Callable[[Transaction], T], n_bytes: int = 0) -> Future[T]:
        """Queue a request that writes about `n_bytes`. The future has its result once that is durable."""
        request = _Request(Future(), work, n_bytes)
        self._groups.submit(request)
        return request.future

    def run(self, work: Callable[[Transaction], T], n_bytes: int = 0) -> T:
        """Queue a request and wait for its result."""
        return self.submit(work, n_bytes).result()

    def close(self) -> None:
        """Commit what is queued, then close the connection. May be called again."""
        self._groups.close()

    # Everything below runs in the thread of `GroupCommit`.

    def _commit_group(self, group: list[_Request]) -> None:
        """Commit the group, with an instalment of the garbage, and copy the write-ahead log when it is due."""
        if self._garbage and not self._groups.closing:
            sweep = _Request(Future(), lambda tx: chunks.sweep(tx.db, tx.ids.staged), 0)
            sweep.future.add_done_callback(self._swept)
            group = [*group, sweep]
        self._garbage = False
        if group:
            self._commit(group)
        if self._wal_bytes >= _WAL_BYTES:
            self._checkpoint_wal()

    def _swept(self, sweep: Future[bool]) -> None:
        # A sweep that failed is not repeated before there is new garbage. On a full disk it would never end.
        self._garbage |= sweep.exception() is None and sweep.result()

    def _commit(self, requests: list[_Request]) -> None:
        """Run the requests in one transaction and complete their futures."""
        stage = "beginning"
        with self._readers.writing():
            tx = Transaction(self._db, self._table, self.ids, self._marks)
            changes = self._db.total_changes
            try:
                self._db.execute("BEGIN IMMEDIATE")
                stage = "writing"
                answers = [_attempt(request, tx) for request in requests]
                stage = "committing"
                self._refuse_a_file_that_is_gone()
                self._db.execute("COMMIT")
                failure = None
            except Exception as error:  # noqa: BLE001 - the error of one request must not end the thread that serves all
                self._roll_back()
                failure = error
        if failure is not None:
            if len(requests) > 1 and _is_divisible(stage, failure):
                for request in requests:
                    self._commit([request])
            else:
                fail(requests, store_error(failure, stage) if isinstance(failure, DATABASE_ERRORS) else failure)
            return
        self.commits += self._db.total_changes > changes
        self._wal_bytes += sum(request.n_bytes + _REQUEST_BYTES for request in requests)
        self._garbage |= tx.leaves_garbage
        if self._marks is not None:
            self._marks.write(tx.streams[name] for name in tx.changed if name in tx.streams)
        self._table.replace(tx.streams, tx.changed)
        self._groups.count_arrivals()
        for request, (answer, refusal) in zip(requests, answers, strict=True):
            if refusal is None:
                request.future.set_result(answer)
            else:
                request.future.set_exception(refusal)

    def _refuse_a_file_that_is_gone(self) -> None:
        """Raise StoreUnavailableError if the open file has no name any more: what is written would go with the process.

        SQLite looks at this only in other journal modes.
        """
        if self._folder is not None and file_identity(self._folder) != self._identity:
            raise StoreUnavailableError(
                "the data folder, or the database in it, was moved, removed or replaced while the service uses it; "
                "move it back, or put a copy there and restart the service"
            )

    def _roll_back(self) -> None:
        if self._db.in_transaction:  # after some errors SQLite has ended it
            try:
                self._db.execute("ROLLBACK")
            except sqlite3.Error as error:
                _log.warning("a failed transaction could not be rolled back: %s", error)

    def _finish(self) -> None:
        self._db.close()  # the last connection copies the write-ahead log into the database and removes it
        if self._marks is not None:
            self._marks.close()

    def _checkpoint_wal(self) -> None:
        self._wal_bytes = 0
        if self._marks is not None:
            self._marks.sync()
        try:
            _, pages, _ = self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if pages * self._page_bytes > _WAL_LIMIT_BYTES:
                self._db.execute("PRAGMA wal_checkpoint(RESTART)")
        except sqlite3.Error as error:
            # Nothing is lost: the commits are in the write-ahead log, which grows until this works again.
            _log.warning("the write-ahead log could not be copied into the database: %s", error)


def _attempt(request: _Request, tx: Transaction) -> tuple[Any, ServiceError | None]:
    try:
        return request.work(tx), None
    except ServiceError as refusal:
        return None, refusal


def _is_divisible(stage: str, error: Exception) -> bool:
    full = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL
    return stage == "writing" or (stage == "committing" and full)
