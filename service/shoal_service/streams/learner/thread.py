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
from typing import Any

from shoal_service.errors import (
    NotReadyError,
    ServiceError,
    StaleWriterError,
    StoreUnavailableError,
    StreamGoneError,
    UnknownStreamError,
)
from shoal_service.settings import Settings
from shoal_service.store import Checkpoint, Entry, EntryKind, Store, StreamRecord
from shoal_service.streams.engines import load_engines
from shoal_service.streams.events import Feed
from shoal_service.streams.learner import retry_policy as bearing
from shoal_service.streams.learner.apply import Working, apply_inplace, passed_over
from shoal_service.streams.learner.checkpoints import Checkpoints, Sources
from shoal_service.streams.learner.counters import Tally
from shoal_service.streams.learner.dead_letters import DeadLetters
from shoal_service.streams.learner.event_encoding import told
from shoal_service.streams.learner.faults import of_the_machine
from shoal_service.streams.learner.publisher import Notice, Publisher
from shoal_service.streams.learner.retry_policy import InterruptedWorkError, Patience
from shoal_service.streams.learner.snapshot_requests import Asking
from shoal_service.streams.refinement.records import RefinementBook
from shoal_service.streams.refinement.trigger import Adopting, Gathered, gather

READ_BYTES = 8 << 20
"""Payload bytes of log entries held at once."""
MARK_S = 0.02
"""How often, at most, the store is told how far the log is applied, while entries follow on each other."""
POLL_S = 0.25
"""How long the thread waits on the log before it looks for requests and for the end."""


class Learner:
    """The thread of one stream. `start` it once; end it with `finish` (after the log) or `abandon` (at once), then
    `join`.
    """

    def __init__(
        self,
        store: Store,
        record: StreamRecord,
        settings: Settings,
        log: Any,
        *,
        notice: Notice,
        epoch: int | None = None,
        nudge_refiner: Callable[[], None] = lambda: None,
    ) -> None:
        """Shows its views on `notice`. With an `epoch` it was made the writer already; else it makes itself that.

        `nudge_refiner` is called when there may be a refinement to be made.
        """
        self.tally = Tally()
        self.feed = Feed(settings.events_kept)
        self.failure: str | None = None
        """Why the thread ended before its time, if it did."""
        self.superseded = False
        """Whether another writer has taken the stream over."""
        self.drained = False
        """Whether it ended with the whole log applied."""
        self._notice = notice
        self._store = store
        self._name, self._incarnation = record.name, record.incarnation
        self._log = log.bind(stream=record.name)
        self._stopping = threading.Event()
        self._patience = Patience(self._stopping, self._log)
        self._letters = DeadLetters(store, record, self._patience, self.tally, self._log)
        self._publisher = Publisher(notice, record, settings.publish_interval_s, self.tally, self._log)
        book = RefinementBook(store, record.name, record.incarnation)
        self._adopting = Adopting(book, self.tally, self._log, nudge_refiner)
        sources = Sources(self.feed, self._adopting.keep_after)
        self._checkpoints = Checkpoints(store, record, settings, self.tally, self._log, sources)
        self._thread = threading.Thread(target=self._run, name=f"learner-{record.name}", daemon=True)
        self._starting = threading.Lock()
        self._wake = threading.Event()
        self._deadline = float("inf")
        self._asking = Asking()
        self._epoch = epoch
        self._working: Working
        self._reached = 0  # the last entry that was ever applied
        self._marked = 0  # the last that the store was told of
        self._mark_due = 0.0

    @property
    def reached(self) -> int:
        """The last entry that was ever applied."""
        return self._reached

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
        return self._letters.reason(seq)

    def snapshot(self) -> "Future[Checkpoint]":
        """The state as bytes, between two entries."""
        request = self._asking.ask()
        self.start()
        self._wake.set()
        return request

    def checkpoint_soon(self) -> None:
        """Have the next checkpoint written as soon as there is anything new to write."""
        self._checkpoints.wanted = True
        self._wake.set()

    # Everything below runs in the thread.

    def _run(self) -> None:
        try:
            load_engines()
            self._open()
            while self._going_on():
                pass
            if self._deadline > float("-inf"):
                self._checkpoints.save(self._working)
        except (StreamGoneError, UnknownStreamError):
            self._refuse_all(self._gone)
        except InterruptedWorkError:
            self._log.warning("learner_interrupted")
        except StaleWriterError as error:
            self.superseded, self.failure = True, f"{type(error).__name__}: {error}"
            self._log.warning("learner_superseded", reason=str(error))
        except Exception as error:  # noqa: BLE001 - the thread's last door: said in the log, in /streams and to whoever waits
            self.failure = f"{type(error).__name__}: {error}"
            self._log.error("learner_halted", reason=self.failure, exc_info=not isinstance(error, ServiceError))
        finally:
            self._refuse_all(self._ended)

    def _open(self) -> None:
        name, incarnation = self._name, self._incarnation
        if self._epoch is None:
            self._epoch = self._patience.insist(lambda: self._store.acquire_writer(name, incarnation))
        self._letters.load(self._epoch)
        self._working = self._load()
        self._reached = self._marked = self._working.seq
        self._log.info("stream_loaded", seq=self._working.seq, log_offset=self._working.log_offset)
        self._publisher.publish(self._working, len(self._letters))

    def _load(self) -> Working:
        assert self._epoch is not None
        epoch = self._epoch
        return self._patience.insist(lambda: self._checkpoints.load(epoch))

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
            if not entries and self._stopping.is_set():
                self.drained = True
                return False
            if self._overdue():
                return False
            if not entries:
                self._rest()
        except StoreUnavailableError as error:
            return self._patience.wait_for_store(error)
        except Exception as error:  # noqa: BLE001 - `bear` raises again what is no passing fault
            self._patience.bear(error)
            self._working = self._load()
        return True

    def _overdue(self) -> bool:
        return self._stopping.is_set() and time.monotonic() >= self._deadline

    def _take(self, entry: Entry) -> bool:
        """Apply one entry; False when it failed, and the log is to be read again from the checkpoint."""
        if self._letters.reason(entry.seq) is not None:
            self._letters.passed_over(entry, self._working)
            self._advance(passed_over(self._working, entry), entry)
            return True
        gathered = self._gathered(entry)
        try:
            working, change = apply_inplace(self._working, entry, gathered)
        except Exception as error:
            if of_the_machine(error):
                raise
            if self._letters.doubt(entry, error):
                self._checkpoints.wanted = True  # so that the next dead letter does not replay the same stretch again
                self._adopting.failed(entry, self._letters.reason(entry.seq))
            self._working = self._load()
            return False
        self._letters.taken(entry)
        if entry.seq > self._reached:
            self.tally.count(entry.n_points, change.info)
        if change.info is not None and entry.n_points:
            self._notice.keep_labels(entry.seq, change.info.labels)
        self.feed.add(entry.seq, told(entry, working, change, gathered))
        if gathered is not None and change.adoption is not None:
            self._adopting.settle(entry, gathered, change.adoption)
        self._advance(working, entry)
        return True

    def _gathered(self, entry: Entry) -> Gathered | None:
        """What the entry of a refinement needs beside itself."""
        if entry.kind is not EntryKind.ADOPTION:
            return None
        return gather(self._store, self._name, self._incarnation, entry, self._is_set_aside)

    def _is_set_aside(self, seq: int) -> bool:
        return self._letters.reason(seq) is not None

    def _advance(self, working: Working, entry: Entry) -> None:
        self._working = working
        new = entry.seq > self._reached
        if new:
            self._reached = entry.seq
            if time.monotonic() >= self._mark_due:
                self._mark()
        self._publisher.offer(working, len(self._letters))
        if entry.seq >= self._reached and self._checkpoints.due(working):
            self._checkpoints.save(working)
        if new:
            self._patience.renew()
            self._adopting.look(working.state)

    def _mark(self) -> None:
        """Tell the store how far this is; if it does not answer, it is told later."""
        if self._marked == self._reached:
            return
        assert self._epoch is not None
        self._mark_due = time.monotonic() + MARK_S
        try:
            self._store.mark_applied(self._name, self._incarnation, self._epoch, self._reached)
            self._marked = self._reached
        except StoreUnavailableError as error:
            self._log.warning("mark_failed", seq=self._reached, reason=str(error))

    def _rest(self) -> None:
        """Wait for more, and meanwhile do what time asks for."""
        self._mark()
        if self._publisher.pending(self._working):
            self._wake.wait(self._publisher.wait_s if self._marked == self._reached else bearing.RETRY_S)
            self._wake.clear()
            self._publisher.offer(self._working, len(self._letters))
            return
        if self._checkpoints.due(self._working):
            self._checkpoints.save(self._working)
        self._wake.clear()
        self._patience.renew()
        self._adopting.look(self._working.state)
        self._store.wait_for_entries(self._name, self._incarnation, self._working.seq, POLL_S)

    def _refuse_all(self, reason: Callable[[], ServiceError]) -> None:
        """Nothing more will be shown or given: say why to who waits, and to whoever comes."""
        self._notice.fail(reason)
        self.feed.fail(reason)
        self._asking.end(reason)

    def _gone(self) -> ServiceError:
        return StreamGoneError(f"stream {self._name!r} was deleted; create it again or name another")

    def _ended(self) -> ServiceError:
        if self.failure is not None:
            return NotReadyError(
                f"the learner of stream {self._name!r} has stopped ({self.failure}); see the service's log"
            )
        return NotReadyError("the service is stopping; ask again when it runs")
