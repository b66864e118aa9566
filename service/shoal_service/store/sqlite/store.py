"""The embedded store: one SQLite file in a folder that one process owns.

Changes go through one thread and one connection (writer.py, transactions.py, checkpoints.py), reads through a few
read-only connections (readers.py); where each stream stands is held in memory and moves after each commit (state.py).
"""

import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from shoal_service.errors import LogGapError, StoreUnavailableError
from shoal_service.store import rules
from shoal_service.store.contract import (
    ANSWERS_KEPT,
    ANSWERS_KEPT_S,
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
from shoal_service.store.rules import AnswerLimits
from shoal_service.store.sqlite import blob_refs, checkpoints, jobs, readers, stream_state, transactions
from shoal_service.store.sqlite.folder_lock import FolderLock, prepare_folder, refuse_network_file_system
from shoal_service.store.sqlite.schema import open_writer, store_error
from shoal_service.store.sqlite.writer import GroupWriter

CHECK_TIMEOUT_S = 5.0


class SqliteStore:
    """Every verb of `Store`, durable: an acknowledged append is on the disk (WAL, synchronous FULL, group commit)."""

    def __init__(
        self,
        data_dir: str | Path,
        *,
        clock: Callable[[], float] = time.time,
        answers_kept: int = ANSWERS_KEPT,
        answers_kept_s: float = ANSWERS_KEPT_S,
    ) -> None:
        """Open `data_dir`, made if need be.

        SettingError on a network file system, StoreInUseError when another process owns it, StoreFormatError for a
        file of a newer shoal or of something else, StoreUnavailableError when it cannot be written.
        """
        self._clock = clock
        self._limits = AnswerLimits(answers_kept, answers_kept_s)
        self._folder = prepare_folder(Path(data_dir))
        refuse_network_file_system(self._folder)
        self._lock = FolderLock(self._folder)
        try:
            db = open_writer(self._folder)
            try:
                self._published = stream_state.Published(*stream_state.load(db))
                self._writer = GroupWriter(db, self._published)
            except sqlite3.Error as error:
                db.close()
                raise store_error(error, f"opening {self._folder}") from error
        except BaseException:
            self._lock.release()
            raise
        self._readers = readers.ReaderPool(self._folder)
        self._damaged: set[int] = set()  # first chunks of checkpoints that did not match their checksum
        self._closing = threading.Lock()

    @property
    def commits(self) -> int:
        """How many transactions changed the file since the start: one sync each."""
        return self._writer.commits

    # -- the registry

    def create_stream(
        self, name: str, incarnation: str, settings: bytes, *, max_streams: int
    ) -> tuple[StreamRecord, bool]:
        """As `Store.create_stream`."""
        record = StreamRecord(name, incarnation, settings, self._clock())
        return self._writer.run(partial(transactions.create_stream, record=record, max_streams=max_streams))

    def get_stream(self, name: str) -> StreamRecord:
        """As `Store.get_stream`; from memory."""
        found = self._published.all().get(name)
        if found is None:
            raise rules.unknown(name)
        return found.record

    def list_streams(self) -> list[StreamRecord]:
        """As `Store.list_streams`; from memory."""
        return [found.record for _, found in sorted(self._published.all().items())]

    def delete_stream(self, name: str) -> None:
        """As `Store.delete_stream`. The file does not shrink: its free pages are used for what comes next."""
        self._writer.run(partial(transactions.delete_stream, name=name))

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
        """As `Store.append`."""
        request = transactions.AppendRequest(
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
        job = partial(transactions.append, request=request, limits=self._limits, clock=self._clock)
        return self._writer.submit(job, len(payload))

    def read(self, name: str, incarnation: str, after_seq: int, *, max_bytes: int) -> list[Entry]:
        """As `Store.read`."""
        stream = self._published.find(name, incarnation)
        rules.check_held(name, after_seq, stream.floor, stream.end)
        if after_seq == stream.end.seq:
            return []
        with self._readers.snapshot() as db:
            try:
                return readers.entries_after(db, stream, after_seq, max_bytes)
            except LogGapError:
                self._published.find(name, incarnation)  # no gap, if the stream was deleted meanwhile
                raise

    def wait_for_entries(self, name: str, incarnation: str, after_seq: int, timeout_s: float) -> bool:
        """As `Store.wait_for_entries`."""
        return self._published.wait_for_entries(name, incarnation, after_seq, timeout_s)

    def tail(self, name: str, incarnation: str) -> Tail:
        """As `Store.tail`; from memory."""
        return self._published.tail(name, incarnation)

    # -- the learner

    def acquire_writer(self, name: str, incarnation: str) -> int:
        """As `Store.acquire_writer`."""
        return self._writer.run(partial(transactions.acquire_writer, name=name, incarnation=incarnation))

    def mark_applied(self, name: str, incarnation: str, epoch: int, seq: int) -> None:
        """As `Store.mark_applied`."""
        stream = self._published.find(name, incarnation)
        rules.check_epoch(name, epoch, stream.epoch)
        rules.check_reached(name, "an applied mark", seq, stream.end)
        if seq == stream.end.seq:
            mark = stream.end
        else:
            with self._readers.snapshot() as db:
                mark = stream_state.mark_at(db, stream, seq)
        self._published.mark_applied(name, incarnation, epoch, mark)

    def save_checkpoint(
        self, name: str, incarnation: str, epoch: int, checkpoint: Checkpoint, *, keep_after: int | None = None
    ) -> None:
        """As `Store.save_checkpoint`. A blob over 4 MiB goes ahead in pieces, so that appends pass in between."""
        damaged = frozenset(self._damaged)
        request = checkpoints.SaveRequest(name, incarnation, epoch, checkpoint, keep_after, damaged)
        checkpoints.save(self._writer, request)

    def load_checkpoints(self, name: str, incarnation: str) -> list[Checkpoint]:
        """As `Store.load_checkpoints`; each blob is held against its SHA-256."""
        with self._readers.snapshot() as db:
            whole, damaged = readers.checkpoints(db, self._published.find(name, incarnation))
        self._damaged |= damaged
        return whole

    def put_blob(self, name: str, incarnation: str, key: str, blob: bytes) -> None:
        """As `Store.put_blob`; in rows of 256 KiB."""
        blob_refs.put(self._writer, name, incarnation, key, blob)
        if self.get_blob(name, incarnation, key) != blob:
            raise StoreUnavailableError(f"the disk under {self._folder} gave other bytes than were written; check it")

    def get_blob(self, name: str, incarnation: str, key: str) -> bytes:
        """As `Store.get_blob`."""
        with self._readers.snapshot() as db:
            return blob_refs.get(db, self._published.find(name, incarnation), key)

    def drop_blob(self, name: str, incarnation: str, key: str) -> None:
        """As `Store.drop_blob`."""
        self._writer.run(partial(blob_refs.drop_asked, name=name, incarnation=incarnation, key=key))

    def blob_keys(self, name: str, incarnation: str) -> list[str]:
        """As `Store.blob_keys`."""
        with self._readers.snapshot() as db:
            return blob_refs.keys(db, self._published.find(name, incarnation))

    def put_job(self, name: str, incarnation: str, job_id: str, body: bytes, *, version: int) -> bool:
        """As `Store.put_job`."""
        job = Job(job_id, version, body)
        return self._writer.run(partial(jobs.put, name=name, incarnation=incarnation, job=job), len(body))

    def jobs(self, name: str, incarnation: str) -> list[Job]:
        """As `Store.jobs`."""
        with self._readers.snapshot() as db:
            return jobs.listed(db, self._published.find(name, incarnation))

    def add_dead_letter(self, name: str, incarnation: str, epoch: int, letter: DeadLetter) -> None:
        """As `Store.add_dead_letter`."""
        job = partial(transactions.add_dead_letter, name=name, incarnation=incarnation, epoch=epoch, letter=letter)
        self._writer.run(job, len(letter.payload))

    def replace_settings(self, name: str, incarnation: str, epoch: int, expected: bytes, settings: bytes) -> None:
        """As `Store.replace_settings`."""
        job = partial(
            transactions.replace_settings,
            name=name,
            incarnation=incarnation,
            epoch=epoch,
            expected=expected,
            settings=settings,
        )
        self._writer.run(job, len(settings))

    def dead_letters(self, name: str, incarnation: str) -> list[DeadLetter]:
        """As `Store.dead_letters`."""
        with self._readers.snapshot() as db:
            return readers.dead_letters(db, self._published.find(name, incarnation))

    def dead_letter_reasons(self, name: str, incarnation: str) -> dict[int, str]:
        """As `Store.dead_letter_reasons`."""
        with self._readers.snapshot() as db:
            return readers.dead_letter_reasons(db, self._published.find(name, incarnation))

    # -- the whole

    def check(self) -> None:
        """As `Store.check`: writes a counter and waits for the disk, five seconds at most."""
        try:
            self._writer.submit(transactions.probe).result(CHECK_TIMEOUT_S)
        except TimeoutError:
            raise StoreUnavailableError(
                f"the disk under {self._folder} has not taken a write for {CHECK_TIMEOUT_S:g} s; see that it works"
            ) from None

    def describe(self) -> str:
        """As `Store.describe`."""
        return (
            f"sqlite {sqlite3.sqlite_version} in {self._folder}: acknowledged means on this disk "
            "(WAL, synchronous=FULL); one process"
        )

    def close(self) -> None:
        """As `Store.close`: what is queued is committed first."""
        with self._closing:
            self._published.close()
            self._readers.close()
            self._writer.close()
            self._lock.release()
