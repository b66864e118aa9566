"""Refinement worker: the thread of a process that claims refinements, one after another, and has a child run each."""

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from shoal_service.errors import NotReadyError, ServiceError, StoreError, StreamGoneError, UnknownStreamError
from shoal_service.refining import write_window
from shoal_service.settings import Settings
from shoal_service.store import Checkpoint, EntryKind, NewEntry, References, Store
from shoal_service.streams.refinement.adopt import AdoptionEntry
from shoal_service.streams.refinement.job_lease import JobLease, JobLeases
from shoal_service.streams.refinement.process import (
    ChildDiedError,
    Outcome,
    RefinementProcess,
    RefusedError,
    StoppedError,
    Task,
    WorkDir,
)
from shoal_service.streams.refinement.records import Refinement, RefinementRecords, StreamKey
from shoal_service.streams.refinement.window_rows import batches_of, entries_between
from shoal_service.tracing import span

IDLE_S = 300.0
"""Time after which an idle child is ended, because of its memory."""
RETRY_S, MAX_RETRY_S = 1.0, 60.0
"""Pause after the first attempt that gave no result. It doubles with each in a row."""
POLL_S = 1.0
BASE_TIMEOUT_S = 60.0
"""Longest wait for a learner that is busy, or that replays its log after a start."""
BASE_POLL_S = 0.2
_NO_BUDGET = 1 << 62

StateOf = Callable[[str, str], Checkpoint]
"""The state of a stream (name, incarnation) to be refined. Raises ServiceError."""


class _Pause(NamedTuple):
    """Pause of a stream whose refinements cannot be worked on now."""

    until: float
    length_s: float


@dataclass
class RefinementCounters:
    """Counters of a worker since its process started."""

    made: int = 0
    """Refinements that a child has computed, adopted or not."""
    seconds: float = 0.0
    """Wall time of those, from the state to the entry in the log."""
    attempts_failed: int = 0
    failed: int = 0
    """Refinements given up after the largest number of attempts."""


class RefinementWorker:
    """Works from `start` to `close`. Any thread may call `notify`."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        log: Any,
        state_of: StateOf,
        *,
        alone: bool,
        serves: Callable[[str, str], bool] = lambda name, incarnation: True,
    ) -> None:
        """`alone`: no other process refines the streams of this store, so another owner's refinement is abandoned.

        `serves(name, incarnation)`: whether `state_of` can give the state of a stream here.
        """
        self._store = store
        self._settings = settings
        self._log = log
        self._state_of = state_of
        self._serves = serves
        self._alone = alone
        self.counters = RefinementCounters()
        self._process = RefinementProcess(settings.refine_nice)
        self._work_dir = WorkDir(settings.data_dir / "refining" if settings.store == "sqlite" else None)
        self._notified: dict[StreamKey, None] = {}  # in the order of the first notice
        self._notice = threading.Condition()
        self._postponed: dict[StreamKey, _Pause] = {}
        self._stopping = threading.Event()
        self._leases = JobLeases(settings, alone=alone, called_off=self._stopping.is_set)
        self._thread = threading.Thread(target=self._run, name="refining", daemon=True)

    @property
    def child_pid(self) -> int | None:
        """Process id of the child, while there is one."""
        return self._process.pid

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def notify(self, name: str, incarnation: str) -> None:
        """Report that a stream may have a refinement to be made. Several notices before the next look are one."""
        with self._notice:
            self._notified[StreamKey(name, incarnation)] = None
            self._notice.notify()

    def close(self, timeout_s: float) -> bool:
        """End the child and the thread; True when both have ended. The next worker begins unfinished work again."""
        self._stopping.set()
        self._process.end()
        with self._notice:
            self._notice.notify()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        ended = not self._thread.is_alive()
        if ended:
            self._process.discard()
        self._work_dir.close()
        return ended

    # -- in the thread

    def _run(self) -> None:
        idle_since = looked = time.monotonic()
        self._notify_open()
        while not self._stopping.is_set():
            if (key := self._next_notified()) is not None:
                self._serve(key)
                idle_since = time.monotonic()
                continue
            if time.monotonic() - looked > self._settings.lease_s:
                looked = time.monotonic()
                self._look_again()
            if time.monotonic() - idle_since > IDLE_S:
                self._process.discard()

    def _next_notified(self) -> StreamKey | None:
        """The stream that was reported first. None when none is reported within `POLL_S`."""
        with self._notice:
            now = time.monotonic()
            for key in [key for key, pause in self._postponed.items() if pause.until <= now]:
                self._notified.setdefault(key)
            if not self._notified and not self._stopping.is_set():
                next_s = min((pause.until - now for pause in self._postponed.values()), default=POLL_S)
                self._notice.wait(min(next_s, POLL_S))
            if not self._notified:
                return None
            key = next(iter(self._notified))
            del self._notified[key]
            return key

    def _look_again(self) -> None:
        """Queue the streams with a refinement that nobody may report: a notice was lost, or an outcome not recorded."""
        if not self._alone:
            self._notify_open()
            return
        for key in self._leases.watched:
            self.notify(*key)

    def _notify_open(self) -> None:
        """Queue every stream served here with an open refinement, also one that was running when its worker ended."""
        try:
            for record in self._store.list_streams():
                if not self._serves(record.name, record.incarnation):
                    continue
                records = RefinementRecords(self._store, record.name, record.incarnation)
                with contextlib.suppress(StreamGoneError):
                    if any(stored.refinement.open for stored in records.all()):
                        self.notify(*records.key)
        except StoreError as error:
            self._log.warning("refining_interrupted", reason=str(error))

    def _serve(self, key: StreamKey) -> None:
        """Run every refinement of the stream that can be claimed, unless others serve it or it is paused."""
        records = RefinementRecords(self._store, *key)
        pause = self._postponed.get(key)
        if not self._serves(*key):
            self._postponed.pop(key, None)  # or it would be looked at without end; who serves it looks by itself
            return
        if pause is not None and pause.until > time.monotonic():
            return
        try:
            while not self._stopping.is_set() and (lease := self._leases.claim_next(records)) is not None:
                if not self._attempt(lease):
                    self._postpone(key, pause)
                    return
            self._postponed.pop(key, None)
        except (StreamGoneError, UnknownStreamError):
            self._postponed.pop(key, None)  # its refinements are deleted with it
        except StoreError as error:
            self._log.warning("refining_interrupted", stream=key.name, reason=str(error))
            self._postpone(key, pause)
        except Exception:  # noqa: BLE001 - the fault of one stream must not end the thread that serves all
            self._log.error("refining_failed", stream=key.name, exc_info=True)
            self._postpone(key, pause)

    def _postpone(self, key: StreamKey, before: _Pause | None) -> None:
        length_s = RETRY_S if before is None else min(2 * before.length_s, MAX_RETRY_S)
        self._postponed[key] = _Pause(time.monotonic() + length_s, length_s)

    def _attempt(self, lease: JobLease) -> bool:
        """One attempt at a refinement, and the record of its result. False when the stream must wait for a while."""
        log = self._log.bind(stream=lease.records.key.name, refinement=lease.refinement.id)
        about = {"shoal.stream": lease.records.key.name, "shoal.refinement": lease.refinement.id}
        try:
            with (
                span("refine", about | {"shoal.attempt": lease.refinement.attempts}),
                self._work_dir.folder() as folder,
            ):
                self._refine(lease, folder)
        except StoppedError:
            log.info("refinement_stopped")
            if self._stopping.is_set():  # another worker can then claim it now, rather than after some leases
                with contextlib.suppress(StoreError):
                    self._end_attempt(lease, state="queued")
        except RefusedError as error:
            self._end_attempt(lease, state="not-adopted", reason=str(error))
        except ChildDiedError as error:
            log.warning("refinement_attempt_failed", attempt=lease.refinement.attempts, reason=str(error))
            return self._record_failure(lease, f"{error}".strip().splitlines()[-1])
        except (ServiceError, OSError) as error:
            if isinstance(error, StreamGoneError | UnknownStreamError):
                raise
            log.warning("refinement_postponed", attempt=lease.refinement.attempts, reason=str(error))
            self._end_attempt(lease, state="queued", reason=str(error))
            return False
        except Exception as error:
            log.error("refinement_attempt_failed", attempt=lease.refinement.attempts, exc_info=True)
            return self._record_failure(lease, f"{type(error).__name__}: {error}")
        return True

    @staticmethod
    def _end_attempt(lease: JobLease, **changes: Any) -> None:
        """Write the end of an attempt, unless another process has changed the record."""
        with contextlib.suppress(StoppedError):
            lease.write(**changes, progress=None, window_seq=None)

    def _record_failure(self, lease: JobLease, reason: str) -> bool:
        failures = lease.refinement.failures + 1
        self.counters.attempts_failed += 1
        if failures >= self._settings.refine_attempts:
            self.counters.failed += 1
            self._end_attempt(lease, state="failed", failures=failures, reason=reason)
            return True
        self._end_attempt(lease, state="queued", failures=failures, reason=reason)
        return False

    def _refine(self, lease: JobLease, folder: Path) -> None:
        """From the state to the entry in the log."""
        began = time.monotonic()
        key, refinement = lease.records.key, lease.refinement
        base = self._base(lease)
        if base.window_seq is None:
            raise RefusedError("the stream keeps no window of points to refine")
        lease.write(base_seq=base.seq, window_seq=base.window_seq)
        task = self._write_files(key, base, refinement, folder)
        outcome = self._process.refine(task, self._settings.refine_timeout_s, lease.beat)
        lease.write(
            reason=None if outcome.worthwhile else outcome.reason,
            report=outcome.report,
            base_offset=outcome.report.get("base_offset"),
            seconds=round(time.monotonic() - began, 3),
        )
        self._append(lease, base, outcome, task.result.read_bytes())
        self.counters.made += 1
        self.counters.seconds += time.monotonic() - began

    def _base(self, lease: JobLease) -> Checkpoint:
        """The state with all that the log holds now. NotReadyError after `BASE_TIMEOUT_S`.

        A learner that has just started has an empty state, and a refinement of that would be refused for good.
        """
        key = lease.records.key
        least, until = self._store.tail(*key).seq, time.monotonic() + BASE_TIMEOUT_S
        while (base := self._state_of(*key)).seq < least:
            if time.monotonic() > until:
                behind = f"{least - base.seq:,} entries of its log are not learnt after {BASE_TIMEOUT_S:g} s"
                raise NotReadyError(f"stream {key.name!r} is busy: {behind}")
            if not lease.beat(None) or self._stopping.wait(BASE_POLL_S):
                raise StoppedError
        return base

    def _write_files(self, key: StreamKey, base: Checkpoint, refinement: Refinement, folder: Path) -> Task:
        task = Task(folder / "state", folder / "window", folder / "result", refinement.method, refinement.window)
        task.state.write_bytes(base.blob)
        dead = self._store.dead_letter_reasons(*key).keys()
        entries = entries_between(self._store, key, base.window_seq or 0, base.seq)
        write_window(task.window, batches_of(entries, dead.__contains__))
        return task

    def _append(self, lease: JobLease, base: Checkpoint, outcome: Outcome, blob: bytes) -> None:
        """Store the blob, then the entry that names it. The learner records the outcome."""
        key, refinement = lease.records.key, lease.refinement
        blob_key = f"{refinement.id}.{refinement.attempts}.{self._leases.owner[:8]}"
        entry = AdoptionEntry(
            refinement=refinement.id,
            verdict="adopt" if outcome.worthwhile else "postpone",
            base_seq=base.seq,
            base_offset=outcome.report["base_offset"],
            blob=blob_key,
            sha256=hashlib.sha256(blob).hexdigest(),
        )
        if not lease.beat(None):
            raise StoppedError
        self._store.put_blob(*key, blob_key, blob)
        new = NewEntry(EntryKind.ADOPTION, entry.to_payload(), references=References(blob_key, base.seq))
        try:
            appended = self._store.append(*key, new, budget_bytes=_NO_BUDGET).result()
        except StoreError:
            with contextlib.suppress(StoreError):
                self._store.drop_blob(*key, blob_key)
            raise
        with contextlib.suppress(StoppedError):  # the learner was faster
            lease.write(entry_seq=appended.seq, progress=None)
