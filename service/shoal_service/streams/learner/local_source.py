"""Source of the views of a stream that is learnt in this process, over a store that no other process uses."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from shoal_service.errors import StoreError
from shoal_service.settings import Settings
from shoal_service.store import Checkpoint, Store, StreamRecord, Tail
from shoal_service.streams.board import Board, LearntLookup, busy
from shoal_service.streams.events import Feed
from shoal_service.streams.learner.pool import LearnerPool
from shoal_service.streams.learner.thread import Learner
from shoal_service.streams.learnt_rows import LearntRows
from shoal_service.streams.view import Summary, summary_of


class LocalSource:
    """A `ViewSource`: one learner and the board that it publishes on."""

    def __init__(
        self,
        store: Store,
        record: StreamRecord,
        settings: Settings,
        log: Any,
        notify_refiner: Callable[[], None] = lambda: None,
        pool: LearnerPool | None = None,
    ) -> None:
        self.board = Board(on_wait=lambda seq, log_offset: self.learner.wake())
        self.learner = Learner(
            store,
            record,
            settings,
            log,
            sink=self.board,
            notify_refiner=notify_refiner,
            pool=LearnerPool() if pool is None else pool,
            on_rest=self._rest,
        )
        self.last: Summary | None = None
        """What the last view said, while the stream is not in memory because nobody uses it."""
        self._name = record.name
        self._tail: Callable[[], Tail] = lambda: store.tail(record.name, record.incarnation)

    def _rest(self) -> None:
        view = self.board.view
        self.last = None if view is None else summary_of(view)
        self.board.withdraw()

    @property
    def feed(self) -> Feed:
        """As `ViewSource.feed`."""
        return self.learner.feed

    @property
    def failure(self) -> str | None:
        """As `ViewSource.failure`."""
        return self.learner.failure

    @property
    def gone(self) -> bool:
        """As `ViewSource.gone`. Always False: a learner whose stream was deleted fails the requests that wait."""
        return False

    @property
    def waiting_bytes(self) -> int:
        """As `ViewSource.waiting_bytes`. A store of this process answers without a wait."""
        try:
            return 0 if self.failure is not None else self._tail().unapplied_bytes
        except StoreError:  # the next call of the store raises it to the request
            return 0

    def start(self) -> None:
        """As `ViewSource.start`."""
        self.learner.start()

    def appended(self, log_offset: int, n_points: int, n_bytes: int) -> None:
        """As `ViewSource.appended`. The store itself has announced the entry to a learner that has begun."""
        self.learner.start()

    def refusal(self, seq: int) -> str | None:
        """As `ViewSource.refusal`."""
        return self.learner.refusal(seq)

    @contextmanager
    def expecting(self, seq: int) -> Iterator[LearntLookup]:
        """As `ViewSource.expecting`. The board keeps the rows of recent entries in any case."""

        async def learnt(timeout_s: float) -> LearntRows | None:
            return self.board.learnt(seq)

        yield learnt

    async def snapshot(self, timeout_s: float) -> Checkpoint:
        """As `ViewSource.snapshot`."""
        try:
            return await asyncio.wait_for(asyncio.wrap_future(self.learner.snapshot()), timeout_s)
        except TimeoutError:
            raise busy(self._name, timeout_s) from None

    def finish(self, deadline: float) -> None:
        """As `ViewSource.finish`."""
        self.learner.finish(deadline)

    def abandon(self) -> None:
        """As `ViewSource.abandon`."""
        self.learner.abandon()

    def join(self, timeout_s: float) -> bool:
        """As `ViewSource.join`."""
        return self.learner.join(timeout_s)

    @property
    def drained(self) -> bool:
        """As `ViewSource.drained`."""
        return self.learner.drained or (not self.learner.begun and not self.waiting_bytes)
