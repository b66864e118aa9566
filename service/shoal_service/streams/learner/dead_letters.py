"""Dead letters of a stream: entries that the learner cannot apply.

The first failure of an entry makes it a suspect; the log is replayed and the entry tried again. The second failure
stores it as a dead letter, durably, and every later replay skips it.
"""

from typing import Any

from shoal_service.store import DeadLetter, Entry, EntryKind, Store, StreamRecord
from shoal_service.streams.learner.apply import WorkingState, settings_in
from shoal_service.streams.learner.counters import LearnerCounters
from shoal_service.streams.learner.retry_policy import RetryPolicy

REASON_KEPT = 1_000
"""Characters of a dead letter's reason that are kept."""


class DeadLetters:
    """The dead letters of one stream, as its one writer keeps them. Its thread alone changes them; any may read."""

    def __init__(
        self, store: Store, record: StreamRecord, retry: RetryPolicy, counters: LearnerCounters, log: Any
    ) -> None:
        self._store = store
        self._name, self._incarnation = record.name, record.incarnation
        self._retry = retry
        self._counters = counters
        self._log = log
        self._epoch = 0
        self._reasons: dict[int, str] = {}
        self._suspects: set[int] = set()
        self._unsettled: set[int] = set()  # new letters whose settings the stream's record still holds

    def load(self, epoch: int) -> None:
        """Read those in the store."""
        self._epoch = epoch
        self._reasons = self._retry.until_answered(
            lambda: self._store.dead_letter_reasons(self._name, self._incarnation)
        )

    def __len__(self) -> int:
        return len(self._reasons)

    def reason(self, seq: int) -> str | None:
        """The reason why an entry is a dead letter, or None."""
        return self._reasons.get(seq)

    def record_failure(self, entry: Entry, error: Exception) -> bool:
        """Record that an entry failed. True when this was the second time, which makes it a dead letter."""
        reason = f"{type(error).__name__}: {error}"[:REASON_KEPT]
        if entry.seq not in self._suspects:
            self._suspects.add(entry.seq)
            self._log.warning("entry_failed", seq=entry.seq, log_offset=entry.log_offset, reason=reason)
            return False
        letter = DeadLetter(entry.seq, entry.log_offset, entry.n_points, reason, entry.payload)
        self._retry.until_answered(
            lambda: self._store.add_dead_letter(self._name, self._incarnation, self._epoch, letter)
        )
        self._reasons[entry.seq] = reason
        self._counters.dead_letters += 1
        self._log.error("dead_letter", seq=entry.seq, log_offset=entry.log_offset, kind=str(entry.kind), reason=reason)
        if entry.kind in (EntryKind.SETTINGS, EntryKind.RESTORE):
            self._unsettled.add(entry.seq)
        return True

    def record_success(self, entry: Entry) -> None:
        """Record that an entry was applied."""
        self._suspects.discard(entry.seq)

    def settle(self, entry: Entry, working: WorkingState) -> None:
        """Put the settings of `working` into the stream's record when a new letter, which changed them, is skipped.

        Once for each letter. Does nothing when a later entry has changed the record again.
        """
        if entry.seq not in self._unsettled:
            return
        self._unsettled.discard(entry.seq)
        record = self._retry.until_answered(lambda: self._store.get_stream(self._name)).settings
        refused = settings_in(entry, working.state.settings, record)
        if refused is not None:
            in_force = working.state.settings.to_json().encode()
            self._retry.until_answered(
                lambda: self._store.replace_settings(self._name, self._incarnation, self._epoch, refused, in_force)
            )
