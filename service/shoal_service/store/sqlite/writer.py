"""The one thread that writes: it takes whatever is queued, does it in one transaction, and answers after the COMMIT.

While one commit waits for the disk, the next group gathers in the queue; so eight callers share one sync, and one
caller alone waits for nobody. A job is a function of the `Transaction`. It first checks, and refuses by raising a
`ServiceError` before it has written anything; then it writes. A refusal is its own caller's affair, the group goes on.

Any other error undoes the whole group. Then each job is tried again in a transaction of its own, so that the error ends
up with exactly those that cause it: one batch too large for the disk's last megabytes takes no small one with it. Not
so when the COMMIT itself failed for another reason than a full disk, or the transaction could not begin: then all of
the group are told, since after a failed sync nothing that was meant to be on the disk may be assumed to be there.
"""

import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

from shoal_service.errors import ServiceError
from shoal_service.store import rules
from shoal_service.store.sqlite import chunks
from shoal_service.store.sqlite.schema import store_error
from shoal_service.store.sqlite.stream_state import Published, Streams, StreamState

T = TypeVar("T")

_GROUP_BYTES = 16 << 20
"""A group is closed at so much payload or so many jobs: it bounds how long the first one waits for the last one."""
_GROUP_JOBS = 512
_LINGER_PART, _LINGER_MAX_S = 0.2, 0.002
_WAL_BYTES = 8 << 20
"""Copied into the database when so much was written. Larger saves little and makes the pause longer."""
_JOB_BYTES = (
    32 << 10
)  # what a job writes besides its payload: a page in each of two or three trees, some of them shared
_WAL_LIMIT_BYTES = 256 << 20
"""Beyond this the log must shrink, and the writer waits for readers to get out of the way."""

_log = logging.getLogger("shoal_service.store")


class Transaction:
    """What a job works with: the connection, and the streams as they will be if the commit succeeds."""

    def __init__(self, db: sqlite3.Connection, published: Published, ids: "ChunkIds") -> None:
        self.db = db
        self.ids = ids
        self.streams: Streams = dict(published.streams)
        self.touched: set[str] = set()
        self.leaves_garbage = False
        self.unapplied_bytes = published.unapplied_bytes

    def put(self, state: StreamState) -> None:
        """The stream's new state."""
        self.streams[state.record.name] = state
        self.touched.add(state.record.name)

    def remove(self, name: str) -> None:
        """The stream's end."""
        del self.streams[name]
        self.touched.add(name)


class ChunkIds:
    """Gives out ids of chunks. Those of a transaction that failed are never used."""

    def __init__(self, first_free: int) -> None:
        self._next = first_free
        self.spared: set[int] = set()
        """First ids of the runs that are being written ahead of their name."""

    def take(self, size: int) -> int:
        """The first of as many ids in a row as `size` bytes need."""
        first = self._next
        self._next += chunks.n_chunks(size)
        return first


class _Job(NamedTuple):
    future: Future[Any]
    work: Callable[[Transaction], Any]
    n_bytes: int


class GroupWriter:
    """Owns the writing connection from construction to `close`."""

    def __init__(self, db: sqlite3.Connection, published: Published) -> None:
        self.commits = 0
        """Transactions that changed the file: one sync each."""
        self._db = db
        (self._page_bytes,) = db.execute("PRAGMA page_size").fetchone()
        self._published = published
        self.ids = ChunkIds(chunks.first_free_chunk(db))
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._entrance = threading.Lock()
        self._closed = False
        self._garbage = True  # an earlier process may have left some
        self._wal_bytes = 0
        self._expected = 1  # callers of the last group, and those who came while it was committed
        self._arrived = 0
        self._linger_s = 0.0
        self._thread = threading.Thread(target=self._run, name="shoal-store-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[Transaction], T], n_bytes: int = 0) -> Future[T]:
        """Queue a job that writes about `n_bytes`; its result, or its error, once it is durable."""
        future: Future[T] = Future()
        with self._entrance:
            if not self._closed:
                self._queue.put(_Job(future, work, n_bytes))
                return future
        future.set_exception(rules.closed())
        return future

    def run(self, work: Callable[[Transaction], T], n_bytes: int = 0) -> T:
        """The same, waiting for the result."""
        return self.submit(work, n_bytes).result()

    def close(self) -> None:
        """Do what is queued, then let go of the connection. Idempotent."""
        with self._entrance:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    # -- in the thread

    def _run(self) -> None:
        last = False
        while not last:
            group, last = self._gather()
            n_callers = len(group)
            if self._garbage and not last:
                group.append(_Job(Future(), lambda tx: chunks.sweep(tx.db, tx.ids.spared), 0))
                group[-1].future.add_done_callback(self._swept)
            self._garbage = False
            if group:
                began = time.perf_counter()
                self._commit(group)
                self._linger_s = min(_LINGER_MAX_S, _LINGER_PART * (time.perf_counter() - began))
                self._expected = n_callers + self._arrived
            if self._wal_bytes >= _WAL_BYTES:
                self._checkpoint_wal()
        self._db.close()  # the last connection copies the log into the database and removes it

    def _gather(self) -> tuple[list[_Job], bool]:
        """The next group, and whether it is the last. While there is garbage it may be empty.

        It lingers for those who were just answered and are about to come back, as long as those who came during the
        last commit are there already: taken at once, the two would take turns for ever, each waiting for the other's
        sync. A small part of a commit's time brings them together; who appends alone is never made to wait.
        """
        group: list[_Job] = []
        n_bytes, linger_until = 0, 0.0
        try:
            job = self._queue.get(block=not self._garbage)
            while job is not None:
                if job.future.set_running_or_notify_cancel():
                    group.append(job)
                n_bytes += job.n_bytes
                if n_bytes >= _GROUP_BYTES or len(group) >= _GROUP_JOBS:
                    return group, False
                if self._queue.empty() and len(group) < self._expected:
                    linger_until = linger_until or time.perf_counter() + self._linger_s
                    job = self._queue.get(timeout=max(0.0, linger_until - time.perf_counter()))
                else:
                    job = self._queue.get_nowait()
        except queue.Empty:
            return group, False
        return group, True

    def _swept(self, sweep: Future[bool]) -> None:
        # A sweep that failed is not repeated before there is new garbage: on a full disk it would never end.
        self._garbage |= sweep.exception() is None and sweep.result()

    def _commit(self, group: list[_Job]) -> None:
        """Do the jobs in one transaction and answer each; on an error, what the module's text says."""
        tx = Transaction(self._db, self._published, self.ids)
        changes = self._db.total_changes
        stage = "beginning"
        try:
            self._db.execute("BEGIN IMMEDIATE")
            stage = "writing"
            answers = [_attempt(job, tx) for job in group]
            stage = "committing"
            self._db.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - one job's fault must not end the thread that serves all
            self._roll_back()
            if len(group) > 1 and _is_divisible(stage, error):
                for job in group:
                    self._commit([job])
            else:
                for job in group:
                    job.future.set_exception(store_error(error, stage) if isinstance(error, sqlite3.Error) else error)
            return
        self.commits += self._db.total_changes > changes
        self._wal_bytes += sum(job.n_bytes + _JOB_BYTES for job in group)
        self._garbage |= tx.leaves_garbage
        self._published.publish(tx.streams, tx.touched)
        self._arrived = self._queue.qsize()  # before anybody is answered: none of these is of this group
        for job, (answer, refusal) in zip(group, answers, strict=True):
            if refusal is None:
                job.future.set_result(answer)
            else:
                job.future.set_exception(refusal)

    def _roll_back(self) -> None:
        if self._db.in_transaction:  # SQLite itself has ended it after some errors
            try:
                self._db.execute("ROLLBACK")
            except sqlite3.Error as error:
                _log.warning("a failed transaction could not be rolled back: %s", error)

    def _checkpoint_wal(self) -> None:
        self._wal_bytes = 0
        try:
            _, pages, _ = self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if pages * self._page_bytes > _WAL_LIMIT_BYTES:
                self._db.execute("PRAGMA wal_checkpoint(RESTART)")
        except sqlite3.Error as error:
            # Nothing is lost: what was committed is in the log, which grows until this works again.
            _log.warning("the write-ahead log could not be copied into the database: %s", error)


def _attempt(job: _Job, tx: Transaction) -> tuple[Any, ServiceError | None]:
    try:
        return job.work(tx), None
    except ServiceError as refusal:
        return None, refusal


def _is_divisible(stage: str, error: Exception) -> bool:
    full = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL
    return stage == "writing" or (stage == "committing" and full)
