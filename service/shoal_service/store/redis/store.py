"""The Redis store, on a Redis or Valkey server: any number of processes append and read, and one learns each stream.

All changes are Lua scripts (lua/), sent by one thread of each process (writer.py). The server is checked first
(server_checks.py). keys.py describes the layout. The store does not decide which process learns a stream: the process
that acquires the newest epoch is the one, and the scripts refuse all others.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

from shoal.errors import SettingError
from shoal_service.errors import StoreUnavailableError
from shoal_service.store import rules, source_positions
from shoal_service.store.contract import (
    ANSWERS_KEPT,
    ANSWERS_KEPT_S,
    AccessKey,
    Appended,
    Checkpoint,
    DeadLetter,
    DeadLetterHead,
    DocumentName,
    Entry,
    Job,
    MayCreate,
    NewEntry,
    PagePlace,
    PageRun,
    StreamRecord,
    Tail,
    Wake,
)
from shoal_service.store.redis import blob_refs, checkpoints, documents, log, record_pages, records
from shoal_service.store.redis.access_keys import AccessKeys
from shoal_service.store.redis.applied_marks import AppliedMark, PendingMarks
from shoal_service.store.redis.connection import Connections
from shoal_service.store.redis.epochs import AcquiredEpochs
from shoal_service.store.redis.high_water import AcknowledgedEntries
from shoal_service.store.redis.keys import StreamKeys, registry_keys, stream_keys
from shoal_service.store.redis.messages import RedisMessages
from shoal_service.store.redis.pubsub import Subscription
from shoal_service.store.redis.registry import Registry, acquire_request, replace_settings_request
from shoal_service.store.redis.server_checks import Durability
from shoal_service.store.redis.sharing import RedisSharing
from shoal_service.store.redis.writer import RedisWriter, WriteRequest
from shoal_service.store.rules import AnswerLimits

TIMEOUT_S = 10.0
CHECK_TIMEOUT_S = 5.0


class RedisStore:
    """Implementation of `Store` that processes share. `durability` says what an acknowledgement promises."""

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "shoal",
        durability: Durability = Durability.ALWAYS,
        timeout_s: float = TIMEOUT_S,
        marks_folder: Path | None = None,
        clock: Callable[[], float] = time.time,
        answers_kept: int = ANSWERS_KEPT,
        answers_kept_s: float = ANSWERS_KEPT_S,
    ) -> None:
        """Connect on the first call, to `redis://`, `rediss://`, `unix://`, or to sentinels (sentinel.py). `check` says
        why a server is refused.

        All keys begin with `prefix`. In `marks_folder`, high-water marks survive this process. A call waits `timeout_s`
        seconds for a reply. SettingError for a wrong address.
        """
        try:
            self._connections = Connections(url, timeout_s)
        except ValueError as error:
            raise SettingError(f"{error}; give the store's address as redis://host:port/database") from error
        self._clock = clock
        self._limits = AnswerLimits(answers_kept, answers_kept_s)
        self._prefix = prefix
        self._durability = Durability(durability)
        self._registry_keys = registry_keys(prefix)
        self._channels = (self._registry_keys.news, self._registry_keys.shown)
        self._marks = PendingMarks()
        self._writer = RedisWriter(self._connections, self._durability, self._registry_keys, self._marks)
        self._registry = Registry(self._connections, self._writer, prefix, self._registry_keys)
        self._access_keys = AccessKeys(self._connections, self._writer, self._registry_keys)
        self._news = Subscription(self._connections, self._registry_keys.news)
        self._damaged: set[bytes] = set()  # runs of checkpoints that did not match their checksum
        self._epochs = AcquiredEpochs(self._connections, prefix)
        self._acknowledged = AcknowledgedEntries(self._durability is not Durability.MAY_LOSE_A_SECOND, marks_folder)
        self._closed = False
        self.sharing = RedisSharing(self._connections, self._writer, prefix, self._registry_keys, self._epochs)
        """Methods that several processes need."""
        self.messages = RedisMessages(self._connections, prefix)
        """Messages between processes."""

    @property
    def commits(self) -> int:
        """Number of groups that were sent and answered since the start. Each cost about one sync."""
        return self._writer.exchanges

    def _keys(self, name: str, incarnation: str) -> StreamKeys:
        return stream_keys(self._prefix, name, incarnation)

    def _log(self, name: str, incarnation: str) -> log.LogReader:
        return log.LogReader(self._connections, self._keys(name, incarnation), name, incarnation, self._acknowledged)

    def _existing(self, name: str, incarnation: str) -> StreamKeys:
        """Return the keys of a stream. StreamGoneError when it was deleted."""
        self._log(name, incarnation).counters()
        return self._keys(name, incarnation)

    # -- the registry

    def create_stream(
        self, name: str, incarnation: str, settings: bytes, *, max_streams: int, may_create: MayCreate | None = None
    ) -> tuple[StreamRecord, bool]:
        """See `Store.create_stream`."""
        return self._registry.create(StreamRecord(name, incarnation, settings, self._clock()), max_streams, may_create)

    def get_stream(self, name: str) -> StreamRecord:
        """See `Store.get_stream`."""
        return self._registry.get(name)

    def list_streams(self) -> list[StreamRecord]:
        """See `Store.list_streams`."""
        return self._registry.list()

    def delete_stream(self, name: str, incarnation: str | None = None) -> None:
        """See `Store.delete_stream`."""
        self._registry.delete(name, incarnation)

    # -- the log

    def append(self, name: str, incarnation: str, entry: NewEntry, *, budget_bytes: int) -> Future[Appended]:
        """See `Store.append`, with one exception. When a reply is lost, an append without an idempotency key is refused
        with StoreUnavailableError although it may be in the log, as the message says. One with a key is sent again.
        """
        if entry.source is not None:
            source_positions.check_step(entry.source)
        request = log.append_request(
            self._keys(name, incarnation),
            self._channels,
            (name, incarnation),
            entry,
            budget_bytes=budget_bytes,
            limits=self._limits,
            now=self._clock(),
            acknowledged=self._acknowledged,
        )
        return self._writer.submit(request)

    def read(self, name: str, incarnation: str, after_seq: int, *, max_bytes: int) -> list[Entry]:
        """See `Store.read`."""
        return self._log(name, incarnation).read(after_seq, max_bytes)

    def wait_for_entries(
        self, name: str, incarnation: str, after_seq: int, timeout_s: float, wake: threading.Event | None = None
    ) -> bool:
        """See `Store.wait_for_entries`. The entry may come from any process."""
        until = time.monotonic() + timeout_s
        log_reader = self._log(name, incarnation)
        with self._news.waiting_for(self._keys(name, incarnation).tag, wake) as message:
            while log_reader.counters().end.seq <= after_seq:
                left = until - time.monotonic()
                if left <= 0 or (wake is not None and wake.is_set()):
                    return False
                message.wait(left)
        return True

    def watch(self, name: str, incarnation: str, event: Wake) -> None:
        """See `Store.watch`."""
        self._news.watch(self._keys(name, incarnation).tag, event)

    def unwatch(self, name: str, incarnation: str, event: Wake) -> None:
        """See `Store.unwatch`."""
        self._news.unwatch(self._keys(name, incarnation).tag, event)

    def tail(self, name: str, incarnation: str) -> Tail:
        """See `Store.tail`."""
        found = self._log(name, incarnation).counters()
        mark = self._marks.newest(self._keys(name, incarnation))
        newer = mark is not None and mark.epoch == found.epoch  # set here, and not sent yet
        applied_bytes = mark.payload_bytes if mark is not None and newer else found.applied_bytes
        return Tail(found.end.seq, found.end.log_offset, found.end.payload_bytes - applied_bytes, found.floor.seq + 1)

    # -- the learner

    def acquire_writer(self, name: str, incarnation: str) -> int:
        """See `Store.acquire_writer`. The applied mark falls back to the newest checkpoint."""
        epoch = self._writer.run(acquire_request(self._keys(name, incarnation), name, incarnation))
        self._epochs.add(name, incarnation, epoch)
        return epoch

    def mark_applied(self, name: str, incarnation: str, epoch: int, seq: int) -> None:
        """See `Store.mark_applied`. Other processes see it a moment later."""
        now, position = self._log(name, incarnation).counters_and_position(seq)
        rules.check_epoch(name, epoch, now.epoch)
        rules.check_within_log(name, "an applied mark", seq, now.end.seq)
        mark = AppliedMark(epoch, (position or now.floor).payload_bytes)
        if self._marks.put(self._keys(name, incarnation), mark):
            self._writer.wake()

    def save_checkpoint(
        self, name: str, incarnation: str, epoch: int, checkpoint: Checkpoint, *, keep_after: int | None = None
    ) -> None:
        """See `Store.save_checkpoint`. A state over a megabyte is staged in pieces, so that appends pass in between."""
        damaged = frozenset(self._damaged)
        request = checkpoints.SaveRequest(name, incarnation, epoch, checkpoint, keep_after, damaged)
        checkpoints.save(self._writer, self._keys(name, incarnation), request)

    def load_checkpoints(self, name: str, incarnation: str) -> list[Checkpoint]:
        """See `Store.load_checkpoints`."""
        whole, damaged = checkpoints.load(self._connections, self._existing(name, incarnation), name)
        self._damaged |= damaged
        return whole

    def put_blob(self, name: str, incarnation: str, key: str, blob: bytes) -> None:
        """See `Store.put_blob`."""
        blob_refs.put(self._writer, self._keys(name, incarnation), name, incarnation, key, blob)
        if self.get_blob(name, incarnation, key) != blob:
            raise StoreUnavailableError(
                f"redis at {self._connections.where} gave other bytes than were written; check it"
            )

    def get_blob(self, name: str, incarnation: str, key: str) -> bytes:
        """See `Store.get_blob`."""
        return blob_refs.get(self._connections, self._existing(name, incarnation), name, key)

    def drop_blob(self, name: str, incarnation: str, key: str) -> None:
        """See `Store.drop_blob`."""
        self._writer.run(blob_refs.drop_request(self._keys(name, incarnation), name, incarnation, key))

    def blob_keys(self, name: str, incarnation: str) -> list[str]:
        """See `Store.blob_keys`."""
        return blob_refs.keys_of_blobs(self._connections, self._existing(name, incarnation))

    def put_job(self, name: str, incarnation: str, job_id: str, body: bytes, *, version: int) -> bool:
        """See `Store.put_job`."""
        job = Job(job_id, version, body)
        return self._writer.run(records.put_job_request(self._keys(name, incarnation), name, incarnation, job))

    def jobs(self, name: str, incarnation: str) -> list[Job]:
        """See `Store.jobs`."""
        return records.jobs(self._connections, self._existing(name, incarnation))

    def add_dead_letter(self, name: str, incarnation: str, epoch: int, letter: DeadLetter) -> None:
        """See `Store.add_dead_letter`."""
        keys = self._keys(name, incarnation)
        self._writer.run(records.dead_letter_request(keys, name, incarnation, epoch, letter))

    def write_pages(
        self,
        name: str,
        incarnation: str,
        epoch: int,
        pages: Mapping[PagePlace, bytes],
        dropped: Sequence[PageRun] = (),
    ) -> Future[None]:
        """See `Store.write_pages`."""
        keys = self._keys(name, incarnation)
        return record_pages.write(self._writer, keys, name, incarnation, epoch, pages, dropped)

    def read_pages(self, name: str, incarnation: str, places: Sequence[PagePlace]) -> list[bytes | None]:
        """See `Store.read_pages`."""
        return record_pages.read(self._connections, self._existing(name, incarnation), places)

    def documents(self, name: str, incarnation: str, kind: str) -> Mapping[str, bytes]:
        """See `Store.documents`."""
        rules.check_document_kind(kind)
        return documents.read(self._connections, self._existing(name, incarnation), name, kind)

    def document_names(self, name: str, incarnation: str, kind: str) -> list[str]:
        """See `Store.document_names`."""
        return documents.names(self._connections, self._existing(name, incarnation), kind)

    def set_document(self, name: str, incarnation: str, kind: str, document: str, value: bytes | None) -> None:
        """See `Store.set_document`."""
        rules.check_document(name, kind, document, value)
        stream = (name, incarnation)
        self._writer.run(documents.write_request(self._keys(*stream), stream, kind, document, value))

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
        """See `Store.change_documents`."""
        for (kind, document), value in changes.items():
            rules.check_document(name, kind, document, value)
        stream = (name, incarnation)
        return self._writer.run(
            documents.change_request(self._keys(*stream), stream, changes, expected, dropped, max_documents)
        )

    def replace_settings(self, name: str, incarnation: str, epoch: int, expected: bytes, settings: bytes) -> None:
        """See `Store.replace_settings`."""
        keys, channel = self._keys(name, incarnation), self._registry_keys.shown
        self._writer.run(replace_settings_request(keys, name, incarnation, epoch, (expected, settings), channel))

    def dead_letters(self, name: str, incarnation: str) -> list[DeadLetter]:
        """See `Store.dead_letters`."""
        return records.dead_letters(self._connections, self._existing(name, incarnation), name)

    def dead_letter(self, name: str, incarnation: str, seq: int) -> DeadLetter:
        """See `Store.dead_letter`."""
        return records.dead_letter(self._connections, self._existing(name, incarnation), name, seq)

    def dead_letter_heads(self, name: str, incarnation: str) -> list[DeadLetterHead]:
        """See `Store.dead_letter_heads`."""
        return records.dead_letter_heads(self._connections, self._existing(name, incarnation), name)

    def dead_letter_reasons(self, name: str, incarnation: str) -> dict[int, str]:
        """See `Store.dead_letter_reasons`."""
        return {head.seq: head.reason for head in self.dead_letter_heads(name, incarnation)}

    # -- access keys

    def access_version(self) -> int:
        """See `Store.access_version`."""
        return self._access_keys.version()

    def access_keys(self) -> list[AccessKey]:
        """See `Store.access_keys`."""
        return self._access_keys.all_keys()

    def put_access_key(self, key: AccessKey, *, only: bool = False) -> None:
        """See `Store.put_access_key`."""
        self._access_keys.put(key, only)

    def delete_access_key(self, key_id: str) -> bool:
        """See `Store.delete_access_key`."""
        return self._access_keys.delete(key_id)

    def mark_access_keys_used(self, used_at: Mapping[str, float]) -> None:
        """See `Store.mark_access_keys_used`."""
        self._access_keys.mark_used(used_at)

    # -- the store itself

    def check(self) -> None:
        """See `Store.check`. Checks the settings of the server, and writes a counter, within five seconds."""
        command = ("INCR", self._registry_keys.probes)
        probe = self._writer.submit(
            WriteRequest(self._registry_keys.streams, command, lambda reply, resent: None, rechecks=True)
        )
        try:
            probe.result(CHECK_TIMEOUT_S)
        except TimeoutError:
            raise StoreUnavailableError(
                f"redis at {self._connections.where} has not completed a write for {CHECK_TIMEOUT_S:g} s; check it"
            ) from None

    def describe(self) -> str:
        """See `Store.describe`."""
        facts = self._writer.facts
        server = f"{facts.name} {facts.version}" if facts is not None else "redis"
        where, promise = self._connections.where, self._durability.promise
        return f"{server} at {where}: acknowledged means {promise}; shared by processes"

    def close(self) -> None:
        """See `Store.close`. This process gives up the streams that it learnt."""
        if self._closed:
            return
        self._closed = True
        self._news.close()
        self.sharing.close()
        self.messages.close()
        for name, incarnation, epoch in self._epochs.all():
            # The applied mark of a learner that has ended would mislead the byte budget of other processes.
            request = acquire_request(self._keys(name, incarnation), name, incarnation, epoch)
            self._writer.submit(request).add_done_callback(Future.exception)
        self._writer.close()
        self._connections.close()
        self._acknowledged.close()
