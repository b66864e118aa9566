"""The rules that every backend keeps alike, as functions of plain numbers: what is refused, known, dropped."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from shoal_service.errors import (
    IdempotencyMismatchError,
    LimitError,
    LogGapError,
    OverloadedError,
    SettingsMovedError,
    StaleWriterError,
    StoreUnavailableError,
    StreamGoneError,
    UnknownStreamError,
)
from shoal_service.store.contract import Appended, IdempotencyKey


class LogMark(NamedTuple):
    """A place in the log, between two entries, in the three units that are counted."""

    seq: int
    log_offset: int
    payload_bytes: int
    """Payload bytes of all entries up to here, trimmed ones too."""

    def after(self, n_points: int, n_bytes: int) -> "LogMark":
        """The place behind one more entry."""
        return LogMark(self.seq + 1, self.log_offset + n_points, self.payload_bytes + n_bytes)


START = LogMark(0, 0, 0)


class Answer(NamedTuple):
    """What was answered to an idempotency key, and when."""

    digest: bytes
    seq: int
    log_offset: int
    n_points: int
    at: float
    ordinal: int
    """Counts the keys of a stream, from 1."""


class AnswerLimits(NamedTuple):
    """How long an answer is known."""

    keys: int
    age_s: float

    def known(self, answer: Answer, newest_ordinal: int, now: float) -> bool:
        """Whether the answer still counts. A clock that was set back makes it known for longer, never forgotten."""
        return answer.ordinal > newest_ordinal - self.keys and now - answer.at < self.age_s


def replay(answer: Answer, asked: IdempotencyKey) -> Appended:
    """The first answer once more, or IdempotencyMismatchError."""
    if answer.digest != asked.digest:
        raise IdempotencyMismatchError(
            f"the idempotency key {asked.key!r} was used for another request, which became entry {answer.seq}; "
            "send a new request under a new key"
        )
    return Appended(answer.seq, answer.log_offset, answer.n_points, replayed=True)


def check_budget(name: str, unapplied_bytes: int, budget_bytes: int) -> None:
    """OverloadedError when the log that waits is over its budget already."""
    if unapplied_bytes > budget_bytes:
        raise OverloadedError(
            f"stream {name!r} has {unapplied_bytes} bytes waiting to be learnt, over its budget of {budget_bytes}; "
            "send again once it has caught up"
        )


def check_settings(name: str, expected: bytes | None, held: bytes) -> None:
    """SettingsMovedError when certain settings are expected, and others are the record's."""
    if expected not in (None, held):
        raise settings_moved(name)


def settings_moved(name: str) -> SettingsMovedError:
    """The error for a change that was made of settings which are no longer the stream's."""
    return SettingsMovedError(f"the settings of stream {name!r} were changed meanwhile; read them again")


def check_epoch(name: str, epoch: int, current: int) -> None:
    """StaleWriterError unless the epoch is the one given out last."""
    if epoch != current:
        raise StaleWriterError(f"stream {name!r} is at writer epoch {current}; the writer of epoch {epoch} must stop")


def check_room(name: str, n_streams: int, max_streams: int) -> None:
    """LimitError when one more stream would be too many."""
    if n_streams >= max_streams:
        raise LimitError(f"stream {name!r} would be one more than the limit of {max_streams}; delete one first")


def check_reached(name: str, what: str, seq: int, end: LogMark) -> None:
    """ValueError for a place that the log has not reached."""
    if not 0 <= seq <= end.seq:
        raise ValueError(f"{what} at entry {seq} of stream {name!r}, whose log ends at entry {end.seq}")


def check_held(name: str, after_seq: int, floor: LogMark, end: LogMark) -> None:
    """LogGapError unless every entry after `after_seq` is held, `floor` being the last one trimmed."""
    if after_seq > end.seq:
        raise gap(name, f"entry {after_seq} was applied, but the log ends at entry {end.seq}")
    if after_seq < floor.seq:
        raise gap(name, f"entry {after_seq + 1} is asked for, but the oldest one held is {floor.seq + 1}")


def gap(name: str, what: str) -> LogGapError:
    """The error for a log that does not hold what it should."""
    return LogGapError(f"the log of stream {name!r} has a gap: {what}; restore the stream from a snapshot")


def gone(name: str, incarnation: str) -> StreamGoneError:
    """The error for a stream that was deleted since."""
    return StreamGoneError(f"stream {name!r} of incarnation {incarnation} is gone; ask for it anew by its name")


def unknown(name: str) -> UnknownStreamError:
    """The error for a name that no stream has."""
    return UnknownStreamError(f"there is no stream {name!r}; create it, or list the streams for their names")


def closed() -> StoreUnavailableError:
    """The error after the end."""
    return StoreUnavailableError("the store is closed; open it again")


def missing_needs(name: str, what: str) -> LogGapError:
    """The error for an entry that could never be applied."""
    return LogGapError(f"an entry of stream {name!r} needs {what}, which is not held; begin its work anew")


def check_entries_held(name: str, after_seq: int, floor: LogMark, end: LogMark) -> None:
    """LogGapError unless every entry after `after_seq` is held, for an entry that needs them."""
    if not floor.seq <= after_seq <= end.seq:
        raise missing_needs(name, f"entries {after_seq + 1} to {end.seq}")


def check_same_blob(name: str, key: str, same: bool) -> None:
    """ValueError where another blob has the key."""
    if not same:
        raise ValueError(f"another blob of stream {name!r} has the key {key!r}; give each blob a key of its own")


def last_droppable(
    floor: LogMark, kept: Sequence[tuple[int, int | None]], keep_after: int | None, needed: Iterable[tuple[int, int]]
) -> int:
    """The last entry that a trim may drop, `floor.seq` when there is none.

    `kept` has seq and window_seq of the checkpoints, newest first; `needed` seq and after_seq of entries with needs.
    """
    if len(kept) < 2:
        return floor.seq
    older = kept[1][0]
    limits = [older, *(window for _, window in kept if window is not None)]
    limits += [after for seq, after in needed if seq > older]
    limits += [] if keep_after is None else [keep_after]
    return max(floor.seq, min(limits))
