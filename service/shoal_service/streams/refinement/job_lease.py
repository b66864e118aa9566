"""Leases of refinements: which refinement a worker may run, and until when.

A claim writes the worker's name into the record, and the worker writes the record again every second, with the
progress. A worker that sees a record unchanged for several leases, by its own clock, may claim the refinement again;
no two clocks are compared. Two workers at the same refinement do no harm: every replay refuses the second entry
in the log.
"""

import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from shoal_service.errors import StoreUnavailableError
from shoal_service.settings import Settings
from shoal_service.streams.refinement.process import StoppedError
from shoal_service.streams.refinement.records import Refinement, RefinementRecords, StoredRefinement, StreamKey

BEAT_S = 1.0
"""Time between two writes of the record of a running refinement."""
LEASES = 3
"""Multiple of `lease_s` after which an unchanged record counts as abandoned. A worker is busier than a learner."""


class JobLease:
    """One refinement that this worker runs, as long as no other process changes its record."""

    def __init__(self, records: RefinementRecords, stored: StoredRefinement, called_off: Callable[[], bool]) -> None:
        self.records = records
        self._stored = stored
        self._called_off = called_off
        self._next_beat = 0.0

    @property
    def refinement(self) -> Refinement:
        """The record as last written."""
        return self._stored.refinement

    def write(self, **changes: Any) -> None:
        """Change the record. StoppedError when another process has changed it."""
        stored = self.records.change(self._stored, self.refinement.with_changes(**changes))
        if stored is None:
            raise StoppedError
        self._stored = stored
        self._next_beat = time.monotonic() + BEAT_S

    def beat(self, progress: dict[str, Any] | None) -> bool:
        """Keep the lease. False when the work must stop."""
        if self._called_off():
            return False
        if progress is not None and self.refinement.progress is None:
            self._next_beat = 0.0
        if time.monotonic() >= self._next_beat:
            try:
                self.write(progress=progress or self.refinement.progress)
            except StoppedError:
                return False
            except StoreUnavailableError:  # the work continues, and the record is written when the store answers
                self._next_beat = time.monotonic() + BEAT_S
        return True


class _Watched(NamedTuple):
    """A running refinement that is not this worker's to run."""

    refinement: str
    version: int
    since: float
    """When this version was first seen (monotonic clock)."""


class JobLeases:
    """The claims of one worker."""

    def __init__(self, settings: Settings, *, alone: bool, called_off: Callable[[], bool]) -> None:
        """`alone`: no other process refines the streams of this store, so another owner's refinement is abandoned."""
        self._abandoned_s = LEASES * max(settings.lease_s, BEAT_S)
        self._alone = alone
        self._called_off = called_off
        self._watched: dict[StreamKey, _Watched] = {}
        self.owner = uuid.uuid4().hex

    @property
    def watched(self) -> list[StreamKey]:
        """Streams with a refinement that ran at the last look, in another process or up to its entry in the log."""
        return list(self._watched)

    def claim_next(self, records: RefinementRecords) -> JobLease | None:
        """Claim the oldest refinement that waits or is abandoned. None when there is none, or while another runs."""
        before = self._watched.pop(records.key, None)
        for stored in reversed(records.all()):
            refinement = stored.refinement
            if refinement.state == "running" and not self._is_own_or_alone(refinement):
                seen = (refinement.id, stored.version)
                now = before if before is not None and before[:2] == seen else _Watched(*seen, time.monotonic())
                if time.monotonic() - now.since <= self._abandoned_s:
                    self._watched[records.key] = now
                    return None
            if refinement.open and (claimed := self._claim(records, stored)) is not None:
                return JobLease(records, claimed, self._called_off)
        return None

    def _claim(self, records: RefinementRecords, stored: StoredRefinement) -> StoredRefinement | None:
        refinement = stored.refinement
        claim = refinement.with_changes(
            state="running", owner=self.owner, attempts=refinement.attempts + 1, progress=None, entry_seq=None
        )
        return records.change(stored, claim)

    def _is_own_or_alone(self, refinement: Refinement) -> bool:
        """Whether a running refinement is known to be abandoned, because no other worker can have it."""
        if refinement.owner == self.owner:  # nothing runs while this is asked: a reply to this worker was lost
            return refinement.entry_seq is None
        return self._alone
