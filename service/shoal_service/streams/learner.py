"""The one writer of a stream: a thread that reads the log and applies it, entry by entry, each exactly once.

What the state becomes is a function of the log alone. Time decides only when a view is published and when a
checkpoint is written, and both are copies.

An entry that cannot be taken may leave a half-changed state behind. So the thread first makes the dead letter
durable, then goes back to the newest checkpoint and reads the log again, now passing over that entry, as every later
replay will.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from shoal_service.errors import (
    NotReadyError,
    ServiceError,
    StoreUnavailableError,
    StreamGoneError,
    UnknownStreamError,
)
from shoal_service.settings import Settings
from shoal_service.store import Checkpoint, DeadLetter, Entry, Store, StreamRecord
from shoal_service.streams.applying import Working, apply_inplace, checkpoint_of, passed_over
from shoal_service.streams.checkpoints import RETRY_S, Checkpoints
from shoal_service.streams.published import Board
from shoal_service.streams.publishing import Publisher
from shoal_service.streams.tally import Tally

T = TypeVar("T")

READ_BYTES = 8 << 20
"""Payload bytes of log entries held at once."""
POLL_S = 0.25
"""How long the thread waits on the log before it looks for requests and for the end."""


class _InterruptedError(Exception):
    """The thread is to end while it holds no state that may be kept."""


class Learner:
    """The thread of one stream. `start` it once; end it with `finish` (after the log) or `abandon` (at once), then
    `join`.
    """

    def __init__(self, store: Store, record: StreamRecord, settings: Settings, log: Any) -> None:
        self.board = Board(on_wait=self.poke)
        self.tally = Tally()
        self.failure: str | None = None
        """Why the thread ended before its time, if it did."""
        self._store = store
        self._name, self._incarnation = record.name, record.incarnation
        self._log = log.bind(stream=record.name)
        self._publisher = Publisher(self.board, record, settings.publish_interval_s, self.tally, self._log)
        self._checkpoints = Checkpoints(store, record, settings, self.tally, self._log)
        self._thread = threading.Thread(target=self._run, name=f"learner-{record.name}", daemon=True)
        self._starting = threading.Lock()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._deadline = float("inf")
        self._requests: SimpleQueue[Future[Checkpoint]] = SimpleQueue()
        self._epoch = 0
        self._working: Working
        self._dead: dict[int, str] = {}
        self._reached = 0

    def start(self) -> None:
        """Start the thread, unless it runs already or is to end."""
        with self._starting:
            if self._thread.ident is None and not self._stopping.is_set():
                self._thread.start()

    def poke(self) -> None:
        """Say that there is something new to look at."""
        self._wake.set()

    def finish(self, deadline: float) -> None:
        """Ask it to apply what the log holds, until `deadline` (monotonic) at most, write a checkpoint and end."""
        with self._starting:
            self._deadline = deadline
            self._stopping.set()
        self._wake.set()
        if self._thread.ident is None:
            self.board.fail(self._ended)

    def abandon(self) -> None:
        """Ask it to end at once, and write nothing more: the stream is no longer its own."""
        self.board.fail(self._gone)
        self.finish(float("-inf"))

    def join(self, timeout_s: float) -> bool:
        """Wait for the end; True when the thread has ended, or never began."""
        if self._thread.ident is not None:
            self._thread.join(max(timeout_s, 0.0))
        return not self._thread.is_alive()

    def refusal(self, seq: int) -> str | None:
        """Why an entry is a dead letter, if it is one."""
        return self._dead.get(seq)

    def snapshot(self) -> "Future[Checkpoint]":
        """The state as bytes, between two entries."""
        request: Future[Checkpoint] = Future()
        self._requests.put(request)
        self.start()
        self._wake.set()
        if not self._thread.is_alive():
            self._answer_requests(self._ended())
        return request

    # Everything below runs in the thread.

    def _run(self) -> None:
        try:
            self._open()
            while self._going_on():
                pass
            if self._deadline > float("-inf"):
                self._checkpoints.save(self._working)
        except (StreamGoneError, UnknownStreamError):
            self.board.fail(self._gone)
        except _InterruptedError:
            self._log.warning("learner_interrupted")
        except Exception as error:  # noqa: BLE001 - the thread's last door: said in the log, in /readyz and to whoever waits
            self.failure = f"{type(error).__name__}: {error}"
            self._log.error("learner_halted", reason=self.failure, exc_info=not isinstance(error, ServiceError))
        finally:
            self.board.fail(self._ended)
            self._answer_requests(self._ended())

    def _open(self) -> None:
        name, incarnation = self._name, self._incarnation
        self._epoch = self._insist(lambda: self._store.acquire_writer(name, incarnation))
        letters = self._insist(lambda: self._store.dead_letters(name, incarnation))
        self._dead = {letter.seq: letter.reason for letter in letters}
        self._working = self._insist(lambda: self._checkpoints.load(self._epoch))
        self._reached = self._working.seq
        self._log.info("stream_loaded", seq=self._working.seq, log_offset=self._working.log_offset)
        self._publisher.publish(self._working)

    def _going_on(self) -> bool:
        """Apply what has come, or wait for more; False when it is time to end."""
        try:
            self._answer_requests()
            entries = self._store.read(self._name, self._incarnation, self._working.seq, max_bytes=READ_BYTES)
            for entry in entries:
                if self._overdue():
                    return False
                if not self._take(entry):
                    return True
            if self._overdue() or (not entries and self._stopping.is_set()):
                return False
            if not entries:
                self._rest()
        except StoreUnavailableError as error:
            self._log.warning("store_unavailable", reason=str(error))
            return not self._stopping.wait(RETRY_S)
        return True

    def _overdue(self) -> bool:
        return self._stopping.is_set() and time.monotonic() >= self._deadline

    def _take(self, entry: Entry) -> bool:
        """Apply one entry; False when it became a dead letter, and the log is to be read again from the checkpoint."""
        if entry.seq in self._dead:
            self._advance(passed_over(self._working, entry), entry)
            return True
        try:
            working, info = apply_inplace(self._working, entry)
        except Exception as error:  # noqa: BLE001 - whatever the library raises on this entry, it will raise again
            self._refuse(entry, f"{type(error).__name__}: {error}")
            return False
        if entry.seq > self._reached:
            self.tally.count(entry.n_points, info)
        if info is not None and entry.n_points:
            self.board.keep_labels(entry.seq, info.labels)
        self._advance(working, entry)
        return True

    def _advance(self, working: Working, entry: Entry) -> None:
        self._working = working
        if entry.seq > self._reached:
            self._reached = entry.seq
            self._store.mark_applied(self._name, self._incarnation, self._epoch, entry.seq)
        self._publisher.offer(working)
        if entry.seq >= self._reached and self._checkpoints.due(working):
            self._checkpoints.save(working)

    def _refuse(self, entry: Entry, reason: str) -> None:
        """Set the entry aside, durably, before anything else is done; then go back to the state of the checkpoint."""
        letter = DeadLetter(entry.seq, entry.log_offset, entry.n_points, reason, entry.payload)
        self._insist(lambda: self._store.add_dead_letter(self._name, self._incarnation, self._epoch, letter))
        self._dead[entry.seq] = reason
        self.tally.dead_letters += 1
        self._log.error("dead_letter", seq=entry.seq, log_offset=entry.log_offset, kind=str(entry.kind), reason=reason)
        self._working = self._insist(lambda: self._checkpoints.load(self._epoch))
        self._checkpoints.wanted = True  # so that the next dead letter does not replay the same stretch again

    def _rest(self) -> None:
        """Wait for more, and meanwhile do what time asks for."""
        if self._publisher.pending(self._working):
            self._wake.wait(self._publisher.wait_s)
            self._wake.clear()
            self._publisher.offer(self._working)
            return
        if self._checkpoints.due(self._working):
            self._checkpoints.save(self._working)
        self._wake.clear()
        self._store.wait_for_entries(self._name, self._incarnation, self._working.seq, POLL_S)

    def _answer_requests(self, error: ServiceError | None = None) -> None:
        if error is None and self._working.seq < self._reached:
            return  # in a replay after a dead letter: readers have seen a later state already
        while not self._requests.empty():
            request = self._requests.get()
            if not request.set_running_or_notify_cancel():
                continue
            if error is not None:
                request.set_exception(error)
            else:
                request.set_result(checkpoint_of(self._working))

    def _insist(self, verb: Callable[[], T]) -> T:
        """Ask the store until it answers. Raises _InterruptedError when the thread is to end meanwhile."""
        while True:
            try:
                return verb()
            except StoreUnavailableError as error:
                self._log.warning("store_unavailable", reason=str(error))
                if self._stopping.wait(RETRY_S):
                    raise _InterruptedError from error

    def _gone(self) -> ServiceError:
        return StreamGoneError(f"stream {self._name!r} was deleted; create it again or name another")

    def _ended(self) -> ServiceError:
        if self.failure is not None:
            return NotReadyError(
                f"the learner of stream {self._name!r} has stopped ({self.failure}); see the service's log"
            )
        return NotReadyError("the service is stopping; ask again when it runs")
