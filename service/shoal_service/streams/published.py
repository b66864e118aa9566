"""What a learner shows to the world: its last view, and the labels of its recent entries.

One thread (the learner) writes; request handlers on an event loop read at once, or wait for a view that is far enough.
"""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from shoal.points.arrays import IntArray
from shoal_service.errors import ServiceError

if TYPE_CHECKING:
    from shoal.mixture import MixtureSnapshot

LABELS_KEPT = 262_144
"""Labels of recent entries kept for `wait=applied`; the newest entry's are kept whatever their number."""


class PublishedView(NamedTuple):
    """A stream as readers see it, as of one entry of its log."""

    stream: str
    incarnation: str
    """Empty for the stream `default` before its first points."""
    seq: int
    """The last entry that the view holds."""
    log_offset: int
    """Points in the log up to and including that entry. Never falls within an incarnation."""
    points_seen: int
    """Points that the state itself has taken in: less than `log_offset` by dead letters, and other after a restore."""
    status: str
    snapshot: "MixtureSnapshot | None"
    """None before the first points of the stream `default`."""
    letters: int = 0
    """Dead letters of the stream so far."""

    @property
    def etag(self) -> str:
        """Strong entity tag: equal only for the same entry of the same incarnation."""
        return f'"{self.incarnation}.{self.seq}"'

    def prepare(self) -> None:
        """Work out what the first reader would have to wait for."""
        if self.snapshot is not None and self.snapshot.n_components:
            self.snapshot.predict(self.snapshot.settings.domain.example(self.snapshot.location))


class _Waiter:
    """One request that waits for a view."""

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


class Board:
    """The notice board of one stream."""

    def __init__(self, on_wait: Callable[[int, int], None] = lambda seq, log_offset: None) -> None:
        """`on_wait` hears of each wait that begins, on the event loop."""
        self._lock = threading.Lock()
        self._view: PublishedView | None = None
        self._waiters: list[_Waiter] = []
        self._labels: OrderedDict[int, IntArray] = OrderedDict()
        self._n_labels = 0
        self._failure: Callable[[], ServiceError] | None = None
        self._on_wait = on_wait

    @property
    def view(self) -> PublishedView | None:
        """The last view published, or None before the first."""
        return self._view

    @property
    def seq(self) -> int:
        """The last entry of that view; -1 before the first."""
        return -1 if self._view is None else self._view.seq

    def publish(self, view: PublishedView) -> None:
        """Show a view, and release whoever waited for one as far as this. Called by one thread alone."""
        view.prepare()
        with self._lock:
            self._view = view
            met = [w for w in self._waiters if w.met_by(view.seq, view.log_offset)]
            self._waiters = [w for w in self._waiters if w not in met]
        for waiter in met:
            waiter.resolve(view)

    def wanted(self, seq: int, log_offset: int) -> bool:
        """Whether somebody waits for a view that a publication as of this entry would give."""
        return any(w.met_by(seq, log_offset) for w in tuple(self._waiters))

    def waited_for(self) -> list[tuple[int, int]]:
        """Entry and offset of each wait."""
        return [(w.seq, w.log_offset) for w in tuple(self._waiters)]

    def keep_labels(self, seq: int, labels: IntArray) -> None:
        """Keep the ids (N,) given to an entry's points; the oldest entries give way beyond `LABELS_KEPT` labels."""
        with self._lock:
            self._forget(seq)
            self._labels[seq] = labels
            self._n_labels += len(labels)
            while len(self._labels) > 1 and self._n_labels > LABELS_KEPT:
                self._forget(next(iter(self._labels)))

    def _forget(self, seq: int) -> None:
        self._n_labels -= len(self._labels.pop(seq, ()))

    def labels(self, seq: int) -> IntArray | None:
        """The ids given to an entry's points, or None when they are not known yet, or no longer."""
        with self._lock:
            return self._labels.get(seq)

    def fail(self, failure: Callable[[], ServiceError]) -> None:
        """No view will follow: whoever waits, now or later, gets a fresh error from `failure`."""
        with self._lock:
            self._failure = self._failure or failure  # the first reason is the true one
            waiters, self._waiters = self._waiters, []
            reason = self._failure
        for waiter in waiters:
            waiter.fail(reason())

    def recover(self) -> None:
        """Views will follow after all: take a failure back."""
        with self._lock:
            self._failure = None

    async def wait(self, *, seq: int = 0, log_offset: int = 0, timeout_s: float) -> PublishedView:
        """The first view that holds entry `seq` and `log_offset` points. TimeoutError when none came in time."""
        with self._lock:
            if self._view is not None and self._view.seq >= seq and self._view.log_offset >= log_offset:
                return self._view
            if self._failure is not None:
                raise self._failure()
            waiter = _Waiter(seq, log_offset)
            self._waiters.append(waiter)
        self._on_wait(seq, log_offset)
        try:
            return await asyncio.wait_for(waiter.future, timeout_s)
        finally:
            with self._lock:
                self._waiters = [w for w in self._waiters if w is not waiter]
