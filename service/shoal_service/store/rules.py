"""The rules that every backend keeps alike, as functions of plain numbers: what is refused, known, dropped."""

from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple

from shoal_service.errors import (
    IdempotencyMismatchError,
    LimitError,
    LogGapError,
    OverloadedError,
    StaleWriterError,
    StoreUnavailableError,
    StreamGoneError,
    UnknownStreamError,
)
from shoal_service.store.base import Appended, IdempotencyKey


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


def last_droppable(
    floor: LogMark, older_seq: int, end: LogMark, keep_points: int, keep_bytes: int, mark_at: Callable[[int], LogMark]
) -> int:
    """The last entry that a trim may drop, `floor.seq` when there is none.

    `mark_at(seq)` looks up the place behind a held entry. Both conditions below can only turn from true to false along
    the log, so a bisection finds the cut in some twenty look-ups and spares an index on either column.
    """
    last_offset, last_bytes = end.log_offset - keep_points, end.payload_bytes - keep_bytes

    def needed(seq: int) -> bool:
        mark = mark_at(seq)
        return mark.log_offset > last_offset and mark.payload_bytes > last_bytes

    held = range(floor.seq + 1, older_seq + 1)
    return floor.seq + bisect_left(held, True, key=needed)
