"""The one thread of a process that has refinements made: it claims them, one after another, and leads each to the log.

A claim is a record in the store that says who runs it; the worker writes it anew every second, with the progress. Who
sees a record of another worker stand still for three leases (by its own clock, so no two clocks are compared) may claim
it again. Two workers at the same refinement do no harm: the second entry in the log is refused, on every replay alike.
"""

import contextlib
import hashlib
import queue
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal_service.errors import NotReadyError, ServiceError, StoreError, StreamGoneError, UnknownStreamError
from shoal_service.settings import Settings
from shoal_service.store import Checkpoint, EntryKind, References, Store
from shoal_service.streams.refining.book import Held, RefinementBook, StreamKey
from shoal_service.streams.refining.claim import BEAT_S, Claim
from shoal_service.streams.refining.entry import AdoptionEntry, to_payload
from shoal_service.streams.refining.process import (
    ChildDiedError,
    Outcome,
    RefiningProcess,
    RefusedError,
    StoppedError,
    Task,
)
from shoal_service.streams.refining.record import Refinement
from shoal_service.streams.refining.rows import READ_BYTES, between, payloads, write_window
from shoal_service.streams.refining.scratch import Scratch

LEASES = 3
"""Times `lease_s` that the record of a refinement may stand still: a worker is busier than a learner that leads."""
IDLE_S = 300.0
"""A child that has nothing to do for so long is ended: it holds some 200 MiB."""
RETRY_S = 1.0
"""Pause after the first attempt that failed; it doubles with each."""
POLL_S = 1.0
PATIENCE_S = 60.0
"""How long a learner that is busy, or reads its log after a start, is waited for."""
LOOK_AGAIN_S = 0.2
_ANY_BUDGET = 1 << 62

BaseOf = Callable[[str, str], Checkpoint]
"""The state of a stream (name, incarnation) that a refinement is to be made of. Raises ServiceError."""


@dataclass
class RefiningTally:
    """What a worker has done since its process started."""

    made: int = 0
    """Refinements that a child has worked out, adopted or not."""
    seconds: float = 0.0
    """Wall time that they took, from the state to the entry in the log."""
    attempts_failed: int = 0
    failed: int = 0
    """Refinements given up after as many attempts as are allowed."""


class RefiningWorker:
    """Works from `start` to `close`. `nudge` is for any thread."""

    def __init__(self, store: Store, settings: Settings, log: Any, base_of: BaseOf, *, alone: bool) -> None:
        """`alone`: no other process works on this store's refinements, so those of another owner are abandoned."""
        self._store = store
        self._settings = settings
        self._log = log
        self._base_of = base_of
        self._alone = alone
        self._abandoned_s = LEASES * max(settings.lease_s, BEAT_S)
        self._owner = uuid.uuid4().hex
        self.tally = RefiningTally()
        self._process = RefiningProcess(settings.refine_nice)
        self._scratch = Scratch(settings.data_dir / "refining" if settings.store == "sqlite" else None)
        self._nudged: queue.SimpleQueue[StreamKey | None] = queue.SimpleQueue()
        self._seen: dict[str, tuple[int, float]] = {}  # records of others: version, and when it was first seen
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="refining", daemon=True)

    @property
    def child_pid(self) -> int | None:
        """Process id of the child, while there is one."""
        return self._process.pid

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def nudge(self, name: str, incarnation: str) -> None:
        """There may be something to do for a stream."""
        self._nudged.put(StreamKey(name, incarnation))

    def close(self, timeout_s: float) -> bool:
        """End the child and the thread; what was begun is begun anew by the next one. True when it has ended."""
        self._stopping.set()
        self._process.end()
        self._nudged.put(None)
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        ended = not self._thread.is_alive()
        if ended:
            self._process.discard()
        self._scratch.close()
        return ended

    # -- in the thread

    def _run(self) -> None:
        idle_since = looked = time.monotonic()
        self._nudge_open()
        while not self._stopping.is_set():
            try:
                key = self._nudged.get(timeout=POLL_S)
            except queue.Empty:
                if not self._alone and time.monotonic() - looked > self._settings.lease_s:  # for what it was not told
                    looked = time.monotonic()
                    self._nudge_open()
                if time.monotonic() - idle_since > IDLE_S:
                    self._process.discard()
                continue
            if key is not None:
                self._serve(key)
                idle_since = time.monotonic()

    def _nudge_open(self) -> None:
        """Look at every stream that has a refinement that waits, or was being made when its worker ended."""
        try:
            for record in self._store.list_streams():
                book = RefinementBook(self._store, record.name, record.incarnation)
                with contextlib.suppress(StreamGoneError):
                    if any(held.refinement.open for held in book.all()):
                        self.nudge(record.name, record.incarnation)
        except StoreError as error:
            self._log.warning("refining_interrupted", reason=str(error))

    def _serve(self, key: StreamKey) -> None:
        """Make every refinement of the stream that can be claimed."""
        book = RefinementBook(self._store, *key)
        try:
            while not self._stopping.is_set() and (held := self._claimed(book)) is not None:
                self._work(book, held)
        except (StreamGoneError, UnknownStreamError):
            pass  # and all its refinements with it
        except StoreError as error:
            self._log.warning("refining_interrupted", stream=key.name, reason=str(error))
            if not self._stopping.wait(RETRY_S):
                self._nudged.put(key)
        except Exception:  # noqa: BLE001 - one stream's fault must not end the thread that serves all
            self._log.error("refining_failed", stream=key.name, exc_info=True)

    def _claimed(self, book: RefinementBook) -> Held | None:
        """The oldest refinement that waits, or was abandoned, now this worker's own; None while another one runs."""
        for held in reversed(book.all()):
            refinement = held.refinement
            if refinement.state == "running" and not self._is_abandoned(held):
                return None
            if refinement.open and (claimed := self._claim(book, held)) is not None:
                return claimed
        return None

    def _claim(self, book: RefinementBook, held: Held) -> Held | None:
        refinement = held.refinement
        if refinement.attempts >= self._settings.refine_attempts:
            reason = refinement.reason or "the process that made it has ended"
            book.change(held, refinement.but(state="failed", reason=reason, progress=None))
            return None
        claim = refinement.but(
            state="running", owner=self._owner, attempts=refinement.attempts + 1, progress=None, entry_seq=None
        )
        return book.change(held, claim)

    def _is_abandoned(self, held: Held) -> bool:
        refinement = held.refinement
        if refinement.owner == self._owner:
            return False
        if self._alone:
            return True
        version, since = self._seen.get(refinement.id, (0, 0.0))
        if version != held.version:
            self._seen[refinement.id] = held.version, time.monotonic()
            return False
        return time.monotonic() - since > self._abandoned_s

    def _work(self, book: RefinementBook, held: Held) -> None:
        """One attempt, and what is to be said of it."""
        claim = Claim(book, held, self._stopping.is_set)
        log = self._log.bind(stream=book.name, refinement=held.refinement.id)
        try:
            with self._scratch.folder() as folder:
                self._make(claim, folder)
        except StoppedError:
            log.info("refinement_stopped")
        except RefusedError as error:
            claim.write(state="not-adopted", reason=str(error), progress=None)
        except (ChildDiedError, ServiceError, OSError, ValueError) as error:
            if isinstance(error, StreamGoneError | UnknownStreamError):
                raise
            log.warning("refinement_attempt_failed", attempt=held.refinement.attempts, reason=str(error))
            self._put_back(claim, f"{error}".strip().splitlines()[-1])

    def _put_back(self, claim: Claim, reason: str) -> None:
        attempts = claim.refinement.attempts
        self.tally.attempts_failed += 1
        if attempts >= self._settings.refine_attempts:
            self.tally.failed += 1
            claim.write(state="failed", reason=reason, progress=None, window_seq=None)
            return
        claim.write(state="queued", reason=reason, progress=None, window_seq=None)
        self._stopping.wait(RETRY_S * 2 ** (attempts - 1))

    def _make(self, claim: Claim, folder: Path) -> None:
        """From the state to the entry in the log."""
        began = time.monotonic()
        key, refinement = claim.key, claim.refinement
        base = self._base(claim)
        if base.window_seq is None:
            raise RefusedError("the stream keeps no window of points to divide anew")
        claim.write(base_seq=base.seq, window_seq=base.window_seq)
        task = self._write_files(key, base, refinement, folder)
        outcome = self._process.refine(task, self._settings.refine_timeout_s, claim.beat)
        claim.write(
            reason=None if outcome.worthwhile else outcome.reason,
            report=outcome.report,
            base_offset=outcome.report.get("base_offset"),
            seconds=round(time.monotonic() - began, 3),
        )
        self._append(claim, base, outcome, task.result.read_bytes())
        self.tally.made += 1
        self.tally.seconds += time.monotonic() - began

    def _base(self, claim: Claim) -> Checkpoint:
        """The state with all that the log holds as of now, or NotReadyError after `PATIENCE_S`.

        A learner that has just been started has an empty state, of which a refinement would be refused for good.
        """
        least, until = self._store.tail(*claim.key).seq, time.monotonic() + PATIENCE_S
        while (base := self._base_of(*claim.key)).seq < least:
            if time.monotonic() > until:
                behind = f"{least - base.seq:,} entries of its log are still to be learnt after {PATIENCE_S:g} s"
                raise NotReadyError(f"stream {claim.key.name!r} is busy: {behind}")
            if not claim.beat(None) or self._stopping.wait(LOOK_AGAIN_S):
                raise StoppedError
        return base

    def _write_files(self, key: StreamKey, base: Checkpoint, refinement: Refinement, folder: Path) -> Task:
        task = Task(folder / "state", folder / "window", folder / "result", refinement.method, refinement.window)
        task.state.write_bytes(base.blob)
        set_aside = self._store.dead_letter_reasons(*key).keys()
        read = lambda after: self._store.read(*key, after, max_bytes=READ_BYTES)  # noqa: E731
        write_window(task.window, payloads(between(read, base.window_seq or 0, base.seq), set_aside.__contains__))
        return task

    def _append(self, claim: Claim, base: Checkpoint, outcome: Outcome, blob: bytes) -> None:
        """The blob, then the entry that names it; the learner says the rest."""
        key, refinement = claim.key, claim.refinement
        blob_key = f"{refinement.id}.{refinement.attempts}.{self._owner[:8]}"
        entry = AdoptionEntry(
            refinement=refinement.id,
            verdict="adopt" if outcome.worthwhile else "postpone",
            base_seq=base.seq,
            base_offset=outcome.report["base_offset"],
            blob=blob_key,
            sha256=hashlib.sha256(blob).hexdigest(),
        )
        if not claim.beat(None):
            raise StoppedError
        self._store.put_blob(*key, blob_key, blob)
        references = References(blob_key, base.seq)
        try:
            appended = self._store.append(
                *key, EntryKind.ADOPTION, to_payload(entry), 0, budget_bytes=_ANY_BUDGET, references=references
            ).result()
        except StoreError:
            with contextlib.suppress(StoreError):
                self._store.drop_blob(*key, blob_key)
            raise
        with contextlib.suppress(StoppedError):  # the learner was faster
            claim.write(entry_seq=appended.seq, progress=None)
