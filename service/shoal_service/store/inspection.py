"""Inspection of a store: the facts that a backend reads from it, and the findings that follow from them.

A backend reads every row and payload and says whether each matches its checksum. What a finding means, what is lost and
what to do is decided here, once for all backends. Nothing is ever changed.
"""

import json
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

from shoal_service.store.rules import LogPosition

# -- facts


class EntryFacts(NamedTuple):
    """Row of the log."""

    seq: int
    position: LogPosition | None
    """Position behind the entry. None when its row does not match its checksum."""
    n_points: int
    size: int
    payload_whole: bool
    """Whether the payload is complete and matches its checksum. It is not read where the row is damaged."""


class CheckpointFacts(NamedTuple):
    """Checkpoint."""

    seq: int
    log_offset: int
    window_seq: int | None
    row_whole: bool
    blob_whole: bool

    @property
    def whole(self) -> bool:
        """Whether the state can be loaded."""
        return self.row_whole and self.blob_whole


class BlobFacts(NamedTuple):
    """Blob under a key."""

    key: str
    whole: bool
    complete: bool = True
    """False while pieces of it are still to come."""


class ReferenceFacts(NamedTuple):
    """Reference of an entry to a blob and to earlier entries."""

    seq: int
    after_seq: int
    blob_key: str


class LetterFacts(NamedTuple):
    """Dead letter."""

    where: str
    """Its entry, or the place where its header cannot be read."""
    seq: int
    whole: bool


class JobFacts(NamedTuple):
    """Job with its body, which has no checksum."""

    id: str
    body: bytes


class AnswerFacts(NamedTuple):
    """Answer to an idempotency key, which has no checksum."""

    key: str
    digest: bytes
    seq: int
    log_offset: int
    n_points: int


class StreamFacts(NamedTuple):
    """Everything that a store holds for one stream."""

    name: str
    record_damage: str | None
    """Why the record of the stream cannot be read. None for a whole one."""
    floor: LogPosition
    """Position behind the last entry that was trimmed."""
    floor_known: bool
    """Whether the floor can be trusted. It is part of the record in some stores."""
    counted_end: LogPosition | None
    """Position of the end by counters of their own. None where the last row says it."""
    acknowledged: int | None
    """Last acknowledged entry by the high-water mark. None where there is no mark."""
    entries: Sequence[EntryFacts] = ()
    checkpoints: Sequence[CheckpointFacts] = ()
    blobs: Sequence[BlobFacts] = ()
    references: Sequence[ReferenceFacts] = ()
    letters: Sequence[LetterFacts] = ()
    jobs: Sequence[JobFacts] = ()
    answers: Sequence[AnswerFacts] = ()
    damaged_pages: Sequence[str] = ()
    """Pages of records that do not match their checksum, in words."""
    damaged_documents: Sequence[str] = ()
    """Documents that do not match their checksum, in words."""
    orphans: Sequence[str] = ()
    """Data of the stream that nothing refers to, in words."""
    unreadable: Sequence[str] = ()
    """Parts that the backend could not read at all, with its reason."""

    @property
    def end(self) -> LogPosition:
        """Position behind the last entry."""
        if self.counted_end is not None:
            return self.counted_end
        whole = [entry.position for entry in self.entries if entry.position is not None]
        return max([self.floor, *whole])


# -- findings


class Item(StrEnum):
    """Kinds of things in a store that may be damaged."""

    STORE = "store"
    RECORD = "record"
    ENTRY = "entry"
    CHECKPOINT = "checkpoint"
    BLOB = "blob"
    DEAD_LETTER = "dead letter"
    JOB = "job"
    PAGE = "page of records"
    DOCUMENT = "document"
    ACCESS_KEY = "access key"
    ANSWER = "answer"
    HIGH_WATER = "high-water mark"
    ORPHAN = "orphan"


class Finding(NamedTuple):
    """One thing that is wrong."""

    stream: str | None
    """None for the store itself."""
    part: Item
    where: str
    """Which one: an entry, a key, a table."""
    problem: str
    loss: str
    """What is lost. Empty when nothing is."""
    remedy: str


class StreamSummary(NamedTuple):
    """What a stream holds, in numbers."""

    name: str
    first_seq: int
    last_seq: int
    """Entries in the log. `first_seq` is `last_seq + 1` when there is none."""
    log_offset: int
    checkpoints: list[int]
    """Entries at which there is a whole checkpoint, newest first."""
    dead_letters: int
    jobs: int
    blobs: int
    idempotency_keys: int


class Inspection(NamedTuple):
    """Result of the inspection of a store."""

    store: str
    format_version: int
    in_use: bool
    """Whether a process may have changed the store meanwhile."""
    streams: list[StreamSummary]
    findings: list[Finding]
    notes: list[str]
    """What is worth knowing and needs no action."""


RESTORE = (
    "restore a copy of the store, or delete the stream (shoal streams delete) and restore a snapshot file (shoal "
    "snapshot restore)"
)
_FORGET = "stop shoal and remove shoal.high-water"
_NOTHING = "nothing"


def summarise(facts: StreamFacts) -> StreamSummary:
    """Return the numbers of a stream."""
    whole = sorted((c.seq for c in facts.checkpoints if c.whole), reverse=True)
    end = facts.end
    return StreamSummary(
        facts.name, facts.floor.seq + 1, end.seq, end.log_offset, whole,
        len(facts.letters), len(facts.jobs), len(facts.blobs), len(facts.answers),
    )  # fmt: skip


def examine(facts: StreamFacts) -> list[Finding]:
    """Return all findings on a stream."""
    found: list[Finding] = []

    def add(part: Item, where: str, problem: str, loss: str, remedy: str) -> None:
        found.append(Finding(facts.name, part, where, problem, loss, remedy))

    if facts.record_damage is not None:
        loss = "the settings of the stream; the service refuses to open the store, or the stream"
        add(Item.RECORD, "record", facts.record_damage, loss, "restore a copy of the store")
    for what in facts.unreadable:
        add(Item.STORE, what.partition(":")[0], what, "what cannot be read", RESTORE)
    _examine_log(facts, add)
    _examine_checkpoints(facts, add)
    _examine_references(facts, add)
    _examine_records(facts, add)
    for what in facts.orphans:
        add(Item.ORPHAN, what, "nothing refers to it", f"{_NOTHING} but space", "copy what is needed, or leave it")
    return found


def damaged_key(key_id: str) -> Finding:
    """Return the finding on an access key that does not match its checksum."""
    said, remedy = "it does not match its checksum", f"revoke it (shoal keys revoke {key_id}), and create another"
    return Finding(None, Item.ACCESS_KEY, key_id, said, "the access of whoever has it", remedy)


def notes_on(facts: StreamFacts) -> list[str]:
    """Return what is worth knowing about a stream and needs no action."""
    referenced = {reference.blob_key for reference in facts.references}
    idle = [blob.key for blob in facts.blobs if blob.key not in referenced]
    if not idle:
        return []
    return [
        f"stream {facts.name!r}: no entry refers to the blob {', '.join(map(repr, idle))}; a running refinement will, "
        "or the next start deletes it"
    ]


Add = Callable[[Item, str, str, str, str], None]


def _examine_log(facts: StreamFacts, add: Add) -> None:
    """Check checksums, and that each entry continues the one before it."""
    expected, previous = facts.floor.seq + 1, facts.floor if facts.floor_known else None
    applied = max((c.seq for c in facts.checkpoints if c.whole), default=0)

    def damaged(seq: int, where: str, said: str) -> None:
        add(Item.ENTRY, where, said, _loss(facts, seq, applied), RESTORE)

    for entry in facts.entries:
        where = f"entry {entry.seq}"
        if entry.seq != expected:
            damaged(expected, _span(expected, entry.seq - 1), "it is missing from the log")
            previous = None
        if entry.position is None:
            damaged(entry.seq, where, "its row does not match its checksum")
        else:
            if previous is not None and entry.position != previous.after(entry.n_points, entry.size):
                offsets = f"offset {entry.position.log_offset}, but the entry before it at {previous.log_offset}"
                damaged(entry.seq, where, f"with {entry.n_points} points it ends at {offsets}")
            if not entry.payload_whole:
                damaged(entry.seq, where, "its payload is incomplete or does not match its checksum")
        expected, previous = entry.seq + 1, entry.position
    counted = facts.counted_end
    if counted is not None and (counted.seq != expected - 1 or previous not in (None, counted)):
        said = (
            f"the counters end at entry {counted.seq} and offset {counted.log_offset}, the rows at entry {expected - 1}"
        )
        add(Item.ENTRY, "end of the log", said, "entries in between; the stream takes no more points", RESTORE)
    if facts.acknowledged is not None and facts.acknowledged > facts.end.seq:
        said = f"the log ends at entry {facts.end.seq}, but entry {facts.acknowledged} was acknowledged"
        lost = f"the points of {_span(facts.end.seq + 1, facts.acknowledged)}"
        add(Item.HIGH_WATER, f"entry {facts.acknowledged}", said, lost, f"{RESTORE}; or go on without them: {_FORGET}")


def _loss(facts: StreamFacts, seq: int, applied: int) -> str:
    """Return what a damaged entry costs. `applied` is the newest whole checkpoint."""
    if seq > applied:
        before = [e.position.log_offset for e in facts.entries if e.seq < seq and e.position is not None]
        n_after = facts.end.log_offset - max(before, default=facts.floor.log_offset)
        return f"entries from {seq} on cannot be learnt: {n_after:,} points"
    return (
        "its points are learnt already, in the newest checkpoint; a refinement of a window that holds them, and a "
        "start from the older checkpoint, are not possible"
    )


def _examine_checkpoints(facts: StreamFacts, add: Add) -> None:
    offsets = {e.seq: e.position.log_offset for e in facts.entries if e.position is not None}
    if facts.floor_known:
        offsets[facts.floor.seq] = facts.floor.log_offset
    for checkpoint in facts.checkpoints:
        where = f"checkpoint at entry {checkpoint.seq}"
        if not checkpoint.whole:
            what = "its row" if not checkpoint.row_whole else "its state"
            add(Item.CHECKPOINT, where, f"{what} does not match its checksum", *_loss_of_checkpoint(facts))
            continue
        if not facts.floor.seq <= checkpoint.seq <= facts.end.seq:
            said = f"it is outside of the log, which holds {_span(facts.floor.seq + 1, facts.end.seq)}"
            add(Item.CHECKPOINT, where, said, "the entries that would follow it", RESTORE)
        elif offsets.get(checkpoint.seq, checkpoint.log_offset) != checkpoint.log_offset:
            said = f"it ends at offset {checkpoint.log_offset}, its entry at {offsets[checkpoint.seq]}"
            add(Item.CHECKPOINT, where, said, "the agreement of state and log", RESTORE)
        window = checkpoint.window_seq
        if window is not None and not facts.floor.seq <= window <= checkpoint.seq:
            said = f"its window begins after entry {window}, the log after entry {facts.floor.seq}"
            add(
                Item.CHECKPOINT,
                where,
                said,
                "rows of the window: it cannot be refined",
                "a new window begins in time",
            )


def _loss_of_checkpoint(facts: StreamFacts) -> tuple[str, str]:
    """What is lost with a damaged checkpoint, and the remedy."""
    whole = [checkpoint.seq for checkpoint in facts.checkpoints if checkpoint.whole]
    if whole:
        loss = f"{_NOTHING}: the one at entry {max(whole)} takes its place"
        return loss, "nothing is needed: the next checkpoint replaces it"
    if facts.floor.seq == 0:
        loss = f"{_NOTHING} if the log holds only points: it is learnt again from its beginning"
        return loss, "start the service, and see that the stream is live"
    return "the state of the stream: no checkpoint is whole, and the log is trimmed", RESTORE


def _examine_references(facts: StreamFacts, add: Add) -> None:
    blobs = {blob.key: blob for blob in facts.blobs if blob.complete}
    referenced = {reference.blob_key: reference for reference in facts.references}
    oldest = min((c.seq for c in facts.checkpoints if c.whole), default=0)
    for blob in facts.blobs:
        if blob.complete and not blob.whole:
            needed = blob.key in referenced and referenced[blob.key].seq > oldest
            loss = "the refinement of an entry that a start learns again" if needed else _NOTHING
            said = "it does not match its checksum"
            add(
                Item.BLOB, repr(blob.key), said, loss, RESTORE if needed else "nothing is needed: it is deleted in time"
            )
    for reference in facts.references:
        needed = reference.seq > oldest
        if needed and reference.blob_key not in blobs:
            said = f"entry {reference.seq} refers to it, and it is missing"
            add(Item.BLOB, repr(reference.blob_key), said, "the refinement of that entry", RESTORE)
        if needed and reference.after_seq < facts.floor.seq:
            said = f"it needs the entries after {reference.after_seq}, the log begins after entry {facts.floor.seq}"
            add(Item.ENTRY, f"entry {reference.seq}", said, "the refinement of that entry", RESTORE)
        if not facts.floor.seq < reference.seq <= facts.end.seq:
            said = "an entry that is not in the log refers to it"
            add(Item.BLOB, repr(reference.blob_key), said, _NOTHING, "nothing is needed")


def _examine_records(facts: StreamFacts, add: Add) -> None:
    for letter in facts.letters:
        if not letter.whole:
            said = "it does not match its checksum"
            loss = "the payload or the reason of a batch that could not be learnt"
            add(Item.DEAD_LETTER, letter.where, said, loss, "send the batch again, if you have it")
        elif letter.seq > facts.end.seq:
            said = f"its entry is beyond the end of the log, entry {facts.end.seq}"
            add(Item.DEAD_LETTER, letter.where, said, "the entries in between", RESTORE)
    for page in facts.damaged_pages:
        loss = "records of the stream, and its learner stops when it reads them"
        add(Item.PAGE, page, "it does not match its checksum", loss, RESTORE)
    for document in facts.damaged_documents:
        loss = "what it says; the stream goes on without it"
        add(Item.DOCUMENT, document, "it does not match its checksum", loss, "write it again, or delete it")
    for job in facts.jobs:
        if (damage := _job_damage(job)) is not None:
            loss = "the record of a refinement, not its result"
            add(
                Item.JOB,
                job.id,
                damage,
                loss,
                "nothing is needed for the points; /refinements may fail until it is gone",
            )
    by_seq = {e.seq: (e.position.log_offset, e.n_points) for e in facts.entries if e.position is not None}
    for answer in facts.answers:
        differs = by_seq.get(answer.seq, answer[3:5]) != answer[3:5]
        if differs or not 0 < answer.seq <= facts.end.seq or len(answer.digest) != 32:
            said = f"it names entry {answer.seq} and offset {answer.log_offset}, which differs from the log"
            add(Item.ANSWER, repr(answer.key), said, "the answer to a retry of that request", "do not retry it")


def _job_damage(job: JobFacts) -> str | None:
    try:
        body = json.loads(job.body)
    except ValueError as error:
        return f"its body is not JSON ({error})"
    if not isinstance(body, dict) or body.get("id") != job.id:
        return "its body has another id"
    return None


def _span(first: int, last: int) -> str:
    if last < first:
        return "no entries"
    return f"entry {first}" if first == last else f"entries {first} to {last}"
