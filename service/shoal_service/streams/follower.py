"""One stream as a process shows it that does not learn it: the board is filled from what its leader shows to all."""

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from shoal.errors import SnapshotDamagedError
from shoal.points.arrays import IntArray
from shoal_service.errors import NotReadyError, ServiceError, StreamGoneError
from shoal_service.store import Checkpoint, PublishedHead, ReaderRequest, SharedStore, StreamRecord
from shoal_service.streams.applying import resume, view_of
from shoal_service.streams.envelope import opened, trail_from_bytes
from shoal_service.streams.events import Feed
from shoal_service.streams.published import Board
from shoal_service.streams.source import Labels, busy
from shoal_service.streams.view_codec import Head, Past, decode, head_from_bytes

if TYPE_CHECKING:
    from shoal_service.streams.following import Following

STATE_LOOK_S = 0.05
"""Pause between two looks for a checkpoint that was asked for."""


ASK_AGAIN_S = 1.0
"""After so long a wish is repeated."""

STALLED_S = 3.0
"""Longer than a leader at work takes from one view to the next."""


@dataclass
class _Expected:
    """Labels that requests wait for."""

    users: int = 0
    future: "Future[IntArray | None]" = field(default_factory=Future)


class Follower:
    """A `Source`. `look` is called by one thread at a time; everything else by the event loop."""

    def __init__(self, store: SharedStore, record: StreamRecord, following: "Following", events_kept: int) -> None:
        self.board = Board(on_wait=self._awaited)
        self.feed = Feed(events_kept)
        """What leaders have shown of the stream's events since this process first looked, and some before that."""
        self.failure: str | None = None
        """See `Source`: that of the stream's last leader, until there is another."""
        self.gone = False
        """See `Source`."""
        self._store = store
        self._key = (record.name, record.incarnation)
        self._following = following
        self._head: bytes | None = None
        self._past: Past | None = None
        self._told = ""  # the blob of the events that were read last
        self._letters: dict[int, str] = {}
        self._lock = threading.Lock()
        self._expected: dict[int, _Expected] = {}
        self._asked_at = -float("inf")
        self._log_end, self._point_bytes = 0, 0.0
        self._moved_at = -float("inf")

    @property
    def waiting_bytes(self) -> int:
        """See `Source`: what the view lacks of the points up to the last batch taken here, each as long as those of it.

        A leader that has shown nothing new for `STALLED_S` may be none.
        """
        view = self.board.view
        if view is None or self.failure is not None or time.monotonic() - self._moved_at > STALLED_S:
            return 0
        return int(max(0, self._log_end - view.log_offset) * self._point_bytes)

    def start(self) -> None:
        """See `Source`."""
        if self.board.view is None:
            self._following.look(self)

    def appended(self, log_offset: int, n_points: int, n_bytes: int) -> None:
        """See `Source`: the leader hears of it from the store."""
        if n_points:
            self._log_end, self._point_bytes = log_offset, n_bytes / n_points

    def refusal(self, seq: int) -> str | None:
        """See `Source`."""
        return self._letters.get(seq)

    @contextmanager
    def expecting(self, seq: int) -> Iterator[Labels]:
        """See `Source`."""
        with self._lock:
            expected = self._expected.setdefault(seq, _Expected())
            expected.users += 1
        try:
            yield partial(self._labels, seq, expected)
        finally:
            with self._lock:
                expected.users -= 1
                if not expected.users:
                    self._expected.pop(seq, None)

    async def _labels(self, seq: int, expected: _Expected, timeout_s: float) -> IntArray | None:
        if not expected.future.done():
            self._ask(seq, 0)
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(expected.future)), timeout_s)
        except TimeoutError:
            return None

    async def snapshot(self, timeout_s: float) -> Checkpoint:
        """See `Source`: a checkpoint that the leader is asked to write, unless there is one."""
        least, until = self.board.seq, time.monotonic() + timeout_s
        asked = -float("inf")
        while time.monotonic() < until:
            found = await asyncio.to_thread(self._store.sharing.newest_checkpoint, *self._key, least)
            if found is not None:
                return found._replace(blob=opened(found.blob)[0])
            if time.monotonic() - asked > ASK_AGAIN_S:
                asked = time.monotonic()
                self._following.ask(ReaderRequest(*self._key, least, 0, "state"))
            await asyncio.sleep(STATE_LOOK_S)
        raise busy(self._key[0], timeout_s)

    def finish(self, deadline: float) -> None:
        """See `Source`."""
        for each in (self.board, self.feed):
            each.fail(lambda: NotReadyError("the service is stopping; ask again when it runs"))
        self._following.drop(self)

    def abandon(self) -> None:
        """See `Source`."""
        self._end()

    def join(self, timeout_s: float) -> bool:
        """See `Source`."""
        return True

    @property
    def drained(self) -> bool:
        """See `Source`: the log is another's to apply."""
        return True

    # -- wishes

    def _awaited(self, seq: int, log_offset: int) -> None:
        self._ask(seq, log_offset)
        if self.board.view is None:
            self._following.look(self)

    def _ask(self, seq: int, log_offset: int) -> None:
        what = "labels" if seq in self._expected else "view"
        want = ReaderRequest(*self._key, seq, log_offset, what)
        self._following.ask(want)

    def _ask_again(self) -> None:
        """Whatever is still waited for: wishes get lost, and a new leader has heard none."""
        with self._lock:
            labels = [seq for seq, expected in self._expected.items() if not expected.future.done()]
        wants = {*self.board.waited_for(), *((seq, 0) for seq in labels)}
        for seq, log_offset in wants:
            self._ask(seq, log_offset)

    # -- looking, one thread at a time

    def look(self) -> None:
        """See what is new. Raises StoreError."""
        (look,) = self._store.sharing.published_heads([self._key])
        if look.seq is None:
            self._end()
            return
        if look.head is not None and look.head != self._head:
            self._take_view(look)
        elif self.board.view is None:
            self._take_checkpoint()
        self._take_labels()
        if time.monotonic() - self._asked_at > ASK_AGAIN_S:
            self._asked_at = time.monotonic()
            self._ask_again()

    def _take_view(self, look: PublishedHead) -> None:
        have = [blob for blob in (self._past.blob if self._past is not None else "", self._told) if blob]
        found = self._store.sharing.fetch_view(*self._key, have)
        if found is None:
            return
        head = head_from_bytes(found.head)
        if head.letters != len(self._letters):
            self._letters = self._store.dead_letter_reasons(*self._key)
        lost = look.seq is not None and self.board.seq > look.seq  # the log lost its end: the view was of that
        if head.live and (head.seq >= self.board.seq or lost):
            view, self._past = decode(head, found.blobs, self._past, *self._key)
            self._take_labels()  # before anybody is told that their entry is seen
            self._recovered(head.failure)
            self._take_events(head, found.blobs, lost)
            self.board.publish(view)
            self._moved_at = time.monotonic()
        self._recovered(head.failure)
        self._head = found.head

    def _take_events(self, head: Head, blobs: Mapping[str, bytes | None], lost: bool) -> None:
        if head.events and head.events != self._told and (data := blobs[head.events]) is not None:
            self.feed.follow(head.seq, trail_from_bytes(data), anew=lost)
            self._told = head.events

    def _recovered(self, failure: str | None) -> None:
        if failure is not None and self.failure is None:
            self.board.fail(partial(_stopped, self._key[0], failure))
        elif failure is None and self.failure is not None:
            self.board.recover()
        self.failure = failure

    def _take_checkpoint(self) -> None:
        """What there is when no leader shows anything: better than nothing until one does."""
        checkpoint = self._store.sharing.newest_checkpoint(*self._key, 0)
        if checkpoint is None:
            return
        try:
            view = view_of(resume(checkpoint._replace(blob=opened(checkpoint.blob)[0])), *self._key)
        except SnapshotDamagedError:  # the leader says so, and takes the older one
            return
        self.board.publish(view)

    def _take_labels(self) -> None:
        with self._lock:
            waiting = {seq: e.future for seq, e in self._expected.items() if not e.future.done()}
        found = self._store.sharing.get_labels(*self._key, list(waiting))
        for future, labels in zip(waiting.values(), found, strict=True):
            if labels is not None and not future.done():
                future.set_result(np.frombuffer(labels, dtype="<i8").astype(np.int64) if labels else None)

    def _end(self) -> None:
        self.gone = True
        self.board.fail(partial(_ended, self._key[0]))
        self.feed.fail(partial(_ended, self._key[0]))
        self._following.drop(self)


def _stopped(name: str, failure: str) -> ServiceError:
    return NotReadyError(f"the learner of stream {name!r} has stopped ({failure}); another try is made soon")


def _ended(name: str) -> ServiceError:
    return StreamGoneError(f"stream {name!r} was deleted; create it again or name another")
