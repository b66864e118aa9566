"""Contract of a store: few methods over bytes, and one contract suite for every backend.

For each stream a store keeps the record, a log of entries, blobs that entries refer to, the two newest checkpoints, the
answers to idempotent requests, dead letters, jobs, pages of records and documents. It also keeps the access keys of the
service. It never reads inside a payload. Its counters never depend on a clock.

Every method blocks until it is done and may be called from any thread. Only `append` returns a future, so that many
callers share one commit. Methods raise leaves of `StoreError`, UnknownStreamError, LimitError and
IdempotencyMismatchError:

- a method with an incarnation raises StreamGoneError when the stream was deleted or is another incarnation;
- a method with an epoch raises StaleWriterError unless the epoch is the newest one;
- any method raises StoreUnavailableError while the backend cannot serve it, and after `close`;
- an entry or checkpoint beyond the end of the log is an error of the caller: ValueError.

Damage is reported as a warning of the logger `shoal_service.store`: the stream, what is lost, and what replaces it.
"""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeAlias

ANSWERS_KEPT = 1_000_000
"""Largest number of idempotency keys remembered for one stream."""
ANSWERS_KEPT_S = 24 * 3600.0
"""Seconds that an idempotency key is remembered, by the clock given to the store."""
JOBS_KEPT = 100
"""Number of jobs kept for one stream. The newest stay."""
MAX_ACCESS_KEYS = 1000
"""Largest number of access keys in one store."""
MAX_DOCUMENTS = 10_000
"""Largest number of documents of one kind in one stream."""
MAX_DOCUMENT_BYTES = 64 << 10
"""Largest document."""
MAX_DOCUMENTS_BYTES = 16 << 20
"""Largest sum over the documents of one kind in one stream."""


class EntryKind(StrEnum):
    """Kinds of log entries, by what they change."""

    BATCH = "batch"
    SETTINGS = "settings"
    RESTORE = "restore"
    ADOPTION = "adoption"
    FORGET = "forget"


class StreamRecord(NamedTuple):
    """Stream in the registry."""

    name: str
    incarnation: str
    """UUID of one creation. A stream that is deleted and created again gets another one."""
    settings: bytes
    """Canonical JSON, from the creation or from the last settings entry."""
    created_at: float
    """Unix time. For display only."""


class Entry(NamedTuple):
    """Entry of the log."""

    seq: int
    """Number of the entry. Entries count from 1 without gaps."""
    log_offset: int
    """Points in the log up to and including this entry."""
    n_points: int
    kind: EntryKind
    payload: bytes


class Appended(NamedTuple):
    """Answer to an append, and to its replay."""

    seq: int
    log_offset: int
    n_points: int
    replayed: bool
    """Whether the idempotency key was known with the same digest. Then nothing was added; it is the first answer."""


class References(NamedTuple):
    """References of an entry to other data. The store keeps that data as long as the entry may be applied again."""

    blob_key: str
    """Key of a blob, see `Store.put_blob`."""
    after_seq: int
    """The entry reads all entries after this one again."""


class IdempotencyKey(NamedTuple):
    """Name that a client gives to one request, with the digest of the request."""

    key: str
    """At most 128 printable ASCII characters."""
    digest: bytes
    """SHA-256 of content type, encoding and raw body."""


class SourceStep(NamedTuple):
    """Records of a source that a batch holds: those after one position, up to another. A store compares positions as
    text, see source_positions.py.
    """

    source: str
    partition: str
    before: str | None
    """Position that must be stored. None: none is."""
    after: str
    definition: str | None = None
    """Of a configured source: `definition_digest` of its document, which must still be stored. None: no condition."""


class NewEntry(NamedTuple):
    """Entry to be appended, with all that is stored or checked in the same commit."""

    kind: EntryKind
    payload: bytes
    n_points: int = 0
    idempotency: IdempotencyKey | None = None
    """Name of the request. A known one is answered as the first time, and nothing is appended."""
    settings: bytes | None = None
    """Settings that replace those of the record."""
    expected_settings: bytes | None = None
    """Settings that the record must hold. None: any."""
    references: References | None = None
    """What stays as long as the entry may be applied: a blob, and entries before this one."""
    source: SourceStep | None = None
    """Step of the position of a source. A known last step is answered as the first time, and nothing is appended."""


class Tail(NamedTuple):
    """End of the log, and how much of it is not applied."""

    seq: int
    log_offset: int
    unapplied_bytes: int
    """Payload bytes of the entries after the last one marked as applied."""
    first_seq: int
    """Oldest entry in the log. It is `seq + 1` when the log holds none."""


class Checkpoint(NamedTuple):
    """State of a learner, made durable."""

    seq: int
    """Last entry that was applied."""
    log_offset: int
    blob: bytes
    window_seq: int | None = None
    """Entries after this one hold the points of the window. None for a state without a window."""


class Job(NamedTuple):
    """Work that several processes share. Each change names the version that it replaces."""

    id: str
    version: int
    """Number of writes, from 1."""
    body: bytes


class DeadLetter(NamedTuple):
    """Entry that the learner could not apply."""

    seq: int
    log_offset: int
    n_points: int
    reason: str
    payload: bytes


class AccessKey(NamedTuple):
    """Access key of the service. The store holds a digest of its secret, and never the secret."""

    id: str
    name: str
    """Name for people. Several keys may have the same one."""
    digest: bytes
    """SHA-256 of the secret. It is empty for a key that is damaged in the store."""
    body: bytes
    """What the key allows. The store does not read it. It is empty for a key that is damaged."""
    created_at: float
    """Unix time."""
    last_used_at: float | None = None
    """Unix time of the last known use, or None. It may lag behind by minutes."""


class DeadLetterHead(NamedTuple):
    """Dead letter without its payload."""

    seq: int
    log_offset: int
    n_points: int
    size: int
    """Bytes of the payload."""
    reason: str


class PageRun(NamedTuple):
    """Pages of records that are deleted together."""

    run: int
    n_pages: int
    """They are numbered from 0."""


PagePlace: TypeAlias = tuple[int, int]
"""Run and number of a page."""
DocumentName: TypeAlias = tuple[str, str]
"""Kind and name of a document."""
MayCreate: TypeAlias = Callable[[Collection[str]], None]
"""Raises a ServiceError where no stream may be created beside those of the given names. It must not block."""


class Wake(Protocol):
    """What a store sets when something has come. A `threading.Event` is one. Setting it must take no time."""

    def set(self) -> None:
        """Announce."""


class Store(Protocol):
    """Methods of every backend."""

    def create_stream(
        self, name: str, incarnation: str, settings: bytes, *, max_streams: int, may_create: MayCreate | None = None
    ) -> tuple[StreamRecord, bool]:
        """Create the stream if there is none of that name.

        Returns the new record and True, or the existing record and False. LimitError when the store is full.

        `may_create` gets the names of all streams. What it allows is created only while these are all streams, also
        where several processes create streams. It may be called several times.
        """

    def get_stream(self, name: str) -> StreamRecord:
        """Return the record. UnknownStreamError when there is none."""

    def list_streams(self) -> list[StreamRecord]:
        """Return all records, sorted by name."""

    def delete_stream(self, name: str, incarnation: str | None = None) -> None:
        """Delete the stream with everything that it holds. UnknownStreamError when there is none.

        With `incarnation`, StreamGoneError when another one has the name. It stays.
        """

    def append(self, name: str, incarnation: str, entry: NewEntry, *, budget_bytes: int) -> "Future[Appended]":
        """Append one entry. The future is done when the entry and its answer are durable, in one commit.

        The future raises, and nothing is appended:

        - SettingsMovedError when the record does not hold the expected settings;
        - LogGapError when a reference is missing already;
        - SourcePositionError, with the stored position, unless that is the one before the step of the source, and
          SourceChangedError when the step names a definition that is not the stored one. The positions are the
          documents of the kind `sources`;
        - OverloadedError when the unapplied payload bytes exceed `budget_bytes` before the append. The log therefore
          exceeds the budget by one entry at most. A known idempotency key or step is answered in any case;
        - StreamGoneError, IdempotencyMismatchError and StoreUnavailableError.

        An idempotency key is known until it is 24 hours old or a million newer keys came. Trimming does not forget it.

        Cancelling the future before its turn appends nothing. Later it cannot be cancelled. Callbacks may run in a
        thread of the store, so they must be short and call no method of the store.

        An append that was refused with StoreUnavailableError is not in the log, with one exception: the disk failed
        while it was syncing, and the machine crashed just after. A retry with the same idempotency key is always safe.
        """

    def read(self, name: str, incarnation: str, after_seq: int, *, max_bytes: int) -> list[Entry]:
        """Return entries after `after_seq` in order: at least one if there is one, then as many as fit `max_bytes`.

        An entry that is missing or damaged ends the list. LogGapError when it is the first one, when the log ends
        before `after_seq`, and at the end of a log that lacks acknowledged entries.
        """

    def wait_for_entries(
        self, name: str, incarnation: str, after_seq: int, timeout_s: float, wake: threading.Event | None = None
    ) -> bool:
        """Block until the log holds an entry after `after_seq`, or the time is up. Returns whether it does.

        Returns early once `wake` is set. The store may set it, too, and never clears it.
        StreamGoneError as soon as the stream is deleted, StoreUnavailableError as soon as the store is closed.
        """

    def watch(self, name: str, incarnation: str, event: "Wake") -> None:
        """Set `event` after each new entry of the stream, and when it is deleted or the store is closed, until
        `unwatch`. It may be set at other times too, and an entry of another process may be missed.
        """

    def unwatch(self, name: str, incarnation: str, event: "Wake") -> None:
        """Undo `watch`, if it is in force."""

    def tail(self, name: str, incarnation: str) -> Tail:
        """Return the end of the log."""

    def acquire_writer(self, name: str, incarnation: str) -> int:
        """Return a new epoch, larger than all before. The holder of an older epoch is refused from now on.

        Blobs that no entry refers to are deleted. Their writer has died, or will find them missing and write again.
        """

    def mark_applied(self, name: str, incarnation: str, epoch: int, seq: int) -> None:
        """Record in memory how far the learner is. The byte budget counts from there.

        After a start it is the seq of the newest checkpoint. A learner that begins at the older checkpoint may set it
        back. A seq that is trimmed already counts as the oldest known position.
        """

    def save_checkpoint(
        self, name: str, incarnation: str, epoch: int, checkpoint: Checkpoint, *, keep_after: int | None = None
    ) -> None:
        """Make the checkpoint durable and trim the log, in one transaction that also checks the epoch.

        The two newest checkpoints by seq stay. A damaged one does not count, and one of the same seq is replaced.
        With two checkpoints, entries are dropped up to the first of: the older checkpoint, the `window_seq` of either,
        `keep_after`, and the `after_seq` of each reference from entries after the older checkpoint. A blob goes with
        the last entry that refers to it.
        """

    def load_checkpoints(self, name: str, incarnation: str) -> list[Checkpoint]:
        """Return up to two checkpoints, newest first. A damaged one is left out, with a warning."""

    def put_blob(self, name: str, incarnation: str, key: str, blob: bytes) -> None:
        """Store a blob durably under a key, and read it back.

        The same key with the same bytes changes nothing. ValueError for other bytes under a known key.
        """

    def get_blob(self, name: str, incarnation: str, key: str) -> bytes:
        """Return the blob after a check of its checksum. LogGapError when it is missing or damaged."""

    def drop_blob(self, name: str, incarnation: str, key: str) -> None:
        """Delete a blob, unless an entry refers to it."""

    def blob_keys(self, name: str, incarnation: str) -> list[str]:
        """Return the keys of all complete blobs, sorted."""

    def put_job(self, name: str, incarnation: str, job_id: str, body: bytes, *, version: int) -> bool:
        """Write a job durably if the store holds it in `version` (0: it does not exist). Returns whether it did.

        A new job deletes the oldest ones beyond `JOBS_KEPT`.
        """

    def jobs(self, name: str, incarnation: str) -> list[Job]:
        """Return all jobs, newest first."""

    def add_dead_letter(self, name: str, incarnation: str, epoch: int, letter: DeadLetter) -> None:
        """Store a dead letter durably, with a check of the epoch. The same seq again changes nothing."""

    def write_pages(
        self,
        name: str,
        incarnation: str,
        epoch: int,
        pages: Mapping[PagePlace, bytes],
        dropped: Sequence[PageRun] = (),
    ) -> Future[None]:
        """Write pages of records durably, replacing those of the same places, then delete `dropped`.

        Checks the epoch at each step. The pages may be written in several steps, in their order. The deletion and the
        last page are one step, after all others: a reader that finds the last page finds the others too.

        Waits for all steps but the last one, which completes the future.
        """

    def read_pages(self, name: str, incarnation: str, places: Sequence[PagePlace]) -> list[bytes | None]:
        """Return pages of records. None for a page that is not there."""

    def documents(self, name: str, incarnation: str, kind: str) -> Mapping[str, bytes]:
        """Return the documents of a kind by name, sorted. A damaged one is left out, with a warning."""

    def document_names(self, name: str, incarnation: str, kind: str) -> list[str]:
        """Return the names of the documents of a kind, sorted, with those of damaged ones."""

    def set_document(self, name: str, incarnation: str, kind: str, document: str, value: bytes | None) -> None:
        """Write a document of a stream durably, replace the one of its name, or delete it (None).

        Any process may write, and the last one wins. A kind is of lower-case letters, digits and hyphens; a name has 1
        to 256 bytes. LimitError for a value over `MAX_DOCUMENT_BYTES`, and when the documents of the kind would then be
        more than `MAX_DOCUMENTS` or have more than `MAX_DOCUMENTS_BYTES`.
        """

    def change_documents(
        self,
        name: str,
        incarnation: str,
        changes: Mapping[DocumentName, bytes | None],
        *,
        expected: Mapping[DocumentName, bytes | None],
        dropped: DocumentName | None = None,
        max_documents: int | None = None,
    ) -> bool:
        """Write several documents durably, or delete them (None), all in one transaction, if the store holds what is
        `expected`. Returns whether it did.

        `expected` None: there is no such document, or it is damaged. `dropped`: the documents of this kind whose names
        begin so are deleted too. `max_documents`: limit for each kind that is written to, in the place of
        `MAX_DOCUMENTS`; damaged documents count. Limits are those of what is there after the whole change. Raises as
        `set_document`, and changes nothing then.
        """

    def replace_settings(self, name: str, incarnation: str, epoch: int, expected: bytes, settings: bytes) -> None:
        """Replace the settings of the record durably if they are `expected`, with a check of the epoch."""

    def dead_letters(self, name: str, incarnation: str) -> list[DeadLetter]:
        """Return all dead letters with their payloads, oldest first. LogGapError when one is damaged."""

    def dead_letter(self, name: str, incarnation: str, seq: int) -> DeadLetter:
        """Return the dead letter of an entry. UnknownDeadLetterError when there is none, LogGapError when damaged."""

    def dead_letter_heads(self, name: str, incarnation: str) -> list[DeadLetterHead]:
        """Return all dead letters, oldest first, without reading payloads. LogGapError when one is damaged."""

    def dead_letter_reasons(self, name: str, incarnation: str) -> dict[int, str]:
        """Return the reason of each dead letter by seq, oldest first, without reading payloads."""

    def access_version(self) -> int:
        """Return a number that grows with every change of the access keys. Uses of a key do not change it."""

    def access_keys(self) -> list[AccessKey]:
        """Return all access keys, oldest first. A damaged one has no digest and no body, and causes a warning."""

    def put_access_key(self, key: AccessKey, *, only: bool = False) -> None:
        """Store an access key durably, or replace the one of the same id.

        Raises LimitError when the store is full of keys, and with `only` when there is another one already.
        """

    def delete_access_key(self, key_id: str) -> bool:
        """Delete an access key durably. Returns whether there was one."""

    def mark_access_keys_used(self, used_at: Mapping[str, float]) -> None:
        """Record the time of the last use by id of the key. Older times and unknown ids change nothing."""

    def check(self) -> None:
        """Raise StoreUnavailableError unless the store can accept a write now. Readiness uses it."""

    def describe(self) -> str:
        """Return one line for people: the backend, its place, and what an acknowledgement promises."""

    def close(self) -> None:
        """Finish what was accepted, then release all resources. May be called again."""
