"""The seam to the durable world: few verbs over bytes, one contract suite for every backend.

A store keeps, for each stream: its record, a log of entries, blobs that entries name, the last two checkpoints of its
learner, the answers to idempotent requests, dead letters, and jobs. It never looks inside a payload. All counters are
its own, never a clock's.

Every verb is synchronous and safe to call from any thread; `append` alone answers with a future, so that many callers
share one commit. Verbs raise the leaves of `StoreError`, `UnknownStreamError`, `LimitError` and
`IdempotencyMismatchError`; in particular

- a verb that takes an incarnation raises StreamGoneError when the stream is gone or is another incarnation,
- a verb that takes an epoch raises StaleWriterError unless it is the epoch given out last,
- any verb raises StoreUnavailableError while the backend cannot serve it, and after `close`,
- an entry or checkpoint beyond the end of the log is the caller's mistake: ValueError.

What a reader finds damaged is reported as a warning of the logger `shoal_service.store`, with the stream, what is lost
and what is used in its place.
"""

from concurrent.futures import Future
from enum import StrEnum
from typing import NamedTuple, Protocol

ANSWERS_KEPT = 1_000_000
"""Idempotency keys remembered for a stream, at most."""
ANSWERS_KEPT_S = 24 * 3600.0
"""How long a key is remembered, in seconds of the store's injected clock."""
JOBS_KEPT = 100
"""Jobs of a stream that are kept: the newest."""


class EntryKind(StrEnum):
    """What an entry of the log changes."""

    BATCH = "batch"
    SETTINGS = "settings"
    RESTORE = "restore"
    ADOPTION = "adoption"


class StreamRecord(NamedTuple):
    """A stream as the registry knows it."""

    name: str
    incarnation: str
    """UUID, new at each creation: a stream deleted and made again is another one."""
    settings: bytes
    """Canonical JSON, as the last settings entry (or the creation) left it."""
    created_at: float
    """Unix time, for people."""


class Entry(NamedTuple):
    """One entry of the log."""

    seq: int
    """Counts entries, from 1, without gaps."""
    log_offset: int
    """Points in the log up to and including this entry."""
    n_points: int
    kind: EntryKind
    payload: bytes


class Appended(NamedTuple):
    """The answer to an append, also to its replay."""

    seq: int
    log_offset: int
    n_points: int
    replayed: bool
    """The idempotency key was known with the same digest: nothing was appended, this is the first answer."""


class References(NamedTuple):
    """What an entry asks for beside its payload each time it is applied; kept as long as it may be applied again."""

    blob_key: str
    """Of `Store.put_blob`."""
    after_seq: int
    """Entries after this one are read once more."""


class IdempotencyKey(NamedTuple):
    """A client's name for one request, and what the request was."""

    key: str
    """At most 128 printable ASCII characters."""
    digest: bytes
    """SHA-256 over content type, encoding and raw body."""


class Tail(NamedTuple):
    """Where the log ends, and how much of it waits."""

    seq: int
    log_offset: int
    unapplied_bytes: int
    """Payload bytes of the entries after the newest applied mark."""
    first_seq: int
    """The oldest entry still held (`seq + 1` when none is)."""


class Checkpoint(NamedTuple):
    """A learner's state made durable."""

    seq: int
    """The last entry applied."""
    log_offset: int
    blob: bytes
    window_seq: int | None = None
    """Entries after this one hold the points of the state's window; None where it has none."""


class Job(NamedTuple):
    """A piece of work that processes agree on: whoever changes it says which version it saw."""

    id: str
    version: int
    """Counts the writes, from 1."""
    body: bytes


class DeadLetter(NamedTuple):
    """An entry that the learner could not take."""

    seq: int
    log_offset: int
    n_points: int
    reason: str
    payload: bytes


class Store(Protocol):
    """What the service asks of a backend."""

    def create_stream(
        self, name: str, incarnation: str, settings: bytes, *, max_streams: int
    ) -> tuple[StreamRecord, bool]:
        """Create the stream if it is absent: (record, True), or the existing record and False. LimitError when full."""

    def get_stream(self, name: str) -> StreamRecord:
        """The record, or UnknownStreamError."""

    def list_streams(self) -> list[StreamRecord]:
        """All records, by name."""

    def delete_stream(self, name: str) -> None:
        """End the stream and all that it holds. UnknownStreamError when there is none."""

    def append(
        self,
        name: str,
        incarnation: str,
        kind: EntryKind,
        payload: bytes,
        n_points: int,
        *,
        budget_bytes: int,
        idempotency: IdempotencyKey | None = None,
        settings: bytes | None = None,
        expected_settings: bytes | None = None,
        references: References | None = None,
    ) -> "Future[Appended]":
        """Append one entry; the future is done once the entry is durable, idempotency answer and all, in one commit.

        `settings`, where given, becomes the record's settings in the same commit. With `expected_settings` that is
        done only where those are the record's until then; else SettingsMovedError, and nothing is appended.

        The future raises OverloadedError when the unapplied payload bytes are over `budget_bytes` already (so the log
        exceeds the budget by one entry at most, and a known key is answered even then), StreamGoneError,
        IdempotencyMismatchError, StoreUnavailableError.
        A key is known until it is 24 hours old or a million newer ones came, trimmed entry or not.

        `references` is noted in the same commit: blob and entries are there whenever this entry may be applied. The
        future raises LogGapError when one of them is not there by now.

        A future that is cancelled before its turn appends nothing; afterwards it can no longer be cancelled. Its
        callbacks may run in the store's own thread: they are brief and call no verb. An append
        that was refused with StoreUnavailableError is not in the log. (One exception, which no store can rule out:
        when the disk failed while it was being synced, a crash straight after may bring the entry back. A retry with
        the same idempotency key is right in either case.)
        """

    def read(self, name: str, incarnation: str, after_seq: int, *, max_bytes: int) -> list[Entry]:
        """Entries after `after_seq` in order, at least one if there is one, then as many as fit `max_bytes`.

        LogGapError when the first held entry after `after_seq` is not `after_seq + 1`, when a later one is missing or
        not whole, and when the log ends before `after_seq`: the reader is ahead of a log that lost its end.
        """

    def wait_for_entries(self, name: str, incarnation: str, after_seq: int, timeout_s: float) -> bool:
        """Block until the log holds an entry after `after_seq` or the time is up; True when it does.

        StreamGoneError as soon as the stream is deleted, StoreUnavailableError as soon as the store is closed.
        """

    def tail(self, name: str, incarnation: str) -> Tail:
        """The end of the log."""

    def acquire_writer(self, name: str, incarnation: str) -> int:
        """A new epoch, larger than all before: whoever holds an older one is refused from now on.

        Blobs that no entry names are dropped: whoever wrote them has died, or will find them missing and write again.
        """

    def mark_applied(self, name: str, incarnation: str, epoch: int, seq: int) -> None:
        """Tell the store how far the learner is (in memory; not durable): what the byte budget counts from.

        After a start it is the newest checkpoint's seq. It may be set back, by a learner that had to begin at the
        older checkpoint; a seq that is trimmed already counts as the oldest place still known.
        """

    def save_checkpoint(
        self, name: str, incarnation: str, epoch: int, checkpoint: Checkpoint, *, keep_after: int | None = None
    ) -> None:
        """Make the checkpoint durable and trim, in one transaction that also checks the epoch (StaleWriterError).

        The two newest checkpoints (by seq) stay, not counting any that was found damaged; one of the same seq is
        replaced. Entries are dropped (with a single checkpoint: none) only when they are at or before the older one,
        the `window_seq` of either, `keep_after` where given, and the `after_seq` of what any entry after the older
        checkpoint needs. A blob goes with the last entry that names it.
        """

    def load_checkpoints(self, name: str, incarnation: str) -> list[Checkpoint]:
        """Up to two, newest first. A damaged one is left out, with a warning: the older one takes its place."""

    def put_blob(self, name: str, incarnation: str, key: str, blob: bytes) -> None:
        """Keep a blob under a key of one's own, durably, in pieces of at most 8 MiB, read back before this returns.

        The same key and bytes again change nothing; other bytes under a key that is there: ValueError.
        """

    def get_blob(self, name: str, incarnation: str, key: str) -> bytes:
        """The blob, held against its checksum. LogGapError when it is missing or not whole."""

    def drop_blob(self, name: str, incarnation: str, key: str) -> None:
        """Let go of a blob, unless an entry names it."""

    def blob_keys(self, name: str, incarnation: str) -> list[str]:
        """The keys of all blobs that are whole, sorted."""

    def put_job(self, name: str, incarnation: str, job_id: str, body: bytes, *, version: int) -> bool:
        """Write a job durably if `version` is that of the one held (0: there is none); False when it is another.

        A new one lets go of the oldest beyond `JOBS_KEPT`.
        """

    def jobs(self, name: str, incarnation: str) -> list[Job]:
        """All jobs kept, newest first."""

    def add_dead_letter(self, name: str, incarnation: str, epoch: int, letter: DeadLetter) -> None:
        """Keep an entry aside, durably, under the epoch check. Adding the same seq again changes nothing."""

    def replace_settings(self, name: str, incarnation: str, epoch: int, expected: bytes, settings: bytes) -> None:
        """Make `settings` the record's, durably, under the epoch check, if `expected` are they now; else nothing."""

    def dead_letters(self, name: str, incarnation: str) -> list[DeadLetter]:
        """All that are kept, oldest first, with their payloads: for people. LogGapError when one is not whole."""

    def dead_letter_reasons(self, name: str, incarnation: str) -> dict[int, str]:
        """The reason of every letter kept, by seq, oldest first; no payload is read."""

    def check(self) -> None:
        """Raise StoreUnavailableError if the store cannot take a write now (readiness)."""

    def describe(self) -> str:
        """One line for people: which backend, where, and what it promises."""

    def close(self) -> None:
        """Finish what was accepted and let go. Idempotent."""
