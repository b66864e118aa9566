"""Learner thread: the one writer of a stream. It reads the log and applies each entry exactly once.

Batches that wait are learnt in one pass where that changes nothing: neither the state nor what is said of each batch.

The state is a function of the log alone. Time decides only when a view is published and when a checkpoint is written,
and both are copies.

An entry that cannot be applied may leave a half-changed state behind. The thread then loads the newest checkpoint and
reads the log again. An entry that fails a second time becomes a dead letter, durably, before the thread loads the
checkpoint once more; this and every later replay skips it. Of batches in one pass it is not known which one failed, so
they are first tried one by one. A fault of the machine (memory, disk, compiler) is not the
entry's: the thread loads the checkpoint, tries again after a pause, and stops after a few faults in a row. The log
keeps everything for the next start.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from shoal_service.errors import (
    LearnerStoppedError,
    LogGapError,
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
from shoal_service.streams.learner import retry_policy
from shoal_service.streams.learner.applied_mark import REPORT_S, AppliedMark
from shoal_service.streams.learner.apply import (
    EntryEffect,
    WorkingState,
    apply_batches_inplace,
    apply_inplace,
    bytes_of_two_rounds,
    events_of,
    learnt_rows_of,
    points_together,
    skip,
)
from shoal_service.streams.learner.checkpoints import Checkpoints
from shoal_service.streams.learner.counters import LearnerCounters
from shoal_service.streams.learner.dead_letters import DeadLetters
from shoal_service.streams.learner.keyed_records import KeyedRecords
from shoal_service.streams.learner.own_thread import OwnThread
from shoal_service.streams.learner.pool import LearnerPool, PooledTask
from shoal_service.streams.learner.publisher import Publisher, ViewSink
from shoal_service.streams.learner.retry_policy import InterruptedWorkError, RetryPolicy, is_machine_fault
from shoal_service.streams.learner.snapshot_requests import SnapshotRequests
from shoal_service.streams.record_index import FamilyTree
from shoal_service.streams.refinement import AdoptionInputs, RefinementRecords, RefinementTrigger, read_inputs
from shoal_service.tracing import span

if TYPE_CHECKING:
    from shoal.partitions import PieceRunner

READ_BYTES, MOST_READ_BYTES = 8 << 20, 64 << 20
"""Payload bytes of log entries in memory at a time; and most of them where partitions learn whole rounds."""
WAIT_S = 5.0
"""Longest wait for an entry or a request where the log is not local. After that it is read in any case, to notice one
that lost its end. Also the pause before a refinement that could not be queued is tried again."""
REPLAY_WAIT_S = 5.0
"""Longest wait of a reader for the replay after a start. Then it gets the view that there is."""
KERNELS_S = 0.1
"""How often the thread looks whether the kernels of its stream are compiled."""
STATE_TIMEOUT_S = 60.0
"""Longest wait of a refinement for the state of a learner that is busy."""


class Learner:
    """The writer of one stream: a thread of its own, or turns in a pool of threads. `start` it once. End it with
    `finish` (after the log) or `abandon` (at once), then `join`.

    In a pool it rests when nobody has used the stream for a while: the state leaves the memory, and is loaded again
    from the checkpoint when somebody does.
    """

    def __init__(
        self,
        store: Store,
        record: StreamRecord,
        settings: Settings,
        log: Any,
        *,
        sink: ViewSink,
        epoch: int | None = None,
        notify_refiner: Callable[[], None] = lambda: None,
        pool: LearnerPool | None = None,
        on_rest: Callable[[], None] = lambda: None,
        run_pieces: "PieceRunner | None" = None,
    ) -> None:
        """Publishes on `sink`. With an `epoch` it is the stream's writer already; otherwise it becomes the writer.

        `notify_refiner` is called when there may be a refinement to be made. With a `pool` it has no thread of its
        own, and calls `on_rest` when it begins to rest. `run_pieces` computes the pieces of a stream with partitions;
        without it, threads of this process do.
        """
        self.counters = LearnerCounters()
        self.feed = Feed(settings.events_kept)
        self.failure: str | None = None
        """The reason why the thread ended early, or None."""
        self.superseded = False
        """Whether another writer has taken over the stream."""
        self.drained = False
        """Whether the thread ended with the whole log applied."""
        self._sink = sink
        self._store = store
        self._name, self._incarnation = record.name, record.incarnation
        self._log = log.bind(stream=record.name)
        self._stopping = threading.Event()
        self._retry = RetryPolicy(self._stopping, self._log)
        self._dead_letters = DeadLetters(store, record, self._retry, self.counters, self._log)
        self._mark = AppliedMark(store, record, self._log)
        self._records = KeyedRecords(store, record)
        self._publisher = Publisher(
            sink, record, settings.publish_interval_s, self.counters, self._log, self._records.flush
        )
        records = RefinementRecords(store, record.name, record.incarnation)
        self._refinements = RefinementTrigger(records, self.counters.refinements, self._log, notify_refiner)
        self._checkpoints = Checkpoints(
            store,
            record,
            settings,
            self.counters,
            self._log,
            self.feed,
            keep_after=self._refinements.keep_after,
            before_write=self._records.flush,
        )
        self._on_rest = on_rest
        self._run_pieces = run_pieces
        self._rest_after_s = settings.stream_idle_s
        self._task = OwnThread(self._turn, f"learner-{record.name}") if pool is None else PooledTask(pool, self._turn)
        self._starting = threading.Lock()
        self._used_at = time.monotonic()
        self._opened = self._resting = False
        self._deadline = float("inf")
        self._snapshot_requests = SnapshotRequests()
        self._epoch = epoch
        self._working: WorkingState
        self._kernels_ready = False
        self._alone_until = 0  # entries up to this one are applied one by one
        self._read_due = 0.0  # from then on the log is read although no entry was announced

    @property
    def stream(self) -> tuple[str, str]:
        """Name and incarnation of the stream."""
        return self._name, self._incarnation

    def family_tree(self) -> FamilyTree | None:
        """The live components and their descent, as readers see them. None before the first view."""
        return self._publisher.family_tree

    @property
    def applied(self) -> int:
        """The last entry that was ever applied. A replay does not lower it."""
        return self._mark.applied

    @property
    def begun(self) -> bool:
        """Whether it was started."""
        return self._task.started

    @property
    def resting(self) -> bool:
        """Whether the state is not in memory: nobody has used the stream yet, or for a while."""
        return self._resting or not self.begun

    def start(self) -> None:
        """Begin, unless it has begun already or is about to end. A learner that rests loads its state."""
        self._used_at = time.monotonic()
        with self._starting:
            if not self._task.started and not self._stopping.is_set():
                self._task.start()
        if self._resting:
            self._task.set()

    def wake(self) -> None:
        """Have it look for entries and requests now."""
        self._used_at = time.monotonic()
        self._task.set()

    def finish(self, deadline: float) -> None:
        """Apply what the log holds, until `deadline` (monotonic clock) at most, write a checkpoint and end."""
        with self._starting:
            self._deadline = deadline
            self._stopping.set()
        self._task.set()
        if not self._task.started:
            self._refuse_all(self._ended)

    def abandon(self) -> None:
        """End at once and write nothing more: the stream is no longer its own."""
        self._refuse_all(self._gone)
        self.finish(float("-inf"))

    def join(self, timeout_s: float) -> bool:
        """Wait for the end. True when it has ended, or never began."""
        return self._task.join(timeout_s)

    def refusal(self, seq: int) -> str | None:
        """The reason why an entry is a dead letter, or None."""
        return self._dead_letters.reason(seq)

    def snapshot(self) -> "Future[Checkpoint]":
        """The state as bytes, taken between two entries."""
        request = self._snapshot_requests.add()
        self.start()
        self._task.set()
        return request

    def wait_for_state(self) -> Checkpoint:
        """The state as bytes. Blocks: not for an event loop. NotReadyError after `STATE_TIMEOUT_S`."""
        try:
            return self.snapshot().result(STATE_TIMEOUT_S)
        except TimeoutError:
            raise NotReadyError(
                f"stream {self._name!r} is busy: it gave no state within {STATE_TIMEOUT_S:g} s; try again"
            ) from None

    def checkpoint_soon(self) -> None:
        """Write the next checkpoint as soon as the state is newer than the last one."""
        self._checkpoints.wanted = True
        self._task.set()

    # Everything below runs in the thread, or in one of the pool at a time.

    def _turn(self) -> float | None:
        """Do what there is to do. Returns the seconds until there may be more, and None at the end."""
        wait_s = None
        try:
            wait_s = self._work()
            if wait_s is None and not self._resting and self._deadline > float("-inf"):
                self._checkpoints.save(self._working)
        except (StreamGoneError, UnknownStreamError):
            self._refuse_all(self._gone)
        except InterruptedWorkError:
            self._log.warning("learner_interrupted")
        except StaleWriterError as error:
            self.superseded, self.failure = True, f"{type(error).__name__}: {error}"
            self._log.warning("learner_superseded", reason=str(error))
        except Exception as error:  # noqa: BLE001 - the thread's last handler: the log, /streams and requests report it
            self.failure = f"{type(error).__name__}: {error}"
            self._log.error("learner_halted", reason=self.failure, exc_info=not isinstance(error, ServiceError))
        finally:
            if wait_s is None:
                self._refuse_all(self._ended)
                self._task.unwatch(self._store, self.stream)
        return wait_s

    def _work(self) -> float | None:
        if self._resting and self._stopping.is_set() and self._is_complete():
            self.drained = True
            return None
        self._open()
        return self._step()

    def _open(self) -> None:
        """Load the state if it is not in memory."""
        if self._resting:
            self._working = self._load()
            self._resting = False
            self._log.info("stream_loaded", seq=self._working.seq, log_offset=self._working.log_offset)
            self._publisher.publish(self._working, len(self._dead_letters))
        elif not self._opened:
            load_engines()
            self._begin()
            self._opened = True

    def _begin(self) -> None:
        name, incarnation = self._name, self._incarnation
        if self._epoch is None:
            self._epoch = self._retry.until_answered(lambda: self._store.acquire_writer(name, incarnation))
        self._task.watch(self._store, self.stream)
        self._dead_letters.load(self._epoch)
        self._working = self._load()
        self._mark.start(self._epoch, self._working.seq)
        self._log.info("stream_loaded", seq=self._working.seq, log_offset=self._working.log_offset)
        last = self._retry.until_answered(lambda: self._store.tail(name, incarnation)).seq
        if last > self._working.seq:
            self._sink.expect(last, time.monotonic() + REPLAY_WAIT_S)
        self._publisher.publish(self._working, len(self._dead_letters))

    def _load(self) -> WorkingState:
        assert self._epoch is not None
        epoch = self._epoch
        self._retry.until_answered(lambda: self._records.load(epoch))
        return self._retry.until_answered(lambda: self._checkpoints.load(epoch))

    def _is_complete(self) -> bool:
        """Whether the log, as far as it can be asked, holds nothing that was not applied."""
        try:
            return self._store.tail(self._name, self._incarnation).seq <= self.applied
        except StoreUnavailableError:
            return False

    def _rest(self) -> None:
        """Let the state leave the memory. It is in the newest checkpoint."""
        self._resting = True
        self._on_rest()
        del self._working
        self._records.unload()
        self._log.info("stream_unloaded", seq=self.applied)

    def _step(self) -> float | None:
        """Apply the entries that have come. Returns the seconds until more may come, and None when it is time to end.

        In a thread of its own it waits instead, and returns zero.
        """
        self._task.clear()  # before any look at what it announces
        try:
            if self._working.seq >= self.applied:  # otherwise a replay: readers have seen a later state already
                self._snapshot_requests.answer(self._working)
            stopping = self._stopping.is_set()
            if not stopping and not self._has_kernels():
                return self._task.pause(KERNELS_S)
            if self._records.full:  # a write has failed: none is added before one succeeds
                self._records.flush(self._working)
            entries = deque(self._read(stopping))
            found_none = not entries
            if entries and not self._has_kernels():
                return None  # it is to end, and the log keeps the entries for the next start
            while entries:
                if self._overdue():
                    return None
                if not self._apply_next(entries):
                    return 0.0
            if found_none and stopping:
                self.drained = True
                return None
            if self._overdue():
                return None
            if found_none:
                return self._wait_for_entries()
        except StoreUnavailableError as error:
            return 0.0 if self._retry.wait_for_store(error) else None
        except LogGapError:
            # a newer writer may have trimmed what this one has not read yet
            self._retry.until_answered(self._mark.check_epoch)
            if self._publisher.pending(self._working):  # the last state, since no entry follows
                self._publisher.publish(self._working, len(self._dead_letters))
            raise
        except Exception as error:  # noqa: BLE001 - `wait_after_fault` raises again what does not pass by itself
            self._retry.wait_after_fault(error)
            self._working = self._load()
        return 0.0

    def _has_kernels(self) -> bool:
        """Whether the stream can be learnt. While another process compiles its kernels, the log waits."""
        if not self._kernels_ready:
            from shoal.sequential import kernels_ready

            self._kernels_ready = kernels_ready(self._working.state)
        return self._kernels_ready

    def _read(self, stopping: bool) -> list[Entry]:
        """The next entries. Empty without a read while no entry was announced, except at the end."""
        if time.monotonic() < self._read_due and not stopping:
            return []
        self._read_due = 0.0
        n_bytes = max(READ_BYTES, min(bytes_of_two_rounds(self._working.state), MOST_READ_BYTES))
        return self._store.read(self._name, self._incarnation, self._working.seq, max_bytes=n_bytes)

    def _overdue(self) -> bool:
        return self._stopping.is_set() and time.monotonic() >= self._deadline

    def _apply_next(self, entries: deque[Entry]) -> bool:
        """Apply the first of some entries, or several at once, and remove what was applied.

        False when an entry failed, and the log must be read again from the checkpoint.
        """
        if len(entries) > 1 and self._working.state.frozen and all(map(self._is_learnt, (entries[0], entries[1]))):
            return self._apply_batches(entries)
        return self._apply(entries.popleft())

    def _is_learnt(self, entry: Entry) -> bool:
        """Whether an entry is a batch that may be learnt in one pass with others."""
        return entry.kind is EntryKind.BATCH and entry.seq > self._alone_until and not self._is_dead_letter(entry.seq)

    def _apply_batches(self, entries: deque[Entry]) -> bool:
        """Apply the first batches in one pass. False when that failed, and they are to be applied one by one."""
        tried: list[Entry] = []
        most = points_together(self._working.state)

        def batches() -> Iterator[Entry]:
            while entries and self._is_learnt(entries[0]) and (not tried or entries[0].n_points <= most):
                tried.append(entries.popleft())
                yield tried[-1]

        first = entries[0].seq
        about = {"shoal.stream": self._name, "shoal.kind": EntryKind.BATCH, "shoal.seq": first}
        try:
            with span("apply", about) as made:
                working, changes = apply_batches_inplace(self._working, batches(), self._run_pieces)
                if made is not None:
                    made.set_attribute("shoal.points", sum(entry.n_points for entry in tried))
                    made.set_attribute("shoal.log_offset", tried[-1].log_offset)
                    made.set_attribute("shoal.entries", len(tried))
        except Exception as error:
            self._alone_until = tried[-1].seq if tried else first
            if is_machine_fault(error):
                raise
            self._log.warning("entries_failed", seq=first, last_seq=self._alone_until, reason=str(error))
            self._working = self._load()
            return False
        for entry, change in changes:
            self._note(entry, change, working, None)
        self._advance(working, tried[-1])
        self._records.flush_if_full(working)
        return True

    def _apply(self, entry: Entry) -> bool:
        """Apply one entry. False when it failed, and the log must be read again from the checkpoint."""
        if self._dead_letters.reason(entry.seq) is not None:
            self._dead_letters.settle(entry, self._working)
            self.feed.add(entry.seq, ())
            self._advance(skip(self._working, entry), entry)
            return True
        adoption = self._adoption_inputs(entry)
        about = {"shoal.stream": self._name, "shoal.kind": entry.kind, "shoal.seq": entry.seq}
        try:
            with span("apply", about | {"shoal.points": entry.n_points, "shoal.log_offset": entry.log_offset}):
                working, change = apply_inplace(self._working, entry, adoption, self._run_pieces)
        except Exception as error:
            if is_machine_fault(error):
                raise
            if self._dead_letters.record_failure(entry, error):
                self._checkpoints.wanted = True  # so that the next dead letter does not replay the same stretch again
                self._refinements.record_dead_letter(entry, self._dead_letters.reason(entry.seq))
            self._working = self._load()
            return False
        self._note(entry, change, working, adoption)
        self._advance(working, entry)
        self._records.flush_if_full(working)
        return True

    def _note(self, entry: Entry, change: EntryEffect, working: WorkingState, adoption: AdoptionInputs | None) -> None:
        """Count an entry that was applied, and keep what readers and refinements need of it."""
        self._dead_letters.record_success(entry)
        if entry.seq > self.applied:
            self.counters.count(entry.n_points, change.info)
        if change.info is not None and entry.n_points:
            self._sink.keep_learnt(entry.seq, learnt_rows_of(change.info))
        self.feed.add(entry.seq, events_of(entry, working, change, adoption))
        if adoption is not None and change.adoption is not None:
            self._refinements.record_outcome(entry, adoption, change.adoption)
        self._records.add(entry, change.info, working.state.settings)
        if change.adoption is not None and change.adoption.adopted:
            # `self._working` is consumed: the entry cannot be applied to it again when the store is back
            self._retry.until_answered(lambda: self._records.reassign(entry, working, self._is_dead_letter))

    def _adoption_inputs(self, entry: Entry) -> AdoptionInputs | None:
        """Everything that the entry of a refinement needs beside its payload. None for other entries."""
        if entry.kind is not EntryKind.ADOPTION:
            return None
        return read_inputs(self._store, self._name, self._incarnation, entry, self._is_dead_letter)

    def _is_dead_letter(self, seq: int) -> bool:
        return self._dead_letters.reason(seq) is not None

    def _advance(self, working: WorkingState, entry: Entry) -> None:
        self._working = working
        new = self._mark.advance(entry.seq)
        self._publisher.offer(working, len(self._dead_letters))
        if entry.seq >= self.applied and self._checkpoints.due(working):
            self._checkpoints.save(working)
        if new:
            self._retry.reset()
            self._refinements.check_due(working.state)

    def _wait_for_entries(self) -> float:
        """Wait for more entries, and meanwhile publish, checkpoint and refine when these are due."""
        self._mark.report()
        self._publisher.offer(self._working, len(self._dead_letters))
        if self._publisher.pending(self._working):
            wait_s = self._publisher.wait_s if self._mark.reported else retry_policy.RETRY_S
            return self._task.pause(wait_s)
        if self._checkpoints.due(self._working):
            self._checkpoints.save(self._working)
        self._retry.reset()
        if self._refinements.waiting:
            self._refinements.check_due(self._working.state)
        wait_s = self._checkpoints.due_in_s(self._working)
        if self._refinements.waiting or not self._task.log_is_local:
            wait_s = min(wait_s, WAIT_S)
        if not self._mark.reported:
            wait_s = min(wait_s, retry_policy.RETRY_S)
        if self._task.wait_for_entries(self._store, self.stream, self._working.seq, wait_s):
            self._read_due = 0.0
            return 0.0
        if self._read_due == 0.0 and not self._task.log_is_local:
            self._read_due = time.monotonic() + WAIT_S
        if not self._task.is_set() and self._records.join_runs():  # a quiet moment; there may be more to join
            wait_s = min(wait_s, WAIT_S)
        return self._quiet(wait_s) if self._task.can_rest else 0.0

    def _quiet(self, wait_s: float) -> float:
        """Seconds until the next turn of a learner that has nothing to do. It rests if nobody uses the stream."""
        left_s = self._used_at + self._rest_after_s - time.monotonic()
        is_saved = self._checkpoints.due_in_s(self._working) == float("inf") and self._mark.reported
        if left_s > 0.0 or not is_saved:
            return min(wait_s, max(left_s, REPORT_S))
        if self._task.is_set():
            return 0.0
        self._rest()
        return float("inf")

    def _refuse_all(self, reason: Callable[[], ServiceError]) -> None:
        """Fail every request that waits, and every later one, with the reason."""
        self._sink.fail(reason)
        self.feed.fail(reason)
        self._snapshot_requests.end(reason)

    def _gone(self) -> ServiceError:
        return StreamGoneError(f"stream {self._name!r} was deleted; create it again or name another")

    def _ended(self) -> ServiceError:
        if self.superseded:
            return NotReadyError(f"another process learns stream {self._name!r} now ({self.failure}); ask again")
        if self.failure is not None:
            return LearnerStoppedError(
                f"the learner of stream {self._name!r} has stopped ({self.failure}); see the service's log, "
                "and restart the service when the cause is removed"
            )
        return NotReadyError("the service is stopping; ask again when it runs")
