"""Rules of every backend, as functions of plain numbers: what is refused, what is known, what is dropped."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from shoal.errors import counted
from shoal_service.errors import (
    IdempotencyMismatchError,
    LimitError,
    LogGapError,
    OverloadedError,
    SettingsMovedError,
    StaleWriterError,
    StoreFormatError,
    StoreUnavailableError,
    StreamGoneError,
    UnknownDeadLetterError,
    UnknownStreamError,
)
from shoal_service.store.contract import (
    MAX_ACCESS_KEYS,
    MAX_DOCUMENT_BYTES,
    MAX_DOCUMENTS,
    MAX_DOCUMENTS_BYTES,
    Appended,
    DocumentName,
    IdempotencyKey,
    NewEntry,
)


class LogPosition(NamedTuple):
    """Position in the log behind one entry, in the three units that are counted."""

    seq: int
    log_offset: int
    payload_bytes: int
    """Payload bytes of all entries up to here, including trimmed ones."""

    def after(self, n_points: int, n_bytes: int) -> "LogPosition":
        """Return the position behind one more entry."""
        return LogPosition(self.seq + 1, self.log_offset + n_points, self.payload_bytes + n_bytes)


START = LogPosition(0, 0, 0)


# -- idempotency


class Answer(NamedTuple):
    """Answer that was given to an idempotency key."""

    digest: bytes
    seq: int
    log_offset: int
    n_points: int
    at: float
    """Time of the answer, by the clock of the store."""
    ordinal: int
    """Number of the key within its stream, from 1."""


class AnswerLimits(NamedTuple):
    """Limits on the number and the age of remembered answers."""

    keys: int
    age_s: float

    def known(self, answer: Answer, newest_ordinal: int, now: float) -> bool:
        """Return whether the answer still counts. A clock that was set back makes it count longer."""
        return answer.ordinal > newest_ordinal - self.keys and now - answer.at < self.age_s


def replay(answer: Answer, asked: IdempotencyKey) -> Appended:
    """Return the first answer again. IdempotencyMismatchError when the key belongs to another request."""
    if answer.digest != asked.digest:
        raise IdempotencyMismatchError(
            f"the idempotency key {asked.key!r} was used for another request, which became entry {answer.seq}; "
            "send a new request under a new key"
        )
    return Appended(answer.seq, answer.log_offset, answer.n_points, replayed=True)


# -- appends


class AppendFacts(NamedTuple):
    """State of the stream that decides whether an append is accepted."""

    unapplied_bytes: int
    settings_match: bool
    """The record has the expected settings, or none are expected."""
    floor_seq: int
    """Last entry that was trimmed."""
    end_seq: int
    has_blob: bool
    """The blob that the entry refers to is there, or it refers to none."""


def check_append(name: str, entry: NewEntry, budget_bytes: int, facts: AppendFacts) -> None:
    """Refuse an append that no idempotency key answers: over the budget, settings that moved, missing references."""
    if facts.unapplied_bytes > budget_bytes:
        raise OverloadedError(
            f"stream {name!r} has {facts.unapplied_bytes} bytes waiting to be learnt, over its budget of "
            f"{budget_bytes}; send again once it has caught up"
        )
    if not facts.settings_match:
        raise SettingsMovedError(f"the settings of stream {name!r} were changed meanwhile; read them again")
    if entry.references is None:
        return
    blob_key, after_seq = entry.references
    if not facts.floor_seq <= after_seq <= facts.end_seq:
        raise _missing_reference(name, f"entries {after_seq + 1} to {facts.end_seq}")
    if not facts.has_blob:
        raise _missing_reference(name, f"the blob {blob_key!r}")


def _missing_reference(name: str, what: str) -> LogGapError:
    return LogGapError(f"an entry of stream {name!r} needs {what}, which is no longer stored; make the entry again")


# -- refusals of other methods


def check_epoch(name: str, epoch: int, current: int) -> None:
    """Raise StaleWriterError unless the epoch is the newest one."""
    if epoch != current:
        raise StaleWriterError(f"stream {name!r} is at writer epoch {current}; the writer of epoch {epoch} must stop")


def check_stream_limit(name: str, n_streams: int, max_streams: int) -> None:
    """Raise LimitError when one more stream would be too many."""
    if n_streams >= max_streams:
        raise LimitError(f"stream {name!r} would be one more than the limit of {max_streams}; delete one first")


def check_within_log(name: str, what: str, seq: int, end_seq: int) -> None:
    """Raise ValueError for a position beyond the end of the log."""
    if not 0 <= seq <= end_seq:
        raise ValueError(f"{what} at entry {seq} of stream {name!r}, whose log ends at entry {end_seq}")


def check_readable(name: str, after_seq: int, floor: LogPosition, end: LogPosition) -> None:
    """Raise LogGapError unless the log holds every entry after `after_seq`. `floor` is the last trimmed one."""
    if after_seq > end.seq:
        raise gap(name, f"entry {after_seq} was applied, but the log ends at entry {end.seq}")
    if after_seq < floor.seq:
        raise gap(name, f"entry {after_seq + 1} was requested, but the oldest one stored is {floor.seq + 1}")


def check_end_known(name: str, damage: str | None) -> None:
    """Raise LogGapError when damage hides the end of the log."""
    if damage is not None:
        raise gap(name, damage)


def check_same_blob(name: str, key: str, same: bool) -> None:
    """Raise ValueError when the key belongs to another blob."""
    if not same:
        raise ValueError(f"another blob of stream {name!r} has the key {key!r}; give each blob a key of its own")


def check_key_limit(held: int, only: bool) -> None:
    """Raise LimitError when no further access key fits, or when one that must be the only one has others beside it."""
    if only and held:
        raise LimitError("another access key was made before; use it, or ask its owner for one")
    if held >= MAX_ACCESS_KEYS:
        raise LimitError(f"there are {held} access keys, the limit of {MAX_ACCESS_KEYS}; revoke one first")


# -- documents


class HeldDocuments(NamedTuple):
    """Number and bytes of documents of one kind."""

    number: int
    bytes: int


def written_documents(kind: str, changes: Mapping[DocumentName, bytes | None]) -> HeldDocuments:
    """Return what a change writes of a kind."""
    sizes = [len(value) for one, value in changes.items() if one[0] == kind and value is not None]
    return HeldDocuments(len(sizes), sum(sizes))


def check_document_kind(kind: str) -> None:
    """Raise ValueError for a kind that a store cannot hold."""
    if re.fullmatch(r"[a-z][a-z0-9-]{0,63}", kind) is None:
        raise ValueError(f"the kind of a document is of lower-case letters, digits and hyphens; {kind!r} is not")


def check_document(stream: str, kind: str, document: str, value: bytes | None) -> None:
    """Raise ValueError for a kind or a name that a store cannot hold, LimitError for a value that is too large."""
    check_document_kind(kind)
    if not 0 < len(document.encode()) <= 256:
        raise ValueError(f"the name of a document has 1 to 256 bytes; {document[:80]!r} has {len(document.encode())}")
    if value is not None and len(value) > MAX_DOCUMENT_BYTES:
        raise LimitError(
            f"the {kind} {document!r} of stream {stream!r} has {len(value)} bytes, over the limit of "
            f"{MAX_DOCUMENT_BYTES}; shorten it"
        )


def check_document_limits(
    stream: str, kind: str, others: HeldDocuments, written: HeldDocuments, max_documents: int | None = None
) -> None:
    """Raise LimitError when the documents that are written do not fit beside the others of their kind."""
    limit = MAX_DOCUMENTS if max_documents is None else max_documents
    has = f"stream {stream!r} has {counted(others.number, 'document')} of the kind {kind!r}"
    if others.number + written.number > limit:
        raise LimitError(f"{has}, and {written.number} more would exceed the limit of {limit}; delete one first")
    if others.bytes + written.bytes > MAX_DOCUMENTS_BYTES:
        raise LimitError(
            f"{has} with {others.bytes} bytes, and {written.bytes} more would exceed the limit of "
            f"{MAX_DOCUMENTS_BYTES}; delete one first"
        )


# -- errors with the same words everywhere


def damaged_document(stream: str, kind: str, document: str) -> str:
    """Return the warning for a document that is damaged."""
    return f"the {kind} {document!r} of stream {stream!r} is damaged and left out; write it again, or delete it"


def damaged_access_key(key_id: str) -> str:
    """Return the warning for an access key that is damaged."""
    return f"the access key {key_id!r} is damaged and opens nothing; revoke it and create another"


def gap(name: str, what: str) -> LogGapError:
    """Return the error for a log that lacks an entry."""
    return LogGapError(
        f"the log of stream {name!r} has a gap: {what}; restore a copy of the store, or delete the stream and "
        "restore a snapshot file"
    )


def damaged_record(name: str) -> StoreFormatError:
    """Return the error for a stream whose record is damaged. The other streams are served."""
    return StoreFormatError(
        f"the record of stream {name!r} is damaged, so the stream is not served; restore the store from a copy, and "
        "see shoal doctor"
    )


def missing_blob(name: str, key: str) -> LogGapError:
    """Return the error for a blob that is missing or damaged."""
    return gap(name, f"the blob {key!r} is missing or damaged")


def missing_entry(name: str, seq: int) -> LogGapError:
    """Return the error for an entry that is missing or damaged."""
    return gap(name, f"entry {seq} is missing or damaged")


def unknown_dead_letter(name: str, seq: int) -> UnknownDeadLetterError:
    """Return the error for an entry that is no dead letter."""
    return UnknownDeadLetterError(f"stream {name!r} has no dead letter of entry {seq}; list them for their numbers")


def damaged_dead_letter(name: str, seq: int) -> LogGapError:
    """Return the error for a dead letter that is damaged."""
    return gap(name, f"the dead letter of entry {seq} is damaged")


def damaged_checkpoint(name: str, seq: int) -> str:
    """Return the warning for a checkpoint that is damaged."""
    return (
        f"the checkpoint at entry {seq} of stream {name!r} is damaged and left out; "
        "the older one takes its place, or the log from its beginning"
    )


def gone(name: str, incarnation: str) -> StreamGoneError:
    """Return the error for a stream that was deleted."""
    return StreamGoneError(f"stream {name!r} of incarnation {incarnation} is gone; ask for it again by its name")


def unknown(name: str) -> UnknownStreamError:
    """Return the error for a name that no stream has."""
    return UnknownStreamError(
        f"there is no stream {name!r}; GET /streams lists their names. Create it with PUT /streams/{name}, or with its "
        f"first points: POST /streams/{name}/ingest?create=true"
    )


def closed() -> StoreUnavailableError:
    """Return the error of a closed store."""
    return StoreUnavailableError("the store is closed; open it again")


# -- trimming


def last_droppable(
    floor_seq: int,
    kept: Sequence[tuple[int, int | None]],
    keep_after: int | None,
    references: Iterable[tuple[int, int]],
) -> int:
    """Return the last entry that a trim may drop, or `floor_seq` when there is none.

    `kept` has seq and window_seq of the checkpoints, newest first. `references` has seq and after_seq of each entry
    that refers to others.
    """
    if len(kept) < 2:
        return floor_seq
    older = kept[1][0]
    limits = [older, *(window for _, window in kept if window is not None)]
    limits += [after for seq, after in references if seq > older]
    limits += [] if keep_after is None else [keep_after]
    return max(floor_seq, min(limits))
