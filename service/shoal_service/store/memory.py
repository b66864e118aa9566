"""The store in this process's memory: for trials and tests. What is acknowledged lasts as long as the process."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import islice

from shoal_service.errors import ServiceError
from shoal_service.store import rules
from shoal_service.store.contract import (
    ANSWERS_KEPT,
    ANSWERS_KEPT_S,
    JOBS_KEPT,
    Appended,
    Checkpoint,
    DeadLetter,
    Entry,
    EntryKind,
    IdempotencyKey,
    Job,
    References,
    StreamRecord,
    Tail,
)
from shoal_service.store.rules import START, Answer, AnswerLimits, LogMark


class _Stream:
    """What is held of one stream; touched under the store's lock only."""

    def __init__(self, record: StreamRecord, lock: threading.Lock) -> None:
        self.record = record
        self.epoch = 0
        self.floor = self.applied = START
        self.entries: list[Entry] = []  # entries[0] is floor.seq + 1
        self.marks: list[LogMark] = []  # the place behind each of them
        self.checkpoints: list[Checkpoint] = []  # newest first
        self.letters: dict[int, DeadLetter] = {}
        self.needs: dict[int, References] = {}  # by seq
        self.blobs: dict[str, bytes] = {}
        self.jobs: dict[str, Job] = {}  # oldest first
        self.answers: dict[str, Answer] = {}  # oldest first
        self.answers_end = 0
        self.gone = False
        self.grown = threading.Condition(lock)

    @property
    def end(self) -> LogMark:
        return self.marks[-1] if self.marks else self.floor

    def mark_at(self, seq: int) -> LogMark:
        return self.marks[seq - self.floor.seq - 1] if seq > self.floor.seq else self.floor

    def after(self, seq: int) -> Iterator[Entry]:
        return islice(self.entries, max(0, seq - self.floor.seq), None)

    def trim(self, last: int) -> None:
        dropped = last - self.floor.seq
        if dropped > 0:
            self.floor = self.marks[dropped - 1]
            del self.entries[:dropped], self.marks[:dropped]
            gone = [self.needs.pop(seq).blob_key for seq in sorted(self.needs) if seq <= last]
            self.drop_unnamed(gone)

    def drop_unnamed(self, keys: Iterable[str]) -> None:
        named = {needs.blob_key for needs in self.needs.values()}
        for key in set(keys) - named:
            self.blobs.pop(key, None)


class MemoryStore:
    """Every verb of `Store`, under one lock."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        answers_kept: int = ANSWERS_KEPT,
        answers_kept_s: float = ANSWERS_KEPT_S,
    ) -> None:
        self._clock = clock
        self._limits = AnswerLimits(answers_kept, answers_kept_s)
        self._lock = threading.Lock()
        self._streams: dict[str, _Stream] = {}
        self._closed = False

    # -- the registry

    def create_stream(
        self, name: str, incarnation: str, settings: bytes, *, max_streams: int
    ) -> tuple[StreamRecord, bool]:
        """As `Store.create_stream`."""
        with self._open():
            if (stream := self._streams.get(name)) is not None:
                return stream.record, False
            rules.check_room(name, len(self._streams), max_streams)
            record = StreamRecord(name, incarnation, settings, self._clock())
            self._streams[name] = _Stream(record, self._lock)
            return record, True

    def get_stream(self, name: str) -> StreamRecord:
        """As `Store.get_stream`."""
        with self._open():
            if name not in self._streams:
                raise rules.unknown(name)
            return self._streams[name].record

    def list_streams(self) -> list[StreamRecord]:
        """As `Store.list_streams`."""
        with self._open():
            return [self._streams[name].record for name in sorted(self._streams)]

    def delete_stream(self, name: str) -> None:
        """As `Store.delete_stream`."""
        with self._open():
            if name not in self._streams:
                raise rules.unknown(name)
            stream = self._streams.pop(name)
            stream.gone = True
            stream.grown.notify_all()

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
        """As `Store.append`; the future is done on return."""
        future: Future[Appended] = Future()
        try:
            with self._stream(name, incarnation) as stream:
                answer = self._append(
                    stream, kind, payload, n_points, budget_bytes, idempotency, settings, expected_settings, references
                )
        except ServiceError as refusal:
            future.set_exception(refusal)
        else:
            future.set_result(answer)
        return future

    def _append(
        self,
        stream: _Stream,
        kind: EntryKind,
        payload: bytes,
        n_points: int,
        budget_bytes: int,
        idempotency: IdempotencyKey | None,
        settings: bytes | None,
        expected_settings: bytes | None,
        references: References | None,
    ) -> Appended:
        if idempotency is not None:
            known = stream.answers.get(idempotency.key)
            if known is not None and self._limits.known(known, stream.answers_end, self._clock()):
                return rules.replay(known, idempotency)
        rules.check_budget(stream.record.name, stream.end.payload_bytes - stream.applied.payload_bytes, budget_bytes)
        rules.check_settings(stream.record.name, expected_settings, stream.record.settings)
        if references is not None:
            rules.check_entries_held(stream.record.name, references.after_seq, stream.floor, stream.end)
            if references.blob_key not in stream.blobs:
                raise rules.missing_needs(stream.record.name, f"the blob {references.blob_key!r}")
        end = stream.end.after(n_points, len(payload))
        if references is not None:
            stream.needs[end.seq] = references
        stream.entries.append(Entry(end.seq, end.log_offset, n_points, kind, payload))
        stream.marks.append(end)
        if idempotency is not None:
            self._remember(stream, idempotency, end, n_points)
        if settings is not None:
            stream.record = stream.record._replace(settings=settings)
        stream.grown.notify_all()
        return Appended(end.seq, end.log_offset, n_points, replayed=False)

    def _remember(self, stream: _Stream, asked: IdempotencyKey, end: LogMark, n_points: int) -> None:
        stream.answers_end += 1
        now = self._clock()
        stream.answers.pop(asked.key, None)  # an expired one: the new one goes to the end
        stream.answers[asked.key] = Answer(asked.digest, end.seq, end.log_offset, n_points, now, stream.answers_end)
        # Two forgotten for one remembered: the work of an append stays constant, and the old ones do not pile up.
        for key, answer in list(islice(stream.answers.items(), 2)):
            if not self._limits.known(answer, stream.answers_end, now):
                del stream.answers[key]

    def read(self, name: str, incarnation: str, after_seq: int, *, max_bytes: int) -> list[Entry]:
        """As `Store.read`."""
        with self._stream(name, incarnation) as stream:
            rules.check_held(name, after_seq, stream.floor, stream.end)
            found: list[Entry] = []
            for entry in stream.after(after_seq):
                max_bytes -= len(entry.payload)
                if found and max_bytes < 0:
                    break
                found.append(entry)
            return found

    def wait_for_entries(self, name: str, incarnation: str, after_seq: int, timeout_s: float) -> bool:
        """As `Store.wait_for_entries`."""
        with self._stream(name, incarnation) as stream:
            stream.grown.wait_for(lambda: self._closed or stream.gone or stream.end.seq > after_seq, timeout_s)
            if self._closed:
                raise rules.closed()
            if stream.gone:
                raise rules.gone(name, incarnation)
            return stream.end.seq > after_seq

    def tail(self, name: str, incarnation: str) -> Tail:
        """As `Store.tail`."""
        with self._stream(name, incarnation) as stream:
            end = stream.end
            waiting = end.payload_bytes - stream.applied.payload_bytes
            return Tail(end.seq, end.log_offset, waiting, stream.floor.seq + 1)

    # -- the learner

    def acquire_writer(self, name: str, incarnation: str) -> int:
        """As `Store.acquire_writer`."""
        with self._stream(name, incarnation) as stream:
            stream.epoch += 1
            stream.drop_unnamed(list(stream.blobs))
            return stream.epoch

    def mark_applied(self, name: str, incarnation: str, epoch: int, seq: int) -> None:
        """As `Store.mark_applied`."""
        with self._stream(name, incarnation) as stream:
            rules.check_epoch(name, epoch, stream.epoch)
            rules.check_reached(name, "an applied mark", seq, stream.end)
            stream.applied = stream.mark_at(seq)

    def save_checkpoint(
        self, name: str, incarnation: str, epoch: int, checkpoint: Checkpoint, *, keep_after: int | None = None
    ) -> None:
        """As `Store.save_checkpoint`."""
        with self._stream(name, incarnation) as stream:
            rules.check_epoch(name, epoch, stream.epoch)
            rules.check_reached(name, "a checkpoint", checkpoint.seq, stream.end)
            others = [c for c in stream.checkpoints if c.seq != checkpoint.seq]
            stream.checkpoints = sorted([*others, checkpoint], key=lambda c: -c.seq)[:2]
            kept = [(c.seq, c.window_seq) for c in stream.checkpoints]
            needed = [(seq, needs.after_seq) for seq, needs in stream.needs.items()]
            stream.trim(rules.last_droppable(stream.floor, kept, keep_after, needed))

    def load_checkpoints(self, name: str, incarnation: str) -> list[Checkpoint]:
        """As `Store.load_checkpoints`; none is ever damaged here."""
        with self._stream(name, incarnation) as stream:
            return list(stream.checkpoints)

    def put_blob(self, name: str, incarnation: str, key: str, blob: bytes) -> None:
        """As `Store.put_blob`."""
        with self._stream(name, incarnation) as stream:
            rules.check_same_blob(name, key, stream.blobs.setdefault(key, blob) == blob)

    def get_blob(self, name: str, incarnation: str, key: str) -> bytes:
        """As `Store.get_blob`."""
        with self._stream(name, incarnation) as stream:
            if key not in stream.blobs:
                raise rules.gap(name, f"the blob {key!r} is missing or not whole")
            return stream.blobs[key]

    def drop_blob(self, name: str, incarnation: str, key: str) -> None:
        """As `Store.drop_blob`."""
        with self._stream(name, incarnation) as stream:
            stream.drop_unnamed([key])

    def blob_keys(self, name: str, incarnation: str) -> list[str]:
        """As `Store.blob_keys`."""
        with self._stream(name, incarnation) as stream:
            return sorted(stream.blobs)

    def put_job(self, name: str, incarnation: str, job_id: str, body: bytes, *, version: int) -> bool:
        """As `Store.put_job`."""
        with self._stream(name, incarnation) as stream:
            held = stream.jobs.get(job_id)
            if version != (held.version if held is not None else 0):
                return False
            stream.jobs[job_id] = Job(job_id, version + 1, body)
            while len(stream.jobs) > JOBS_KEPT:
                del stream.jobs[next(iter(stream.jobs))]
            return True

    def jobs(self, name: str, incarnation: str) -> list[Job]:
        """As `Store.jobs`."""
        with self._stream(name, incarnation) as stream:
            return list(stream.jobs.values())[::-1]

    def add_dead_letter(self, name: str, incarnation: str, epoch: int, letter: DeadLetter) -> None:
        """As `Store.add_dead_letter`."""
        with self._stream(name, incarnation) as stream:
            rules.check_epoch(name, epoch, stream.epoch)
            stream.letters.setdefault(letter.seq, letter)

    def replace_settings(self, name: str, incarnation: str, epoch: int, expected: bytes, settings: bytes) -> None:
        """As `Store.replace_settings`."""
        with self._stream(name, incarnation) as stream:
            rules.check_epoch(name, epoch, stream.epoch)
            if stream.record.settings == expected:
                stream.record = stream.record._replace(settings=settings)

    def dead_letters(self, name: str, incarnation: str) -> list[DeadLetter]:
        """As `Store.dead_letters`."""
        with self._stream(name, incarnation) as stream:
            return [stream.letters[seq] for seq in sorted(stream.letters)]

    def dead_letter_reasons(self, name: str, incarnation: str) -> dict[int, str]:
        """As `Store.dead_letter_reasons`."""
        with self._stream(name, incarnation) as stream:
            return {seq: stream.letters[seq].reason for seq in sorted(stream.letters)}

    # -- the whole

    def check(self) -> None:
        """As `Store.check`."""
        with self._open():
            pass

    def describe(self) -> str:
        """As `Store.describe`."""
        return "memory: acknowledged means held by this process, and lost when it ends"

    def close(self) -> None:
        """As `Store.close`; what was held is let go."""
        with self._lock:
            self._closed = True
            for stream in self._streams.values():
                stream.grown.notify_all()
            self._streams.clear()

    @contextmanager
    def _open(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise rules.closed()
            yield

    @contextmanager
    def _stream(self, name: str, incarnation: str) -> Iterator[_Stream]:
        with self._open():
            stream = self._streams.get(name)
            if stream is None or stream.record.incarnation != incarnation:
                raise rules.gone(name, incarnation)
            yield stream
