"""Entries that a learner could not take: doubted at the first failure, set aside durably at the second."""

from typing import Any

from shoal_service.store import DeadLetter, Entry, EntryKind, Store, StreamRecord
from shoal_service.streams.applying import Working, settings_brought_by
from shoal_service.streams.patience import Patience
from shoal_service.streams.tally import Tally

REASON_KEPT = 1_000
"""Characters of a dead letter's reason that are kept."""


class DeadLetters:
    """The dead letters of one stream, seen from its one writer. Its thread alone changes them; any may read."""

    def __init__(self, store: Store, record: StreamRecord, patience: Patience, tally: Tally, log: Any) -> None:
        self._store = store
        self._name, self._incarnation = record.name, record.incarnation
        self._patience = patience
        self._tally = tally
        self._log = log
        self._epoch = 0
        self._reasons: dict[int, str] = {}
        self._suspects: set[int] = set()
        self._unsettled: set[int] = set()  # letters whose settings the stream's record still names

    def load(self, epoch: int) -> None:
        """Those that there are."""
        self._epoch = epoch
        self._reasons = self._patience.insist(lambda: self._store.dead_letter_reasons(self._name, self._incarnation))

    def __len__(self) -> int:
        return len(self._reasons)

    def reason(self, seq: int) -> str | None:
        """Why an entry is a dead letter, if it is one."""
        return self._reasons.get(seq)

    def doubt(self, entry: Entry, error: Exception) -> bool:
        """An entry failed: the first time it may try again. The second time it becomes a letter: True."""
        reason = f"{type(error).__name__}: {error}"[:REASON_KEPT]
        if entry.seq not in self._suspects:
            self._suspects.add(entry.seq)
            self._log.warning("entry_failed", seq=entry.seq, log_offset=entry.log_offset, reason=reason)
            return False
        letter = DeadLetter(entry.seq, entry.log_offset, entry.n_points, reason, entry.payload)
        self._patience.insist(lambda: self._store.add_dead_letter(self._name, self._incarnation, self._epoch, letter))
        self._reasons[entry.seq] = reason
        self._tally.dead_letters += 1
        self._log.error("dead_letter", seq=entry.seq, log_offset=entry.log_offset, kind=str(entry.kind), reason=reason)
        if entry.kind in (EntryKind.SETTINGS, EntryKind.RESTORE):
            self._unsettled.add(entry.seq)
        return True

    def taken(self, entry: Entry) -> None:
        """An entry went well."""
        self._suspects.discard(entry.seq)

    def passed_over(self, entry: Entry, working: Working) -> None:
        """A letter is being passed over in `working`: the record of the stream is to name the settings in force.

        Once a letter, when it is new: its settings are the record's, unless a later entry has brought others.
        """
        if entry.seq not in self._unsettled:
            return
        self._unsettled.discard(entry.seq)
        brought = settings_brought_by(entry)
        if brought is not None:
            in_force = working.state.settings.to_json().encode()
            self._patience.insist(
                lambda: self._store.replace_settings(self._name, self._incarnation, self._epoch, brought, in_force)
            )
