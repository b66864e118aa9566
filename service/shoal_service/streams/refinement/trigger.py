"""Trigger of refinements: the learner queues one when it is due, and records how each ended."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shoal_service.errors import OverloadedError, StoreError
from shoal_service.store import Entry, EntryKind
from shoal_service.streams.refinement.adopt import AdoptionEntry, AdoptionInputs, AdoptionOutcome
from shoal_service.streams.refinement.records import Refinement, RefinementRecords, StoredRefinement

if TYPE_CHECKING:
    from shoal.mixture import MixtureState

CHECK_S = 0.5
"""Shortest time between two reads of the records."""
PAUSE_FACTOR = 3.0
"""Pause after a refinement during which more than a window of points came, as a multiple of its duration. Points that
come during a refinement are learnt twice. Without the pause, a fast stream would have every point learnt twice."""
STALE_S = 60.0
"""A refinement whose record has not changed for so long keeps nothing in the log any more."""


@dataclass
class AdoptionCounters:
    """Outcomes of a stream's refinements since the process started."""

    adopted: int = 0
    not_adopted: int = 0
    """Not worth it, or refused."""
    dead_letters: int = 0
    """Entries that became a dead letter."""
    last_adoption_offset: int = 0
    """Log offset of the last adoption. 0: none since the start."""


class RefinementTrigger:
    """The learner's part in the refinements of its stream. Used by its thread alone."""

    def __init__(
        self, records: RefinementRecords, counters: AdoptionCounters, log: Any, notify_refiner: Callable[[], None]
    ) -> None:
        """`notify_refiner` is called when there may be a refinement to be made."""
        self._records = records
        self._counters = counters
        self._log = log
        self._notify_refiner = notify_refiner
        self.waiting = True
        """Whether a refinement may be due that is not queued: `check_due` is to be called again for the same state."""
        self._next_check = 0.0
        self._requested_at = -1  # points seen at the last request, adopted or not
        self._requested_time = 0.0
        self._seen: dict[str, tuple[int, float]] = {}  # by id: version, and when it was first seen

    def check_due(self, state: "MixtureState") -> None:
        """Queue a refinement if one is due and none is open. Otherwise one that is due is `waiting`."""
        self.waiting = True
        if time.monotonic() < self._next_check:
            return
        from shoal.refinement import refinement_due

        due = refinement_due(state)
        if due is None or 0 <= state.points_seen - self._requested_at < self._gap(state):
            self.waiting = False
            return
        self._next_check = time.monotonic() + CHECK_S
        try:
            if any(stored.refinement.open for stored in self._records.all()):
                return
            queued = self._records.queue(method="vdp", why=due.why)
        except (StoreError, OverloadedError) as error:
            self._log.warning("refinement_not_asked", reason=str(error))
            return
        self.waiting = False
        self._requested_at, self._requested_time = state.points_seen, time.monotonic()
        self._log.info("refinement_due", refinement=queued.id, why=due.why, points_seen=state.points_seen)
        self._notify_refiner()

    @staticmethod
    def _gap(state: "MixtureState") -> int:
        """Fewest points between two requests, so that failed refinements do not follow one another without a pause.

        A refinement with an outcome has moved the schedule in the state itself.
        """
        return max(1, min(state.settings.warmup_points, state.settings.window_step))

    def record_outcome(self, entry: Entry, inputs: AdoptionInputs, outcome: AdoptionOutcome) -> None:
        """Record how the refinement of an entry ended."""
        if outcome.adopted:
            self._counters.adopted += 1
            self._counters.last_adoption_offset = entry.log_offset
        else:
            self._counters.not_adopted += 1
        self._settle(
            inputs.entry.refinement,
            lambda r: r.with_changes(
                state="adopted" if outcome.adopted else "not-adopted",
                reason=outcome.refused or r.reason,
                entry_seq=entry.seq,
                progress=None,
            ),
        )
        fields = {"refinement": inputs.entry.refinement, "seq": entry.seq}
        self._next_check = self._end_of_pause(outcome.state)
        if outcome.refused is not None:
            self._log.warning("adoption_refused", **fields, reason=outcome.refused)
        else:
            self._log.info("refinement_adopted" if outcome.adopted else "refinement_not_adopted", **fields)

    def record_dead_letter(self, entry: Entry, reason: str | None) -> None:
        """Record that an entry became a dead letter, if it is the entry of a refinement."""
        if entry.kind is not EntryKind.ADOPTION:
            return
        self._counters.dead_letters += 1
        refinement = AdoptionEntry.from_payload(entry.payload).refinement
        self._settle(
            refinement, lambda r: r.with_changes(state="failed", reason=reason, entry_seq=entry.seq, progress=None)
        )
        self._next_check = 0.0

    def _end_of_pause(self, state: "MixtureState") -> float:
        """The time from which the next refinement may be queued."""
        if self._requested_at < 0 or state.points_seen - self._requested_at <= state.settings.window_rows:
            return 0.0
        now = time.monotonic()
        return now + PAUSE_FACTOR * (now - self._requested_time)

    def _settle(self, refinement: str, outcome: Callable[[Refinement], Refinement]) -> None:
        try:
            self._records.settle(refinement, outcome)
        except StoreError as error:
            self._log.warning("refinement_not_settled", refinement=refinement, reason=str(error))
        self._notify_refiner()

    def keep_after(self) -> int | None:
        """The entry after which a running refinement reads the log, or None. Raises as the store does.

        A refinement whose record has not changed for a minute does not count: its worker has died, and without another
        worker the log would grow without end.
        """
        running = [s for s in self._records.all() if s.refinement.open and s.refinement.window_seq is not None]
        now = time.monotonic()
        self._seen = {stored.refinement.id: self._first_seen(stored, now) for stored in running}
        fresh = [s.refinement for s in running if now - self._seen[s.refinement.id][1] < STALE_S]
        return min((r.window_seq for r in fresh if r.window_seq is not None), default=None)

    def _first_seen(self, stored: StoredRefinement, now: float) -> tuple[int, float]:
        seen = self._seen.get(stored.refinement.id)
        return seen if seen is not None and seen[0] == stored.version else (stored.version, now)
