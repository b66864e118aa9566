"""Leases of the streams that this process learns, out of those that several processes share: one leader a stream.

One thread works in rounds. A round renews all leases of this process in one exchange, and takes streams that no
process leads. It releases the lease of a stream whose learner has stopped, so that another process can try. A lease
only elects. A leader that was held up past its lease finds at its next write or renewal that another process has a
later epoch. Its learner then ends without writing, and the process waits again.

Streams are spread by rendezvous hashing: every learner computes the same order of the live learners for a stream, and
the first of them should lead it. The others take it only when it stays without a leader. When a learner has joined, the
others pass streams to it, a few in each round. See Thaler and Ravishankar (1998).
"""

import hashlib
import os
import queue
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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
from shoal_service.store import Checkpoint, Lease, ReaderRequest, SharedStore, StreamRecord
from shoal_service.streams.learner import Learner
from shoal_service.streams.shared.pieces import PieceSharing
from shoal_service.streams.shared.view_broadcast import ViewBroadcast

ROUNDS_PER_LEASE = 4
"""Rounds of the thread within the life of a lease. A renewal may fail twice before the lease ends."""
PAUSE_S, MAX_PAUSE_S = 1.0, 60.0
"""Pause in which a stream whose learner has stopped is left to other processes. It doubles with each stop in a row."""
STEADY_S = 60.0
"""A learner that ran for so long ends a row of stops."""
ANNOUNCED = 0.75
"""Life of the announcement that a learner is alive, in leases: a dead one is known to be when its leases end."""
TAKEOVERS_AT_ONCE = 16
"""Number of streams that one group of parallel takeovers covers. Due leases are renewed between two groups."""
HANDOVERS_PER_ROUND = 8
KEPT_S = 600.0
"""Time in which a stream that its first learner left without a leader is not handed back to that learner."""


class _Led(NamedTuple):
    record: StreamRecord
    epoch: int
    learner: Learner
    broadcast: ViewBroadcast
    since: float
    keep_until: float
    """Earliest time of a handover."""


class _Pause(NamedTuple):
    """Pause of a stream whose learner has stopped."""

    until: float
    length_s: float


@dataclass
class LeaseCounters:
    """Counters of the leases of a process since it started."""

    taken: int = 0
    """Streams that this process began to lead."""
    lost: int = 0
    """Streams that it led until another process took over without its doing."""


class LeaseManager:
    """Manages the leases between `start` and `close`. Both block; `start` does not use the store."""

    def __init__(
        self,
        store: SharedStore,
        settings: Settings,
        log: Any,
        notify_refiner: Callable[[str, str], None],
        pieces: PieceSharing | None = None,
    ) -> None:
        """`notify_refiner(name, incarnation)` is called when a stream led here may have a refinement to be made. With
        `pieces`, other processes may compute pieces of the streams that are led here."""
        self._store = store
        self._settings = settings
        self._log = log
        self._notify_refiner = notify_refiner
        self._pieces = pieces
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        """Name of this process in its leases."""
        self.counters = LeaseCounters()
        self._counting = threading.Lock()  # several takeovers are counted at once
        self._led: dict[tuple[str, str], _Led] = {}
        self._paused: dict[tuple[str, str], _Pause] = {}
        self._leaving: dict[tuple[str, str], _Led] = {}  # handed over: their learners end
        self._without_leader: dict[tuple[str, str], float] = {}  # since when
        self._learners: dict[str, float] = {}  # live learners, and since when
        self._renewed_at = 0.0
        self._pool = ThreadPoolExecutor(TAKEOVERS_AT_ONCE, "shoal-takeover")
        self._requests: queue.SimpleQueue[ReaderRequest | None] = queue.SimpleQueue()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name="shoal-leases", daemon=True),
            threading.Thread(target=self._answer_requests, name="shoal-requests", daemon=True),
        ]

    @property
    def learners(self) -> dict[str, Learner]:
        """The learners of the streams that this process leads, by stream."""
        return {led.record.name: led.learner for led in tuple(self._led.values()) if not led.learner.superseded}

    def state_of(self, name: str, incarnation: str) -> Checkpoint:
        """The state of a stream that is led here, to refine. Blocks: not for an event loop. Raises NotReadyError."""
        led = self._led.get((name, incarnation))
        if led is None:
            raise NotReadyError(f"stream {name!r} is not learnt by this process")
        return led.learner.wait_for_state()

    def start(self) -> None:
        """Begin to manage the leases."""
        for thread in self._threads:
            thread.start()

    def stop_accepting(self) -> None:
        """Take no further stream. Safe in a signal handler."""
        self._stopping.set()

    def check(self) -> None:
        """Raise NotReadyError when the process is stopping, or when a thread has ended."""
        if self._stopping.is_set():
            raise NotReadyError("the service is stopping")
        if not all(thread.is_alive() for thread in self._threads):
            raise NotReadyError("the leases are not renewed any more; see the service's log, and restart it")

    def close(self, timeout_s: float) -> bool:
        """End the learners between two entries, each with a checkpoint, and release the leases.

        The next leader applies the rest of their logs. True when all ended within the time.
        """
        began = time.monotonic()
        self._stopping.set()
        self._wake.set()
        self._requests.put(None)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, began + timeout_s - time.monotonic()))
        led = (*self._led.values(), *self._leaving.values())
        for each in led:
            each.learner.finish(began)
        ended = [each.learner.join(began + timeout_s - time.monotonic()) for each in led]
        if self._withdraw():
            list(self._pool.map(self._release, led))
        self._pool.shutdown()
        return all(ended)

    def _withdraw(self) -> bool:
        """Say that this learner has ended. False when the store does not answer; then all leases end by themselves."""
        try:
            self._store.sharing.withdraw(self.owner)
        except StoreError as error:
            self._log.warning("learner_not_withdrawn", reason=str(error))
            return False
        return True

    @property
    def drained(self) -> bool:
        """Whether, after `close`, nothing is left to apply in the logs of streams that were led here."""
        return all(learner.drained for learner in self.learners.values())

    def leads(self, name: str, incarnation: str) -> bool:
        """Whether this process leads a stream."""
        return (name, incarnation) in self._led

    def on_request(self, request: ReaderRequest | None) -> None:
        """Take a reader's request. None: look for streams without a leader now."""
        if request is None:
            self._wake.set()
        else:
            self._requests.put(request)

    # -- the thread of the leases

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._round()
            except StoreUnavailableError as error:
                self._log.warning("leases_unseen", reason=str(error))
            except Exception:  # noqa: BLE001 - without this thread nothing is learnt: it continues, and logs the error
                self._log.error("leases_failed", exc_info=True)
            self._wake.wait(self._round_s)
            self._wake.clear()

    @property
    def _round_s(self) -> float:
        return self._settings.lease_s / ROUNDS_PER_LEASE

    def _round(self) -> None:
        self._renew_all()
        records = self._store.list_streams()
        now = time.monotonic()
        candidates = [r for r in records if _key(r) not in self._led and not self._is_paused(_key(r), now)]
        free = self._store.sharing.without_leader(candidates)
        self._without_leader = {_key(r): self._without_leader.get(_key(r), now) for r in free}
        self._take([r for r in free if self._is_mine(_key(r), now)])
        self._hand_over(now)
        existing = {_key(record) for record in records}
        self._paused = {key: pause for key, pause in self._paused.items() if key in existing}

    def _is_paused(self, key: tuple[str, str], now: float) -> bool:
        return key in self._leaving or (key in self._paused and self._paused[key].until > now)

    # -- renewal

    def _renew_all(self) -> None:
        """Renew every lease in one exchange, and learn which learners are alive."""
        for led in tuple(self._led.values()):
            if led.learner.join(0.0):
                self._drop(led)
        self._end_handovers()
        led_now = (*self._led.values(), *self._leaving.values())
        leases = [Lease(*_key(led.record), led.epoch) for led in led_now]
        found = self._store.sharing.renew_leases(self.owner, leases, self._settings.lease_s)
        self._renewed_at = now = time.monotonic()
        for led, blobs in zip(led_now, found, strict=True):
            if isinstance(blobs, Exception):
                led.learner.superseded |= isinstance(blobs, StaleWriterError)
                self._log.warning("stepping_down", stream=led.record.name, epoch=led.epoch, reason=str(blobs))
                led.learner.abandon()
            elif not led.broadcast.still_shown(blobs):
                led.learner.wake()
        alive = self._store.sharing.announce(self.owner, ANNOUNCED * self._settings.lease_s)
        self._learners = {owner: self._learners.get(owner, now) for owner in alive}

    def _drop(self, led: _Led) -> None:
        """Handle a learner that has ended: its stream was deleted, another process leads it, or it failed."""
        key = _key(led.record)
        del self._led[key]
        self.counters.lost += led.learner.superseded
        if led.learner.superseded or led.learner.failure is None:
            return
        led.broadcast.report_failure(led.learner.failure)
        before = self._paused.get(key)
        steady = time.monotonic() - led.since > STEADY_S
        length_s = PAUSE_S if before is None or steady else min(2 * before.length_s, MAX_PAUSE_S)
        self._paused[key] = _Pause(time.monotonic() + length_s, length_s)
        self._release(led)

    def _release(self, led: _Led) -> None:
        try:
            self._store.sharing.release_lease(*_key(led.record), self.owner)
        except StoreError as error:  # it ends by itself
            self._log.warning("lease_not_given_up", stream=led.record.name, reason=str(error))

    # -- takeover

    def _is_mine(self, key: tuple[str, str], now: float) -> bool:
        """Whether to take a stream without a leader now: each learner waits a round longer than the one before it."""
        waited_s = now - self._without_leader[key]
        return waited_s >= 2 * self._round_s * ranked(key, self._learners).index(self.owner)

    def _take(self, records: Sequence[StreamRecord]) -> None:
        for first in range(0, len(records), TAKEOVERS_AT_ONCE):
            if self._stopping.is_set():
                return
            if time.monotonic() - self._renewed_at > self._round_s:
                self._renew_all()
            list(self._pool.map(self._lead, records[first : first + TAKEOVERS_AT_ONCE]))

    def _lead(self, record: StreamRecord) -> None:
        try:
            epoch = self._store.sharing.acquire_lease(*_key(record), self.owner, self._settings.lease_s)
        except (StreamGoneError, UnknownStreamError):
            return
        if epoch is None:
            return
        broadcast = ViewBroadcast(self._store.sharing, record, epoch, self._log)
        notify = partial(self._notify_refiner, *_key(record))
        learner = Learner(
            self._store,
            record,
            self._settings,
            self._log,
            sink=broadcast,
            epoch=epoch,
            notify_refiner=notify,
            run_pieces=None if self._pieces is None else self._pieces.runner(),
        )
        broadcast.feed = learner.feed
        now = time.monotonic()
        first = ranked(_key(record), self._learners)[0] == self.owner
        self._led[_key(record)] = _Led(record, epoch, learner, broadcast, now, now if first else now + KEPT_S)
        with self._counting:
            self.counters.taken += 1
        self._log.info("leading", stream=record.name, epoch=epoch)
        learner.start()
        notify()

    # -- handover

    def _hand_over(self, now: float) -> None:
        """End the learners of a few streams that another learner, alive for a lease at least, should lead."""
        others = {owner for owner, since in self._learners.items() if now - since >= self._settings.lease_s}
        others.add(self.owner)
        moving = [
            (key, led)
            for key, led in tuple(self._led.items())
            if now >= led.keep_until and ranked(key, others)[0] != self.owner
        ]
        for key, led in moving[:HANDOVERS_PER_ROUND]:
            self._log.info("handing_over", stream=led.record.name, epoch=led.epoch)
            led.learner.finish(now)
            del self._led[key]
            self._leaving[key] = led
        for _, led in moving[:HANDOVERS_PER_ROUND]:
            led.learner.join(self._round_s / HANDOVERS_PER_ROUND)
        self._end_handovers()

    def _end_handovers(self) -> None:
        """Release the leases of the streams whose learners have ended. The others keep theirs until they do."""
        for key, led in tuple(self._leaving.items()):
            if led.learner.join(0.0):
                del self._leaving[key]
                self._release(led)

    # -- the thread that answers readers

    def _answer_requests(self) -> None:
        while (request := self._requests.get()) is not None:
            led = self._led.get((request.name, request.incarnation))
            if led is None:
                continue
            try:
                if request.what == "state":
                    led.learner.checkpoint_soon()
                else:
                    led.broadcast.on_request(request, led.learner.applied)
                    led.learner.wake()
            except StoreError as error:  # no longer the leader; the request is repeated to the next one
                self._log.warning("want_unanswered", stream=request.name, reason=str(error))


def ranked(key: tuple[str, str], learners: Iterable[str]) -> list[str]:
    """The learners in the order in which they should lead a stream: the same in every process."""

    def weight(owner: str) -> bytes:
        return hashlib.blake2b("/".join((owner, *key)).encode(), digest_size=8).digest()

    return sorted(learners, key=weight, reverse=True)


def _key(record: StreamRecord) -> tuple[str, str]:
    return record.name, record.incarnation
