"""Replica of a stream in a process that does not learn it: its board is filled with what the leader publishes."""

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np

from shoal.errors import SnapshotDamagedError
from shoal_service.errors import NotReadyError, ServiceError, StreamGoneError
from shoal_service.store import Checkpoint, PublishedHead, ReaderRequest, SharedStore, StreamRecord
from shoal_service.streams.board import Board, LearntLookup, busy, shielded
from shoal_service.streams.events import EventPlace, Feed, Trail, decode_trail
from shoal_service.streams.learner import resume, state_alone, view_of
from shoal_service.streams.learnt_rows import LEARNT, LearntRows
from shoal_service.streams.shared.view_codec import Head, LineageBlob, decode, head_from_bytes

SNAPSHOT_POLL_S = 0.05
"""Time between two looks for a checkpoint that was requested."""
REPEAT_S = 1.0
"""Time after which a request is repeated."""
STALLED_S = 3.0
"""A leader at work publishes a new view within this time."""


class ReplicaHost(Protocol):
    """Owner of the threads that update a replica and send its requests."""

    def update_soon(self, replica: "Replica") -> None:
        """Have a thread call `replica.update`."""

    def send(self, request: ReaderRequest) -> None:
        """Have a thread send a request to the leaders."""

    def drop(self, replica: "Replica") -> None:
        """Update it no more."""


@dataclass
class _Expected:
    """Learnt rows of an entry that requests wait for."""

    users: int = 0
    future: "Future[LearntRows | None]" = field(default_factory=Future)


class Replica:
    """A `ViewSource`. One thread at a time calls `update`; the event loop calls everything else."""

    def __init__(self, store: SharedStore, record: StreamRecord, host: ReplicaHost, events_kept: int) -> None:
        self.board = Board(on_wait=self._on_wait)
        self.feed = Feed(events_kept)
        """Events that leaders have published since this process first looked, and some before that."""
        self.failure: str | None = None
        """As `ViewSource.failure`: that of the last leader, until there is another."""
        self.gone = False
        """As `ViewSource.gone`."""
        self._store = store
        self.key = (record.name, record.incarnation)
        """Name and incarnation of the stream."""
        self._host = host
        self._head: bytes | None = None
        self._lineage: LineageBlob | None = None
        self._events_blob = ""  # the blob of the events that were read last
        self._trail = Trail(EventPlace(0, 0), [])  # those events
        self._dead_letters: dict[int, str] = {}
        self._lock = threading.Lock()
        self._expected: dict[int, _Expected] = {}
        self._requested_at = -float("inf")
        self._log_end, self._point_bytes = 0, 0.0
        self._view_at = -float("inf")

    @property
    def waiting_bytes(self) -> int:
        """As `ViewSource.waiting_bytes`: an estimate from the last batch accepted here.

        0 when the leader has published nothing new for `STALLED_S`: there may be none.
        """
        view = self.board.view
        if view is None or self.failure is not None or time.monotonic() - self._view_at > STALLED_S:
            return 0
        return int(max(0, self._log_end - view.log_offset) * self._point_bytes)

    def start(self) -> None:
        """As `ViewSource.start`."""
        if self.board.view is None:
            self._host.update_soon(self)

    def appended(self, log_offset: int, n_points: int, n_bytes: int) -> None:
        """As `ViewSource.appended`. The store tells the leader."""
        if n_points:
            self._log_end, self._point_bytes = log_offset, n_bytes / n_points

    def refusal(self, seq: int) -> str | None:
        """As `ViewSource.refusal`."""
        return self._dead_letters.get(seq)

    @contextmanager
    def expecting(self, seq: int) -> Iterator[LearntLookup]:
        """As `ViewSource.expecting`."""
        with self._lock:
            expected = self._expected.setdefault(seq, _Expected())
            expected.users += 1
        try:
            yield partial(self._wait_for_learnt, seq, expected)
        finally:
            with self._lock:
                expected.users -= 1
                if not expected.users:
                    self._expected.pop(seq, None)

    async def _wait_for_learnt(self, seq: int, expected: _Expected, timeout_s: float) -> LearntRows | None:
        if not expected.future.done():
            self._request(seq, 0)
        try:
            return await asyncio.wait_for(shielded(asyncio.wrap_future(expected.future)), timeout_s)
        except TimeoutError:
            return None

    async def snapshot(self, timeout_s: float) -> Checkpoint:
        """As `ViewSource.snapshot`: a checkpoint that the leader is asked to write, unless there is one."""
        least, until = self.board.seq, time.monotonic() + timeout_s
        requested = -float("inf")
        while time.monotonic() < until:
            found = await asyncio.to_thread(self._store.sharing.newest_checkpoint, *self.key, least)
            if found is not None:
                return state_alone(found)
            if time.monotonic() - requested > REPEAT_S:
                requested = time.monotonic()
                self._host.send(ReaderRequest(*self.key, least, 0, "state"))
            await asyncio.sleep(SNAPSHOT_POLL_S)
        raise busy(self.key[0], timeout_s)

    def finish(self, deadline: float) -> None:
        """As `ViewSource.finish`."""
        for each in (self.board, self.feed):
            each.fail(lambda: NotReadyError("the service is stopping; ask again when it runs"))
        self._host.drop(self)

    def abandon(self) -> None:
        """As `ViewSource.abandon`."""
        self._end()

    def join(self, timeout_s: float) -> bool:
        """As `ViewSource.join`."""
        return True

    @property
    def drained(self) -> bool:
        """As `ViewSource.drained`: another process applies the log."""
        return True

    # -- requests to the leader

    def _on_wait(self, seq: int, log_offset: int) -> None:
        self._request(seq, log_offset)
        if self.board.view is None:
            self._host.update_soon(self)

    def _request(self, seq: int, log_offset: int) -> None:
        what = "labels" if seq in self._expected else "view"
        self._host.send(ReaderRequest(*self.key, seq, log_offset, what))

    def _repeat_requests(self) -> None:
        """Repeat every open request: one may be lost, and a new leader has received none."""
        with self._lock:
            expected = [seq for seq, each in self._expected.items() if not each.future.done()]
        for seq, log_offset in {*self.board.waited_for(), *((seq, 0) for seq in expected)}:
            self._request(seq, log_offset)

    # -- updates, one thread at a time

    def outdated(self, head: PublishedHead) -> bool:
        """Whether an update is needed: for a new view, for one that is missing, or for requests that wait."""
        waits = bool(self._expected) or bool(self.board.waited_for())
        return waits or self.board.view is None or head.seq is None or head.head != self._head

    def update(self) -> None:
        """Read what is new in the store. Raises StoreError."""
        (head,) = self._store.sharing.published_heads([self.key])
        if head.seq is None:
            self._end()
            return
        if head.head is not None and head.head != self._head:
            self._read_view(head)
        elif self.board.view is None:
            self._read_checkpoint()
        self._read_learnt()
        if time.monotonic() - self._requested_at > REPEAT_S:
            self._requested_at = time.monotonic()
            self._repeat_requests()

    def _read_view(self, published: PublishedHead) -> None:
        known = [self._lineage.blob if self._lineage is not None else "", self._events_blob]
        found = self._store.sharing.fetch_view(*self.key, [blob for blob in known if blob])
        if found is None:
            return
        head = head_from_bytes(found.head)
        if head.dead_letters != len(self._dead_letters):
            self._dead_letters = self._store.dead_letter_reasons(*self.key)
        # A log that lost its end: the view that is known is of the lost part.
        lost = published.seq is not None and self.board.seq > published.seq
        if head.components and (head.seq >= self.board.seq or lost):
            view, self._lineage = decode(head, found.blobs, self._lineage, *self.key)
            self._read_learnt()  # before any request learns that its entry is seen
            self._set_failure(head.failure)
            self._read_events(head, found.blobs, lost)
            self.board.publish(view)
            self._view_at = time.monotonic()
        self._set_failure(head.failure)
        self._head = found.head

    def _read_events(self, head: Head, blobs: Mapping[str, bytes | None], lost: bool) -> None:
        """Follow the events up to the view. A view without new events has the blob of the one before."""
        if head.events and head.events != self._events_blob and (data := blobs[head.events]) is not None:
            self._events_blob, self._trail = head.events, decode_trail(data)
        if head.events and head.events == self._events_blob:
            self.feed.follow(head.seq, self._trail, lost_end=lost)

    def _set_failure(self, failure: str | None) -> None:
        if failure is not None and self.failure is None:
            self.board.fail(partial(_stopped, self.key[0], failure))
        elif failure is None and self.failure is not None:
            self.board.recover()
        self.failure = failure

    def _read_checkpoint(self) -> None:
        """Show the newest checkpoint, as long as no leader publishes a view."""
        checkpoint = self._store.sharing.newest_checkpoint(*self.key, 0)
        if checkpoint is None:
            return
        try:
            view = view_of(resume(state_alone(checkpoint)), *self.key)._replace(made_at=time.time())
        except SnapshotDamagedError:  # the leader reports it, and uses the older one
            return
        self.board.publish(view)

    def _read_learnt(self) -> None:
        with self._lock:
            waiting = {seq: e.future for seq, e in self._expected.items() if not e.future.done()}
        found = self._store.sharing.get_learnt_rows(*self.key, list(waiting))
        for future, rows in zip(waiting.values(), found, strict=True):
            if rows is not None and not future.done():
                future.set_result(np.frombuffer(rows, LEARNT) if rows else None)

    def _end(self) -> None:
        self.gone = True
        self.board.fail(partial(_ended, self.key[0]))
        self.feed.fail(partial(_ended, self.key[0]))
        self._host.drop(self)


def _stopped(name: str, failure: str) -> ServiceError:
    return NotReadyError(f"the learner of stream {name!r} has stopped ({failure}); another attempt follows soon")


def _ended(name: str) -> ServiceError:
    return StreamGoneError(f"stream {name!r} was deleted; create it again or name another")
