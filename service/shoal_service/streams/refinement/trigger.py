"""The learner's part in refinements: it notices when one is due, applies what came of one, and says how it went.

What an adoption does is a function of the log: the blob that the entry names, the entries since its base, the state.
It is refused, on every replay alike, where a restore lies between its base and itself, where the points since are too
many to hold, and where the library finds that it does not fit: another one was adopted, the window was begun anew.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal_service.errors import OverloadedError, StoreError
from shoal_service.store import Entry, EntryKind, Store
from shoal_service.streams.learner.counters import Tally
from shoal_service.streams.refinement import adopt as entries
from shoal_service.streams.refinement.adopt import AdoptionEntry
from shoal_service.streams.refinement.record import Refinement
from shoal_service.streams.refinement.records import Held, RefinementBook
from shoal_service.streams.refinement.window_rows import READ_BYTES, between, last_rows, payloads

if TYPE_CHECKING:
    from shoal.mixture import MixtureState
    from shoal.sequential import AssimilateInfo

LOOK_S = 0.5
"""Least time between two looks at what is open."""
REST = 3.0
"""After a refinement during which more than a window of points came, the next is asked for when so many times its
duration have gone by: points that come meanwhile are learnt twice, and where they come so fast that one refinement
followed on the other, all of them would be."""
STALE_S = 60.0
"""A refinement whose record has not changed for so long keeps nothing in the log any more."""


class Gathered(NamedTuple):
    """What an adoption's entry needs beside itself."""

    entry: AdoptionEntry
    blob: bytes
    batches: list[bytes]
    """Payloads of the batches learnt since its base."""
    overtaken: str | None
    """Why it cannot be adopted any more, whatever it holds."""


class Outcome(NamedTuple):
    """What became of an adoption's entry."""

    state: "MixtureState"
    info: "AssimilateInfo | None"
    adopted: bool
    refused: str | None


def gather(store: Store, name: str, incarnation: str, entry: Entry, is_set_aside: Callable[[int], bool]) -> Gathered:
    """Read what `entry` needs. Raises what the store raises, and StoreFormatError for another blob than it names."""
    adoption = entries.from_payload(entry.payload)
    blob = entries.check_blob(adoption, store.get_blob(name, incarnation, adoption.blob))
    batches: list[bytes] = []
    n_bytes = 0
    read = lambda after: store.read(name, incarnation, after, max_bytes=READ_BYTES)  # noqa: E731
    for since in between(read, adoption.base_seq, entry.seq - 1):
        if since.kind is EntryKind.RESTORE:  # the rows since are no longer those that follow its base
            return Gathered(adoption, blob, [], f"a restore (entry {since.seq}) came between it and the state it is of")
        if adoption.verdict == "postpone":
            continue
        batches += payloads([since], is_set_aside)
        n_bytes += len(since.payload)
        if n_bytes > entries.MOST_SINCE_BYTES:
            return Gathered(
                adoption, blob, [], f"over {entries.MOST_SINCE_BYTES:,} bytes of points came since its base"
            )
    return Gathered(adoption, blob, batches, None)


def adopt_inplace(state: "MixtureState", gathered: Gathered) -> Outcome:
    """Apply an adoption's entry. A refusal leaves `state` as it is; whatever else is raised may have spoilt it."""
    from shoal.errors import AdoptionError
    from shoal.refinement import adopt_inplace, check_adoptable, from_bytes, postponed

    if gathered.overtaken is not None:
        return Outcome(state, None, False, gathered.overtaken)
    refinement = from_bytes(gathered.blob)
    n_since = state.points_seen - refinement.base_offset
    try:
        check_adoptable(state, refinement, n_since)
        if gathered.entry.verdict == "postpone":
            return Outcome(postponed(state, refinement), None, False, None)
        adopted, info = adopt_inplace(state, refinement, last_rows(gathered.batches, n_since))
    except AdoptionError as error:
        return Outcome(state, None, False, str(error))
    return Outcome(adopted, info, True, None)


class Adopting:
    """What one learner does for refinements. Used by its thread alone."""

    def __init__(self, book: RefinementBook, tally: Tally, log: Any, nudge: Callable[[], None]) -> None:
        self.book = book
        self._tally = tally
        self._log = log
        self._nudge = nudge
        self._next_look = 0.0
        self._asked_at = -1  # points seen when one was asked for last, adopted or not
        self._asked_time = 0.0
        self._seen: dict[str, tuple[int, float]] = {}  # by id: version, and when it was first seen

    def look(self, state: "MixtureState") -> None:
        """Ask for a refinement if one is due and none is open. A store that does not answer is asked another time."""
        if time.monotonic() < self._next_look:
            return
        from shoal.refinement import refinement_due

        due = refinement_due(state)
        if due is None or 0 <= state.points_seen - self._asked_at < self._gap(state):
            return
        self._next_look = time.monotonic() + LOOK_S
        try:
            if any(held.refinement.open for held in self.book.all()):
                return
            asked = self.book.ask(method="vdp", why=due.why)
        except (StoreError, OverloadedError) as error:
            self._log.warning("refinement_not_asked", reason=str(error))
            return
        self._asked_at, self._asked_time = state.points_seen, time.monotonic()
        self._log.info("refinement_due", refinement=asked.id, why=due.why, points_seen=state.points_seen)
        self._nudge()

    @staticmethod
    def _gap(state: "MixtureState") -> int:
        """Points to wait for after one was asked for, so that those that fail do not follow on each other's heels.

        (One that came to an outcome has moved the schedule in the state itself.)
        """
        return max(1, min(state.settings.warmup_points, state.settings.window_step))

    def settle(self, entry: Entry, gathered: Gathered, outcome: Outcome) -> None:
        """Write down how the refinement of an entry ended."""
        self._settle(
            gathered.entry.refinement,
            lambda r: r.but(
                state="adopted" if outcome.adopted else "not-adopted",
                reason=outcome.refused or r.reason,
                entry_seq=entry.seq,
                progress=None,
            ),
        )
        said = {"refinement": gathered.entry.refinement, "seq": entry.seq}
        if outcome.adopted:
            self._tally.refinements_adopted += 1
            self._tally.last_adoption_offset = entry.log_offset
        else:
            self._tally.refinements_not_adopted += 1
        self._next_look = self._rested(outcome.state)
        if outcome.refused is not None:
            self._log.warning("adoption_refused", **said, reason=outcome.refused)
        else:
            self._log.info("refinement_adopted" if outcome.adopted else "refinement_not_adopted", **said)

    def failed(self, entry: Entry, reason: str | None) -> None:
        """An entry became a dead letter: say so of its refinement, if it is that of one."""
        if entry.kind is not EntryKind.ADOPTION:
            return
        self._tally.refinements_set_aside += 1
        refinement = entries.from_payload(entry.payload).refinement
        self._settle(refinement, lambda r: r.but(state="failed", reason=reason, entry_seq=entry.seq, progress=None))
        self._next_look = 0.0

    def _rested(self, state: "MixtureState") -> float:
        """When the next refinement may be asked for."""
        if self._asked_at < 0 or state.points_seen - self._asked_at <= state.settings.window_rows:
            return 0.0
        now = time.monotonic()
        return now + REST * (now - self._asked_time)

    def _settle(self, refinement: str, outcome: Callable[[Refinement], Refinement]) -> None:
        try:
            self.book.settle(refinement, outcome)
        except StoreError as error:
            self._log.warning("refinement_not_settled", refinement=refinement, reason=str(error))
        self._nudge()

    def keep_after(self) -> int | None:
        """Entries after this one are read by a refinement that runs; None where none does. Raises what the store does.

        One whose record stands still for a minute is no longer counted: its worker has died, and without another
        worker the log would grow for ever.
        """
        running = [held for held in self.book.all() if held.refinement.open and held.refinement.window_seq is not None]
        now = time.monotonic()
        self._seen = {held.refinement.id: self._since(held, now) for held in running}
        fresh = [h.refinement for h in running if now - self._seen[h.refinement.id][1] < STALE_S]
        return min((r.window_seq for r in fresh if r.window_seq is not None), default=None)

    def _since(self, held: Held, now: float) -> tuple[int, float]:
        seen = self._seen.get(held.refinement.id)
        return seen if seen is not None and seen[0] == held.version else (held.version, now)
