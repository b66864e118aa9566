"""Views of one stream, between their source and the requests that read them.

A `ViewSource` makes the views: the learner of this process, or a replica of a learner in another one. It puts them on
a `Board`. Request handlers on an event loop read the board at once, or wait there for a view that is recent enough.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias, TypeVar

from shoal_service.errors import NotReadyError, ServiceError
from shoal_service.store import Checkpoint
from shoal_service.streams.events import Feed
from shoal_service.streams.learnt_rows import LearntRows, RecentRows
from shoal_service.streams.view import PublishedView

T = TypeVar("T")

LearntLookup: TypeAlias = Callable[[float], Awaitable[LearntRows | None]]
"""Waits at most so many seconds for the learnt rows of an entry that readers see. None when they are not known."""


def shielded(work: "asyncio.Future[T]") -> "asyncio.Future[T]":
    """As `asyncio.shield`: the work continues when its waiter gives up. Then an error of it is not logged either."""
    work.add_done_callback(lambda done: done.cancelled() or done.exception())
    return asyncio.shield(work)


class ViewSource(Protocol):
    """Maker of the views of one stream, as a `Stream` uses it."""

    board: "Board"

    @property
    def feed(self) -> Feed:
        """The events of the stream."""

    @property
    def failure(self) -> str | None:
        """The reason why no new views come, or None."""

    @property
    def gone(self) -> bool:
        """Whether the stream is known to be deleted."""

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the log that are not learnt yet, as far as this process knows. 0 where no learner works on them."""

    def start(self) -> None:
        """Begin. Idempotent."""

    def appended(self, log_offset: int, n_points: int, n_bytes: int) -> None:
        """Report a new entry of the log: its size, and the offset that it ends at."""

    def refusal(self, seq: int) -> str | None:
        """The reason why an entry is a dead letter, or None. Known once a view that includes the entry is shown."""

    def expecting(self, seq: int) -> AbstractContextManager[LearntLookup]:
        """A context manager around a wait for an entry, which gives its `LearntLookup`."""

    async def snapshot(self, timeout_s: float) -> Checkpoint:
        """The state as the bytes of a snapshot file, as recent as the view shown. NotReadyError after the timeout."""

    def finish(self, deadline: float) -> None:
        """Apply what the log holds until `deadline` (monotonic clock) at most, then end."""

    def abandon(self) -> None:
        """End at once: the stream is deleted."""

    def join(self, timeout_s: float) -> bool:
        """Wait for the end. True when it has ended."""

    @property
    def drained(self) -> bool:
        """Whether it has ended without leaving any part of the log that it should apply itself."""


def busy(name: str, timeout_s: float) -> NotReadyError:
    """The error for a snapshot that was not ready in time."""
    return NotReadyError(f"stream {name!r} is busy; no snapshot within {timeout_s:g} s, ask again")


class _Waiter:
    """A request that waits for a view."""

    def __init__(self, seq: int, log_offset: int) -> None:
        self.seq = seq
        self.log_offset = log_offset
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[PublishedView] = self._loop.create_future()

    def met_by(self, seq: int, log_offset: int) -> bool:
        return self.seq <= seq and self.log_offset <= log_offset

    def resolve(self, view: PublishedView) -> None:
        self._call(lambda: self.future.set_result(view))

    def fail(self, error: ServiceError) -> None:
        self._call(lambda: self.future.set_exception(error))

    def _call(self, settle: Callable[[], None]) -> None:
        def once() -> None:
            if not self.future.done():
                settle()

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(once)


VIEWS_PREPARED = 100
"""Views after a reader that are prepared for the next one. Those of a stream that nobody reads are not: of many streams
few have readers, and a view is made for each small batch."""


class Board:
    """The last view of one stream, the learnt rows of its recent entries, and the requests that wait for more.

    One thread writes. Any thread reads.
    """

    def __init__(self, on_wait: Callable[[int, int], None] = lambda seq, log_offset: None) -> None:
        """`on_wait` is called on the event loop with the entry and the offset of each wait that begins."""
        self._lock = threading.Lock()
        self._view: PublishedView | None = None
        self._waiters: list[_Waiter] = []
        self._learnt = RecentRows()
        self._failure: Callable[[], ServiceError] | None = None
        self._on_wait = on_wait
        self._seen, self._replay_until = -1, 0.0
        self._unread = VIEWS_PREPARED  # views since a reader came

    @property
    def view(self) -> PublishedView | None:
        """The last published view. None before the first."""
        return self._view

    @property
    def seq(self) -> int:
        """The last entry of that view. -1 before the first."""
        return -1 if self._view is None else self._view.seq

    @property
    def replaying(self) -> bool:
        """Whether the view shown is older than what readers may have seen before a restart, and a wait is worth it."""
        return self.seq < self._seen and time.monotonic() < self._replay_until

    def expect(self, seq: int, until: float) -> None:
        """Announce that entry `seq` is replayed. Until then, or that time (monotonic clock), requests wait for it."""
        self._seen, self._replay_until = seq, until

    def publish(self, view: PublishedView) -> None:
        """Show a view, and release the requests that waited for it."""
        if self._unread < VIEWS_PREPARED:
            view.prepare()
            self._unread += 1
        with self._lock:
            self._view = view
            met = [] if self.replaying else [w for w in self._waiters if w.met_by(view.seq, view.log_offset)]
            self._waiters = [w for w in self._waiters if w not in met]
        for waiter in met:
            waiter.resolve(view)

    def note_reader(self) -> None:
        """Prepare the next views for predictions: somebody reads this stream."""
        self._unread = 0

    def withdraw(self) -> None:
        """Show no view until the next `publish`, and keep no learnt rows."""
        with self._lock:
            self._view = None
            self._learnt.clear()

    def wanted(self, seq: int, log_offset: int) -> bool:
        """Whether a request waits for a view that a publication at this entry would give."""
        if self.replaying and seq < self._seen:
            return False
        return any(w.met_by(seq, log_offset) for w in tuple(self._waiters))

    def waited_for(self) -> list[tuple[int, int]]:
        """Entry and offset of each wait."""
        return [(w.seq, w.log_offset) for w in tuple(self._waiters)]

    def keep_learnt(self, seq: int, rows: LearntRows) -> None:
        """As `RecentRows.add`."""
        with self._lock:
            self._learnt.add(seq, rows)

    def learnt(self, seq: int) -> LearntRows | None:
        """As `RecentRows.get`."""
        with self._lock:
            return self._learnt.get(seq)

    def fail(self, failure: Callable[[], ServiceError]) -> None:
        """Announce that no view will follow. Every wait, now or later, gets a fresh error from `failure`."""
        with self._lock:
            self._failure = self._failure or failure  # the first reason is the cause
            waiters, self._waiters = self._waiters, []
            view, reason = self._view, self._failure
        for waiter in waiters:
            if view is not None and waiter.met_by(view.seq, view.log_offset):  # it waited for a replay
                waiter.resolve(view)
            else:
                waiter.fail(reason())

    def recover(self) -> None:
        """Withdraw a failure: views follow again."""
        with self._lock:
            self._failure = None

    async def wait(self, *, seq: int = 0, log_offset: int = 0, timeout_s: float) -> PublishedView:
        """The first view that includes entry `seq` and `log_offset` points. TimeoutError when none came in time.

        During a replay it is the first one behind it, or the view shown where the replay takes longer.
        """
        waiter = _Waiter(seq, log_offset)
        with self._lock:
            shown = self._view is not None and waiter.met_by(self._view.seq, self._view.log_offset)
            replaying = self.replaying and self._failure is None
            if self._view is not None and shown and not replaying:
                return self._view
            if self._failure is not None:
                raise self._failure()
            self._waiters.append(waiter)
        self._on_wait(seq, log_offset)
        try:
            left_s = self._replay_until - time.monotonic()
            return await asyncio.wait_for(waiter.future, min(timeout_s, left_s) if shown else timeout_s)
        except TimeoutError:
            view = self._view
            if view is not None and waiter.met_by(view.seq, view.log_offset):
                return view
            raise
        finally:
            with self._lock:
                self._waiters = [w for w in self._waiters if w is not waiter]
