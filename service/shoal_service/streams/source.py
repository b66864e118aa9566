"""Where a stream's views come from: its learner in this process, or what a learner anywhere shows to all processes."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from shoal.points.arrays import IntArray
from shoal_service.errors import NotReadyError, StoreError
from shoal_service.settings import Settings
from shoal_service.store import Checkpoint, Store, StreamRecord, Tail
from shoal_service.streams.events import Feed
from shoal_service.streams.learner import Learner
from shoal_service.streams.published import Board

Labels = Callable[[float], Awaitable[IntArray | None]]
"""Waits so many seconds at most for the labels of an entry that readers see; None when they are not known."""


class Source(Protocol):
    """What a `Stream` needs of whoever makes its views."""

    board: Board

    @property
    def feed(self) -> Feed:
        """The events of the stream."""

    @property
    def failure(self) -> str | None:
        """Why no new views come, if they do not."""

    @property
    def gone(self) -> bool:
        """Whether the stream is known to have ended."""

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the log that wait to be learnt, as far as this process knows; 0 where nobody works on them."""

    def start(self) -> None:
        """Begin, unless it has begun."""

    def appended(self, log_offset: int, n_points: int, n_bytes: int) -> None:
        """Say that there is something new in the log: so many points and bytes, up to this offset."""

    def refusal(self, seq: int) -> str | None:
        """Why an entry is a dead letter, if it is one. Known as soon as a view that passes it over is shown."""

    def expecting(self, seq: int) -> Any:
        """A context manager around a wait for an entry, which gives `Labels`."""

    async def snapshot(self, timeout_s: float) -> Checkpoint:
        """The state as the bytes of a snapshot file, as new as the view that is shown. NotReadyError in time."""

    def finish(self, deadline: float) -> None:
        """Apply what the log holds until `deadline` (monotonic) at most, and end."""

    def abandon(self) -> None:
        """End at once: the stream has ended."""

    def join(self, timeout_s: float) -> bool:
        """Wait for the end; True when it has come."""

    @property
    def drained(self) -> bool:
        """Whether it has ended without leaving anything of the log to be applied by itself."""


class OwnLearner:
    """The source of a stream that is learnt in this process, over a store that no other process uses."""

    def __init__(
        self,
        store: Store,
        record: StreamRecord,
        settings: Settings,
        log: Any,
        nudge_refiner: Callable[[], None] = lambda: None,
    ) -> None:
        self.board = Board(on_wait=lambda seq, log_offset: self.learner.poke())
        self.learner = Learner(store, record, settings, log, notice=self.board, nudge_refiner=nudge_refiner)
        self._name = record.name
        self._tail: Callable[[], Tail] = lambda: store.tail(record.name, record.incarnation)

    @property
    def feed(self) -> Feed:
        """See `Source`."""
        return self.learner.feed

    @property
    def failure(self) -> str | None:
        """See `Source`."""
        return self.learner.failure

    @property
    def gone(self) -> bool:
        """See `Source`: a learner that finds its stream gone says so to who waits, and reads go on."""
        return False

    @property
    def waiting_bytes(self) -> int:
        """See `Source`; such a store knows without looking."""
        try:
            return 0 if self.failure is not None else self._tail().unapplied_bytes
        except StoreError:  # what comes next says so
            return 0

    def start(self) -> None:
        """See `Source`."""
        self.learner.start()

    def appended(self, log_offset: int, n_points: int, n_bytes: int) -> None:
        """See `Source`."""
        self.learner.start()
        self.learner.poke()

    def refusal(self, seq: int) -> str | None:
        """See `Source`."""
        return self.learner.refusal(seq)

    @contextmanager
    def expecting(self, seq: int) -> Iterator[Labels]:
        """See `Source`: the board keeps the labels of recent entries anyway."""

        async def labels(timeout_s: float) -> IntArray | None:
            return self.board.labels(seq)

        yield labels

    async def snapshot(self, timeout_s: float) -> Checkpoint:
        """See `Source`."""
        try:
            return await asyncio.wait_for(asyncio.wrap_future(self.learner.snapshot()), timeout_s)
        except TimeoutError:
            raise busy(self._name, timeout_s) from None

    def finish(self, deadline: float) -> None:
        """See `Source`."""
        self.learner.finish(deadline)

    def abandon(self) -> None:
        """See `Source`."""
        self.learner.abandon()

    def join(self, timeout_s: float) -> bool:
        """See `Source`."""
        return self.learner.join(timeout_s)

    @property
    def drained(self) -> bool:
        """See `Source`."""
        return self.learner.drained


def busy(name: str, timeout_s: float) -> NotReadyError:
    """The error for a snapshot that did not come in time."""
    return NotReadyError(f"stream {name!r} is busy; no snapshot within {timeout_s:g} s, ask again")
