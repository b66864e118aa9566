"""The streams that this process learns, out of those that several processes share: by lease, one leader a stream.

One thread looks after the leases: it renews those held, takes those that nobody holds, and lets go of a stream whose
learner has stopped, so that another process can try. A lease only says who tries. A leader that was held up past its
lease finds at its next write or renewal that the epoch is another's: its learner ends without writing anything, and the
process stands by again.
"""

import os
import queue
import socket
import threading
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from shoal_service.errors import (
    NotReadyError,
    StaleWriterError,
    StoreError,
    StoreUnavailableError,
    StreamGoneError,
    UnknownStreamError,
)
from shoal_service.settings import Settings
from shoal_service.store import Checkpoint, ReaderRequest, SharedStore, StreamRecord
from shoal_service.streams.learner import Learner
from shoal_service.streams.showing import Showing

BEATS_A_LEASE = 4
"""Looks within the life of a lease: a renewal may fail twice before it runs out."""
PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""How long a stream whose learner has stopped is left to others; it doubles with each stop in a row."""
STATE_TIMEOUT_S = 60.0
"""How long a refinement waits for the state of a learner that is busy."""
STEADY_S = 60.0
"""A learner that ran for so long did well: the next stop is the first of a row again."""


class _Led(NamedTuple):
    record: StreamRecord
    epoch: int
    learner: Learner
    showing: Showing
    since: float


class _Rest(NamedTuple):
    """A stream that is left alone after its learner has stopped."""

    until: float
    pause_s: float


class Leading:
    """Looks after the leases between `start` and `close`; both block, and `start` asks nothing of the store."""

    def __init__(
        self, store: SharedStore, settings: Settings, log: Any, nudge_refiner: Callable[[str, str], None]
    ) -> None:
        """`nudge_refiner(name, incarnation)` says that there may be a refinement to be made for a stream led here."""
        self._store = store
        self._settings = settings
        self._log = log
        self._nudge_refiner = nudge_refiner
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        """How this process is called in its leases."""
        self._led: dict[tuple[str, str], _Led] = {}
        self._resting: dict[tuple[str, str], _Rest] = {}
        self._wants: queue.SimpleQueue[ReaderRequest | None] = queue.SimpleQueue()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name="shoal-leases", daemon=True),
            threading.Thread(target=self._answer, name="shoal-wants", daemon=True),
        ]

    @property
    def learners(self) -> dict[str, Learner]:
        """The learners of this process, by stream."""
        return {led.record.name: led.learner for led in tuple(self._led.values())}

    def state_of(self, name: str, incarnation: str) -> Checkpoint:
        """The state of a stream that is led here, as a refinement begins with. Blocks: for no event loop.

        Raises NotReadyError.
        """
        led = self._led.get((name, incarnation))
        if led is None:
            raise NotReadyError(f"stream {name!r} is not learnt by this process")
        try:
            return led.learner.snapshot().result(STATE_TIMEOUT_S)
        except TimeoutError:
            raise NotReadyError(f"stream {name!r} is busy: no state of it within {STATE_TIMEOUT_S:g} s") from None

    def start(self) -> None:
        """Begin to look after the leases."""
        for thread in self._threads:
            thread.start()
        self._store.sharing.on_request(self._hear)

    def stop_taking(self) -> None:
        """Take no further stream. Safe in a signal handler."""
        self._stopping.set()

    def check(self) -> None:
        """Raise NotReadyError when the process is stopping, or does not look after its leases."""
        if self._stopping.is_set():
            raise NotReadyError("the service is stopping")
        if not all(thread.is_alive() for thread in self._threads):
            raise NotReadyError("the leases are not looked after; see the service's log, and start it anew")

    def close(self, timeout_s: float) -> bool:
        """End the learners between two entries, each with a checkpoint, and give the leases up.

        What waits in their logs is left to whoever leads next. True when all ended within the time.
        """
        began = time.monotonic()
        self._stopping.set()
        self._wake.set()
        self._wants.put(None)
        for thread in self._threads:
            thread.join(timeout_s)
        led = tuple(self._led.values())
        for each in led:
            each.learner.finish(began)
        ended = [each.learner.join(began + timeout_s - time.monotonic()) for each in led]
        for each in led:
            self._resign(each)
        return all(ended)

    @property
    def drained(self) -> bool:
        """After `close`: whether nothing is left to apply in the logs of streams that were led here."""
        return all(learner.drained for learner in self.learners.values())

    def _hear(self, want: ReaderRequest | None) -> None:
        if want is None:
            self._wake.set()
        else:
            self._wants.put(want)

    # -- the thread of the leases

    def _run(self) -> None:
        beat_s = self._settings.lease_s / BEATS_A_LEASE
        while not self._stopping.is_set():
            try:
                self._look()
            except StoreUnavailableError as error:
                self._log.warning("leases_unseen", reason=str(error))
            except Exception:  # noqa: BLE001 - without this thread nothing is learnt: it goes on, and says what happened
                self._log.error("leases_failed", exc_info=True)
            self._wake.wait(beat_s)
            self._wake.clear()

    def _look(self) -> None:
        for led in tuple(self._led.values()):
            if led.learner.join(0.0):
                self._let_go(led)
            else:
                self._renew(led)
        records = self._store.list_streams()
        now = time.monotonic()
        open_ = [r for r in records if _key(r) not in self._led and self._rested(_key(r), now)]
        for record in self._store.sharing.without_leader(open_):
            if not self._stopping.is_set():
                self._lead(record)
        there = {_key(record) for record in records}
        self._resting = {key: rest for key, rest in self._resting.items() if key in there}

    def _rested(self, key: tuple[str, str], now: float) -> bool:
        return key not in self._resting or self._resting[key].until <= now

    def _lead(self, record: StreamRecord) -> None:
        try:
            epoch = self._store.sharing.acquire_lease(*_key(record), self.owner, self._settings.lease_s)
        except (StreamGoneError, UnknownStreamError):
            return
        if epoch is None:
            return
        showing = Showing(self._store.sharing, record, epoch, self._log)
        nudge = partial(self._nudge_refiner, *_key(record))
        learner = Learner(
            self._store, record, self._settings, self._log, notice=showing, epoch=epoch, nudge_refiner=nudge
        )
        showing.feed = learner.feed
        self._led[_key(record)] = _Led(record, epoch, learner, showing, time.monotonic())
        self._log.info("leading", stream=record.name, epoch=epoch)
        learner.start()
        nudge()

    def _renew(self, led: _Led) -> None:
        try:
            shown = self._store.sharing.renew_lease(*_key(led.record), self.owner, led.epoch, self._settings.lease_s)
        except StaleWriterError as error:
            self._log.warning("stepping_down", stream=led.record.name, epoch=led.epoch, reason=str(error))
            led.learner.abandon()
        except (StreamGoneError, UnknownStreamError):
            led.learner.abandon()
        else:
            if not led.showing.held(shown):
                led.learner.poke()

    def _let_go(self, led: _Led) -> None:
        """A learner has ended: its stream has, or another leads it, or it failed, and others may try."""
        key = _key(led.record)
        del self._led[key]
        if led.learner.superseded or led.learner.failure is None:
            return
        led.showing.tell_failure(led.learner.failure)
        before = self._resting.get(key)
        steady = time.monotonic() - led.since > STEADY_S
        pause_s = PAUSE_S if before is None or steady else min(2 * before.pause_s, LONGEST_PAUSE_S)
        self._resting[key] = _Rest(time.monotonic() + pause_s, pause_s)
        self._resign(led)

    def _resign(self, led: _Led) -> None:
        try:
            self._store.sharing.release_lease(*_key(led.record), self.owner)
        except StoreError as error:  # it runs out by itself
            self._log.warning("lease_not_given_up", stream=led.record.name, reason=str(error))

    # -- the thread that answers readers

    def _answer(self) -> None:
        while (want := self._wants.get()) is not None:
            led = self._led.get((want.name, want.incarnation))
            if led is None:
                continue
            try:
                if want.what == "refine":
                    self._nudge_refiner(want.name, want.incarnation)
                elif want.what == "state":
                    led.learner.checkpoint_soon()
                else:
                    led.showing.hear(want, led.learner.reached)
                    led.learner.poke()
            except StoreError as error:  # no longer the leader; who is will hear it again
                self._log.warning("want_unanswered", stream=want.name, reason=str(error))


def _key(record: StreamRecord) -> tuple[str, str]:
    return record.name, record.incarnation
