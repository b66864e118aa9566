"""Records of the refinements of a stream, kept in the store as jobs and changed by compare-and-set.

Any number of processes may queue refinements, work on them and settle them. Each change names the version that it is
based on, so of two processes that change the same record one is refused.
"""

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from shoal_service.errors import IdempotencyMismatchError, OverloadedError
from shoal_service.store import Job, Store

MAX_OPEN = 8
"""Refinements of a stream that may wait or run at a time."""

State: TypeAlias = Literal["queued", "running", "adopted", "not-adopted", "failed"]
OPEN_STATES: Final = ("queued", "running")
"""States before the outcome."""

_log = logging.getLogger("shoal_service.store")


class Refinement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One refinement, from the request to the outcome."""

    id: str
    state: State
    method: str
    why: str
    """`asked`, or what made it due: `warm-up`, `doubled`, `period`, `misfit`."""
    created_at: float
    """Unix time, for people."""
    window: int | None = None
    """Largest number of newest rows to refine, where the request limits it."""
    reason: str | None = None
    """The reason why it was not adopted, or why it failed."""
    attempts: int = 0
    """Times that it was begun."""
    failures: int = 0
    """Attempts that failed by the child's fault. A worker that ends, or a learner that is busy, is none."""
    owner: str = ""
    """The worker that runs it."""
    progress: dict[str, Any] | None = None
    seconds: float | None = None
    """Wall time of the attempt that gave the result."""
    base_offset: int | None = None
    """Points seen by the state that it refines."""
    base_seq: int | None = None
    window_seq: int | None = None
    """Entries after this one are kept for it while it is open."""
    entry_seq: int | None = None
    """The entry of the log that holds the outcome, once there is one."""
    report: dict[str, Any] = {}
    """Report of the search: bounds, components before and after, rows, rounds."""

    @property
    def open(self) -> bool:
        """Whether it has no outcome yet."""
        return self.state in OPEN_STATES

    def with_changes(self, **changes: Any) -> "Refinement":
        """The same with some fields changed."""
        return msgspec.structs.replace(self, **changes)


class StreamKey(NamedTuple):
    """One incarnation of a stream."""

    name: str
    incarnation: str


class StoredRefinement(NamedTuple):
    """A refinement and the version of it that was read."""

    refinement: Refinement
    version: int


class RefinementRecords:
    """The records of one incarnation of a stream. Every method blocks, and raises as the store does."""

    def __init__(self, store: Store, name: str, incarnation: str) -> None:
        self._store = store
        self.key = StreamKey(name, incarnation)
        self._reported: set[str] = set()  # damaged records that the log has named

    def all(self) -> list[StoredRefinement]:
        """Those that are kept, newest first. A damaged one is left out, with a warning."""
        return list(self._decoded(self._store.jobs(*self.key)))

    def _decoded(self, jobs: list[Job]) -> Iterator[StoredRefinement]:
        for job in jobs:
            try:
                yield StoredRefinement(msgspec.json.decode(job.body, type=Refinement), job.version)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                if job.id not in self._reported:
                    self._reported.add(job.id)
                    said = "the record of refinement %r of stream %r is damaged and left out; request another (%s)"
                    _log.warning(said, job.id, self.key.name, error)

    def find(self, refinement_id: str) -> StoredRefinement | None:
        """One by its id."""
        return next((stored for stored in self.all() if stored.refinement.id == refinement_id), None)

    def queue(self, *, method: str, why: str, window: int | None = None, key: str | None = None) -> Refinement:
        """Queue a refinement. A second request with the same key returns the first one's refinement.

        IdempotencyMismatchError if that one has another method or window, OverloadedError when too many are open.
        """
        new = uuid.uuid5(uuid.NAMESPACE_OID, f"{self.key.incarnation}/{key}") if key is not None else uuid.uuid4()
        stored = self.all()
        known = next((s.refinement for s in stored if s.refinement.id == str(new)), None)
        if known is not None:
            return _same(known, method, window, key)
        if sum(s.refinement.open for s in stored) >= MAX_OPEN:
            raise OverloadedError(
                f"stream {self.key.name!r} has {MAX_OPEN} refinements that wait or run; ask again once some are done"
            )
        refinement = Refinement(
            id=str(new), state="queued", method=method, why=why, created_at=time.time(), window=window
        )
        if self._store.put_job(*self.key, refinement.id, msgspec.json.encode(refinement), version=0):
            return refinement
        found = self.find(refinement.id)  # another process got a request with the same key at the same moment
        return refinement if found is None else _same(found.refinement, method, window, key)

    def change(self, stored: StoredRefinement, refinement: Refinement) -> StoredRefinement | None:
        """Write it. None when another process has changed it since it was read."""
        body = msgspec.json.encode(refinement)
        if self._store.put_job(*self.key, refinement.id, body, version=stored.version):
            return StoredRefinement(refinement, stored.version + 1)
        return None

    def settle(self, refinement_id: str, outcome: Callable[[Refinement], Refinement]) -> None:
        """Write the outcome, against any other change. Nothing when it has an outcome, or is no longer kept."""
        while (stored := self.find(refinement_id)) is not None and stored.refinement.open:
            if self.change(stored, outcome(stored.refinement)) is not None:
                return


def _same(known: Refinement, method: str, window: int | None, key: str | None) -> Refinement:
    """The refinement that a key asked for before. Raises IdempotencyMismatchError if it is another one."""
    if (known.method, known.window) != (method, window):
        raise IdempotencyMismatchError(
            f"the idempotency key {key!r} was used for refinement {known.id}, of method {known.method} and window "
            f"{known.window}; send a new request under a new key"
        )
    return known
