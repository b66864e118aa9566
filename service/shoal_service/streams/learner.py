"""The one writer of a stream: a thread that reads the log and applies it, entry by entry, each exactly once.

What the state becomes is a function of the log alone. Time decides only when a view is published and when a
checkpoint is written, and both are copies.

An entry that cannot be taken may leave a half-changed state behind, so the thread goes back to the newest checkpoint
and reads the log again. An entry that fails a second time, from there, is made a dead letter, durably, before the
thread goes back once more and passes over it, as every later replay will. A fault of the machine (memory, disk, the
compiler) is no entry's: the thread goes back, tries again after a pause, and after a few times halts. The log keeps
everything for the next start.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
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
from shoal_service.streams.applying import Working, apply_inplace, passed_over
from shoal_service.streams.asking import Asking
from shoal_service.streams.checkpoints import RETRY_S, Checkpoints
from shoal_service.streams.faults import of_the_machine
from shoal_service.streams.published import Board
from shoal_service.streams.publishing import Publisher
from shoal_service.streams.tally import Tally

T = TypeVar("T")

READ_BYTES = 8 << 20
"""Payload bytes of log entries held at once."""
POLL_S = 0.25
"""How long the thread waits on the log before it looks for requests and for the end."""
FAULTS_BORNE = 5
"""Faults of the machine in a row, with no new entry taken between them, before the thread halts."""
FAULT_PAUSE_S = 0.25
"""Pause after the first of them; it doubles with each."""
REASON_KEPT = 1_000
"""Characters of a dead letter's reason that are kept."""


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
        self._asking = Asking()
        self._epoch = 0
        self._working: Working
        self._dead: dict[int, str] = {}
        self._suspects: set[int] = set()  # entries that failed once
        self._faults = 0  # of the machine, in a row
        self._reached = 0  # the last entry that was ever applied
        self._marked = 0  # the last that the store was told of

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
            self._refuse_all(self._ended)

    def abandon(self) -> None:
        """Ask it to end at once, and write nothing more: the stream is no longer its own."""
        self._refuse_all(self._gone)
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
        request = self._asking.ask()
        self.start()
        self._wake.set()
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
            self._refuse_all(self._gone)
        except _InterruptedError:
            self._log.warning("learner_interrupted")
        except Exception as error:  # noqa: BLE001 - the thread's last door: said in the log, in /readyz and to whoever waits
            self.failure = f"{type(error).__name__}: {error}"
            self._log.error("learner_halted", reason=self.failure, exc_info=not isinstance(error, ServiceError))
        finally:
            self._refuse_all(self._ended)

    def _open(self) -> None:
        name, incarnation = self._name, self._incarnation
        self._epoch = self._insist(lambda: self._store.acquire_writer(name, incarnation))
        self._dead = self._insist(lambda: self._store.dead_letter_reasons(name, incarnation))
        self._working = self._insist(lambda: self._checkpoints.load(self._epoch))
        self._reached = self._marked = self._working.seq
        self._log.info("stream_loaded", seq=self._working.seq, log_offset=self._working.log_offset)
        self._publisher.publish(self._working)

    def _going_on(self) -> bool:
        """Apply what has come, or wait for more; False when it is time to end."""
        try:
            if self._working.seq >= self._reached:  # else in a replay: readers have seen a later state already
                self._asking.answer(self._working)
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
        except Exception as error:  # noqa: BLE001 - `_bear` raises again what is no passing fault
            self._bear(error)
            self._go_back()
        return True

    def _overdue(self) -> bool:
        return self._stopping.is_set() and time.monotonic() >= self._deadline

    def _take(self, entry: Entry) -> bool:
        """Apply one entry; False when it failed, and the log is to be read again from the checkpoint."""
        if entry.seq in self._dead:
            self._advance(passed_over(self._working, entry), entry)
            return True
        try:
            working, info = apply_inplace(self._working, entry)
        except Exception as error:
            if of_the_machine(error):
                raise
            self._doubt(entry, f"{type(error).__name__}: {error}"[:REASON_KEPT])
            return False
        self._suspects.discard(entry.seq)
        if entry.seq > self._reached:
            self.tally.count(entry.n_points, info)
        if info is not None and entry.n_points:
            self.board.keep_labels(entry.seq, info.labels)
        self._advance(working, entry)
        return True

    def _advance(self, working: Working, entry: Entry) -> None:
        self._working = working
        new = entry.seq > self._reached
        if new:
            self._reached = entry.seq
            self._mark()
        self._publisher.offer(working)
        if entry.seq >= self._reached and self._checkpoints.due(working):
            self._checkpoints.save(working)
        if new:
            self._faults = 0

    def _mark(self) -> None:
        """Tell the store how far this is; if it does not answer, it is told later."""
        if self._marked == self._reached:
            return
        try:
            self._store.mark_applied(self._name, self._incarnation, self._epoch, self._reached)
            self._marked = self._reached
        except StoreUnavailableError as error:
            self._log.warning("mark_failed", seq=self._reached, reason=str(error))

    def _doubt(self, entry: Entry, reason: str) -> None:
        """An entry failed: the first time it may try again, the second time it is set aside."""
        if entry.seq in self._suspects:
            self._refuse(entry, reason)
        else:
            self._suspects.add(entry.seq)
            self._log.warning("entry_failed", seq=entry.seq, log_offset=entry.log_offset, reason=reason)
        self._go_back()

    def _refuse(self, entry: Entry, reason: str) -> None:
        """Set the entry aside, durably, before anything else is done."""
        letter = DeadLetter(entry.seq, entry.log_offset, entry.n_points, reason, entry.payload)
        self._insist(lambda: self._store.add_dead_letter(self._name, self._incarnation, self._epoch, letter))
        self._dead[entry.seq] = reason
        self.tally.dead_letters += 1
        self._log.error("dead_letter", seq=entry.seq, log_offset=entry.log_offset, kind=str(entry.kind), reason=reason)
        self._checkpoints.wanted = True  # so that the next dead letter does not replay the same stretch again

    def _go_back(self) -> None:
        """To the state of the checkpoint: this one may be spoilt."""
        self._working = self._insist(lambda: self._checkpoints.load(self._epoch))

    def _rest(self) -> None:
        """Wait for more, and meanwhile do what time asks for."""
        self._mark()
        if self._publisher.pending(self._working):
            self._wake.wait(self._publisher.wait_s if self._marked == self._reached else RETRY_S)
            self._wake.clear()
            self._publisher.offer(self._working)
            return
        if self._checkpoints.due(self._working):
            self._checkpoints.save(self._working)
        self._wake.clear()
        self._faults = 0
        self._store.wait_for_entries(self._name, self._incarnation, self._working.seq, POLL_S)

    def _insist(self, verb: Callable[[], T]) -> T:
        """Ask the store until it answers. Raises _InterruptedError when the thread is to end meanwhile."""
        while True:
            try:
                return verb()
            except StoreUnavailableError as error:
                self._log.warning("store_unavailable", reason=str(error))
                if self._stopping.wait(RETRY_S):
                    raise _InterruptedError from error
            except Exception as error:  # noqa: BLE001 - `_bear` raises again what is no passing fault
                self._bear(error)

    def _bear(self, error: Exception) -> None:
        """Pause after a fault of the machine. Raises the error itself when it is none, or one too many."""
        if not of_the_machine(error) or self._faults >= FAULTS_BORNE:
            raise error
        pause_s = FAULT_PAUSE_S * 2**self._faults
        self._faults += 1
        self._log.warning("machine_fault", reason=f"{type(error).__name__}: {error}", again_in_s=pause_s)
        if self._stopping.wait(pause_s):
            raise _InterruptedError from error

    def _refuse_all(self, reason: Callable[[], ServiceError]) -> None:
        """Nothing more will be shown or given: say why to who waits, and to whoever comes."""
        self.board.fail(reason)
        self._asking.end(reason)

    def _gone(self) -> ServiceError:
        return StreamGoneError(f"stream {self._name!r} was deleted; create it again or name another")

    def _ended(self) -> ServiceError:
        if self.failure is not None:
            return NotReadyError(
                f"the learner of stream {self._name!r} has stopped ({self.failure}); see the service's log"
            )
        return NotReadyError("the service is stopping; ask again when it runs")
