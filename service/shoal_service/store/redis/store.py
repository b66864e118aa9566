"""The store on a Redis server (or Valkey) that processes share: any number append and read, one for each stream learns.

All changes are Lua scripts (lua/), sent by one thread (redis_writer.py) to a server that was looked at first
(redis_checks.py); where things lie is in redis_keys.py. Which process learns a stream is not decided here: whoever
acquires the writer's epoch last is the one, and the scripts refuse the others.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future

from shoal.errors import SettingError
from shoal_service.errors import StoreUnavailableError
from shoal_service.store import contract, rules
from shoal_service.store.contract import (
    ANSWERS_KEPT,
    ANSWERS_KEPT_S,
    Appended,
    Checkpoint,
    DeadLetter,
    Entry,
    EntryKind,
    IdempotencyKey,
    References,
    StreamRecord,
    Tail,
)
from shoal_service.store.redis import blob_refs, checkpoints, log
from shoal_service.store.redis.applied import Mark, PendingMarks
from shoal_service.store.redis.connection import Links
from shoal_service.store.redis.keys import StreamKeys, registry_keys, stream_keys
from shoal_service.store.redis.pubsub import News
from shoal_service.store.redis.registry import Registry
from shoal_service.store.redis.requests import Job
from shoal_service.store.redis.server_checks import Durability
from shoal_service.store.redis.sharing import RedisSharing
from shoal_service.store.redis.writer import RedisWriter
from shoal_service.store.rules import AnswerLimits

TIMEOUT_S = 10.0
CHECK_TIMEOUT_S = 5.0


class RedisStore:
    """Every verb of `Store`, shared among processes. What an acknowledged append has behind it is `durability`."""

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "shoal",
        durability: Durability = Durability.ALWAYS,
        timeout_s: float = TIMEOUT_S,
        clock: Callable[[], float] = time.time,
        answers_kept: int = ANSWERS_KEPT,
        answers_kept_s: float = ANSWERS_KEPT_S,
    ) -> None:
        """`redis://`, `rediss://` or `unix://`; connects when first asked, and `check` says why the server is not fit.

        All keys begin with `prefix`. An answer is waited for `timeout_s` seconds. SettingError for an address that is
        none.
        """
        try:
            self._links = Links(url, timeout_s)
        except ValueError as error:
            raise SettingError(f"{error}; give the store's address as redis://host:port/database") from error
        self._clock = clock
        self._limits = AnswerLimits(answers_kept, answers_kept_s)
        self._prefix = prefix
        self._durability = Durability(durability)
        self._registry_keys = registry_keys(prefix)
        self._channels = (self._registry_keys.news, self._registry_keys.shown)
        self._marks = PendingMarks()
        self._writer = RedisWriter(self._links, self._durability, self._registry_keys, self._marks)
        self._registry = Registry(self._links, self._writer, prefix, self._registry_keys)
        self._news = News(self._links, self._registry_keys.news)
        self._damaged: set[bytes] = set()  # names of blobs that did not match their checksum
        self._epochs: dict[tuple[str, str], int] = {}  # that this process acquired
        self._closed = False
        self.sharing = RedisSharing(self._links, self._writer, prefix, self._registry_keys, self._epochs)
        """What several processes need of one another."""

    @property
    def commits(self) -> int:
        """How many groups were sent and answered since the start: about one sync each."""
        return self._writer.exchanges

    def _keys(self, name: str, incarnation: str) -> StreamKeys:
        return stream_keys(self._prefix, name, incarnation)

    # -- the registry

    def create_stream(
        self, name: str, incarnation: str, settings: bytes, *, max_streams: int
    ) -> tuple[StreamRecord, bool]:
        """As `Store.create_stream`."""
        return self._registry.create(StreamRecord(name, incarnation, settings, self._clock()), max_streams)

    def get_stream(self, name: str) -> StreamRecord:
        """As `Store.get_stream`."""
        return self._registry.get(name)

    def list_streams(self) -> list[StreamRecord]:
        """As `Store.list_streams`."""
        return self._registry.list()

    def delete_stream(self, name: str) -> None:
        """As `Store.delete_stream`."""
        self._registry.delete(name)

    # -- the log

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
    ) -> Future[Appended]:
        """As `Store.append`, but for this: when a reply is lost, an append without an idempotency key is refused with
        StoreUnavailableError though it may be in the log, as the message says. One with a key is sent again.
        """
        request = log.AppendRequest(
            name,
            incarnation,
            kind,
            payload,
            n_points,
            budget_bytes,
            idempotency,
            settings,
            expected_settings,
            references,
        )
        keys = self._keys(name, incarnation)
        return self._writer.submit(log.append_job(keys, self._channels, request, self._limits, self._clock()))

    def read(self, name: str, incarnation: str, after_seq: int, *, max_bytes: int) -> list[Entry]:
        """As `Store.read`."""
        return log.read(self._links, self._keys(name, incarnation), name, incarnation, after_seq, max_bytes)

    def wait_for_entries(self, name: str, incarnation: str, after_seq: int, timeout_s: float) -> bool:
        """As `Store.wait_for_entries`, whichever process appends."""
        until = time.monotonic() + timeout_s
        with self._news.of(self._keys(name, incarnation).tag) as listening:
            while self._counters(name, incarnation).end.seq <= after_seq:
                if (left := until - time.monotonic()) <= 0:
                    return False
                listening.wait(left)
        return True

    def tail(self, name: str, incarnation: str) -> Tail:
        """As `Store.tail`."""
        found = self._counters(name, incarnation)
        mark = self._marks.of(self._keys(name, incarnation))
        newer = mark is not None and mark.epoch == found.epoch  # set here, and not there yet
        applied_bytes = mark.payload_bytes if mark is not None and newer else found.applied_bytes
        return Tail(found.end.seq, found.end.log_offset, found.end.payload_bytes - applied_bytes, found.floor.seq + 1)

    def _counters(self, name: str, incarnation: str) -> log.Counters:
        return log.counters(self._links, self._keys(name, incarnation), name, incarnation)

    # -- the learner

    def acquire_writer(self, name: str, incarnation: str) -> int:
        """As `Store.acquire_writer`; the applied mark begins at the newest checkpoint again."""
        epoch = self._writer.run(checkpoints.acquire_job(self._keys(name, incarnation), name, incarnation))
        self._epochs[name, incarnation] = epoch
        return epoch

    def mark_applied(self, name: str, incarnation: str, epoch: int, seq: int) -> None:
        """As `Store.mark_applied`; other processes see it a moment later."""
        keys = self._keys(name, incarnation)
        now, row = log.counters_and_row(self._links, keys, name, incarnation, seq)
        rules.check_epoch(name, epoch, now.epoch)
        rules.check_reached(name, "an applied mark", seq, now.end)
        mark = row.mark if row is not None else now.floor
        if self._marks.put(keys, Mark(epoch, mark.payload_bytes)):
            self._writer.nudge()

    def save_checkpoint(
        self, name: str, incarnation: str, epoch: int, checkpoint: Checkpoint, *, keep_after: int | None = None
    ) -> None:
        """As `Store.save_checkpoint`. A blob over a megabyte goes ahead in pieces, so that appends pass in between."""
        checkpoints.save_checkpoint(
            self._writer,
            self._keys(name, incarnation),
            name,
            incarnation,
            epoch,
            checkpoint,
            keep_after,
            frozenset(self._damaged),
        )

    def load_checkpoints(self, name: str, incarnation: str) -> list[Checkpoint]:
        """As `Store.load_checkpoints`; each blob is held against its SHA-256."""
        self._counters(name, incarnation)
        whole, damaged = checkpoints.load_checkpoints(self._links, self._keys(name, incarnation), name)
        self._damaged |= damaged
        return whole

    def put_blob(self, name: str, incarnation: str, key: str, blob: bytes) -> None:
        """As `Store.put_blob`; in pieces of a megabyte."""
        blob_refs.put_blob(self._writer, self._keys(name, incarnation), name, incarnation, key, blob)
        if self.get_blob(name, incarnation, key) != blob:
            raise StoreUnavailableError(f"redis at {self._links.where} gave other bytes than were written; check it")

    def get_blob(self, name: str, incarnation: str, key: str) -> bytes:
        """As `Store.get_blob`."""
        self._counters(name, incarnation)
        return blob_refs.get_blob(self._links, self._keys(name, incarnation), name, key)

    def drop_blob(self, name: str, incarnation: str, key: str) -> None:
        """As `Store.drop_blob`."""
        self._writer.run(blob_refs.drop_job(self._keys(name, incarnation), name, incarnation, key))

    def blob_keys(self, name: str, incarnation: str) -> list[str]:
        """As `Store.blob_keys`."""
        self._counters(name, incarnation)
        return blob_refs.blob_keys(self._links, self._keys(name, incarnation))

    def put_job(self, name: str, incarnation: str, job_id: str, body: bytes, *, version: int) -> bool:
        """As `Store.put_job`."""
        job = contract.Job(job_id, version, body)
        return self._writer.run(blob_refs.put_job(self._keys(name, incarnation), name, incarnation, job))

    def jobs(self, name: str, incarnation: str) -> list[contract.Job]:
        """As `Store.jobs`."""
        self._counters(name, incarnation)
        return blob_refs.jobs(self._links, self._keys(name, incarnation))

    def add_dead_letter(self, name: str, incarnation: str, epoch: int, letter: DeadLetter) -> None:
        """As `Store.add_dead_letter`."""
        self._writer.run(checkpoints.letter_job(self._keys(name, incarnation), name, incarnation, epoch, letter))

    def replace_settings(self, name: str, incarnation: str, epoch: int, expected: bytes, settings: bytes) -> None:
        """As `Store.replace_settings`."""
        keys = self._keys(name, incarnation)
        job = checkpoints.settle_job(keys, name, incarnation, epoch, (expected, settings), self._registry_keys.shown)
        self._writer.run(job)

    def dead_letters(self, name: str, incarnation: str) -> list[DeadLetter]:
        """As `Store.dead_letters`."""
        self._counters(name, incarnation)
        return checkpoints.dead_letters(self._links, self._keys(name, incarnation), name)

    def dead_letter_reasons(self, name: str, incarnation: str) -> dict[int, str]:
        """As `Store.dead_letter_reasons`."""
        self._counters(name, incarnation)
        return checkpoints.dead_letter_reasons(self._links, self._keys(name, incarnation))

    # -- the whole

    def check(self) -> None:
        """As `Store.check`: looks at the server's settings, writes a counter and waits for the answer, five seconds."""
        command = ("INCR", self._registry_keys.probes)
        probe = self._writer.submit(
            Job(self._registry_keys.streams, command, lambda reply, resent: None, rechecks=True)
        )
        try:
            probe.result(CHECK_TIMEOUT_S)
        except TimeoutError:
            raise StoreUnavailableError(
                f"redis at {self._links.where} has not taken a write for {CHECK_TIMEOUT_S:g} s; see that it works"
            ) from None

    def describe(self) -> str:
        """As `Store.describe`."""
        facts = self._writer.facts
        server = f"{facts.name} {facts.version}" if facts is not None else "redis"
        return f"{server} at {self._links.where}: acknowledged means {self._durability.promise}; shared by processes"

    def close(self) -> None:
        """As `Store.close`: what is queued is sent first, and the streams that were learnt here are given up."""
        if self._closed:
            return
        self._closed = True
        self._news.close()
        self.sharing.close()
        for (name, incarnation), epoch in self._epochs.items():
            # The mark is a running learner's; so that other processes do not count from one that has ended.
            self._writer.submit(
                checkpoints.acquire_job(self._keys(name, incarnation), name, incarnation, epoch)
            ).add_done_callback(Future.exception)
        self._writer.close()
        self._links.close()
