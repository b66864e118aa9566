"""The SQLite store: one database in a folder that one process owns, or in the memory of this process.

One thread and one connection write (writer.py). A few read-only connections read (connections.py). The state of each
stream is held in memory and replaced after each commit (stream_state.py).
"""

import contextlib
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from shoal_service.errors import LogGapError, StoreUnavailableError
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
from shoal_service.store.rules import AnswerLimits
from shoal_service.store.sqlite import (
    access_keys,
    blob_refs,
    checkpoints,
    documents,
    log,
    record_pages,
    records,
    registry,
    stream_state,
)
from shoal_service.store.sqlite.connections import OneConnection, ReaderPool, Readers
from shoal_service.store.sqlite.folder_lock import FolderLock, prepare_folder, refuse_network_file_system
from shoal_service.store.sqlite.high_water import HighWaterMarks
from shoal_service.store.sqlite.schema import DATABASE_ERRORS, open_memory, open_writer, store_error
from shoal_service.store.sqlite.writer import SqliteWriter, Transaction

CHECK_TIMEOUT_S = 5.0


class SqliteStore:
    """Implementation of `Store`. An acknowledged append is on the disk (WAL, synchronous FULL, group commit)."""

    def __init__(
        self,
        data_dir: str | Path | None,
        *,
        clock: Callable[[], float] = time.time,
        answers_kept: int = ANSWERS_KEPT,
        answers_kept_s: float = ANSWERS_KEPT_S,
    ) -> None:
        """Open the store in `data_dir`, which is created if it is missing. None keeps everything in memory.

        SettingError on a network file system, StoreInUseError when another process owns the folder, StoreFormatError
        for a file of a newer shoal or of another program, StoreUnavailableError when it cannot be written.
        """
        self._clock = clock
        self._limits = AnswerLimits(answers_kept, answers_kept_s)
        self._damaged: set[int] = set()  # first chunks of checkpoints that did not match their checksum
        self._closing = threading.Lock()
        self._readers: Readers
        with contextlib.ExitStack() as opened:
            marks = folder = None
            if data_dir is None:
                self._where = "memory"
                db = open_memory()
                self._readers = OneConnection(db)
            else:
                folder = prepare_folder(Path(data_dir))
                self._where = str(folder)
                refuse_network_file_system(folder)
                opened.callback(FolderLock(folder).release)
                db = open_writer(folder)
                self._readers = ReaderPool(folder)
                opened.callback(db.close)
                marks = HighWaterMarks(folder)
                opened.callback(marks.close)
            try:
                loaded = stream_state.load(db)
                if marks is not None:
                    loaded = marks.check(loaded)
                self._streams = stream_state.StreamTable(loaded)
                self._writer = SqliteWriter(db, self._streams, self._readers, marks, folder)
            except DATABASE_ERRORS as error:
                raise store_error(error, f"opening {self._where}") from error
            self._release = opened.pop_all()

    @property
    def commits(self) -> int:
        """Number of transactions that changed the file since the start. Each cost one sync."""
        return self._writer.commits

    # -- the registry

    def create_stream(
        self, name: str, incarnation: str, settings: bytes, *, max_streams: int, may_create: MayCreate | None = None
    ) -> tuple[StreamRecord, bool]:
        """See `Store.create_stream`."""
        record = StreamRecord(name, incarnation, settings, self._clock())
        return self._writer.run(
            partial(registry.create_stream, record=record, max_streams=max_streams, may_create=may_create)
        )

    def get_stream(self, name: str) -> StreamRecord:
        """See `Store.get_stream`."""
        found = self._streams.of_name(name)
        if found is None:
            raise rules.unknown(name)
        return found.record

    def list_streams(self) -> list[StreamRecord]:
        """See `Store.list_streams`."""
        return [found.record for _, found in sorted(self._streams.all().items())]

    def delete_stream(self, name: str, incarnation: str | None = None) -> None:
        """See `Store.delete_stream`. The file does not shrink; its free pages are used again."""
        self._writer.run(partial(registry.delete_stream, name=name, incarnation=incarnation))

    # -- the log

    def append(self, name: str, incarnation: str, entry: NewEntry, *, budget_bytes: int) -> Future[Appended]:
        """See `Store.append`."""
        if entry.source is not None:
            source_positions.check_step(entry.source)
        work = partial(
            log.append,
            stream=(name, incarnation),
            entry=entry,
            budget_bytes=budget_bytes,
            payload_crc=zlib.crc32(entry.payload),
            limits=self._limits,
            clock=self._clock,
        )
        return self._writer.submit(work, len(entry.payload))

    def read(self, name: str, incarnation: str, after_seq: int, *, max_bytes: int) -> list[Entry]:
        """See `Store.read`."""
        stream = self._streams.find(name, incarnation)
        rules.check_readable(name, after_seq, stream.floor, stream.end)
        if after_seq == stream.end.seq:
            rules.check_end_known(name, stream.damage)
            return []
        with self._readers.snapshot() as db:
            try:
                return log.read_entries(db, stream, after_seq, max_bytes)
            except LogGapError:
                self._streams.find(name, incarnation)  # no gap if the stream was deleted meanwhile
                raise

    def wait_for_entries(
        self, name: str, incarnation: str, after_seq: int, timeout_s: float, wake: threading.Event | None = None
    ) -> bool:
        """See `Store.wait_for_entries`."""
        return self._streams.wait_for_entries(name, incarnation, after_seq, timeout_s, wake)

    def watch(self, name: str, incarnation: str, event: Wake) -> None:
        """See `Store.watch`."""
        self._streams.find(name, incarnation)
        self._streams.watch(name, event)

    def unwatch(self, name: str, incarnation: str, event: Wake) -> None:
        """See `Store.unwatch`."""
        self._streams.unwatch(name, event)

    def tail(self, name: str, incarnation: str) -> Tail:
        """See `Store.tail`."""
        return self._streams.tail(name, incarnation)

    # -- the learner

    def acquire_writer(self, name: str, incarnation: str) -> int:
        """See `Store.acquire_writer`."""
        return self._writer.run(partial(registry.acquire_writer, name=name, incarnation=incarnation))

    def mark_applied(self, name: str, incarnation: str, epoch: int, seq: int) -> None:
        """See `Store.mark_applied`."""
        stream = self._streams.find(name, incarnation)
        rules.check_epoch(name, epoch, stream.epoch)
        rules.check_within_log(name, "an applied mark", seq, stream.end.seq)
        if seq == stream.end.seq:
            position = stream.end
        else:
            with self._readers.snapshot() as db:
                position = stream_state.position_of(db, stream, seq)
        self._streams.mark_applied(name, incarnation, epoch, position)

    def save_checkpoint(
        self, name: str, incarnation: str, epoch: int, checkpoint: Checkpoint, *, keep_after: int | None = None
    ) -> None:
        """See `Store.save_checkpoint`. A state over 4 MiB is staged in pieces, so that appends pass in between."""
        damaged = frozenset(self._damaged)
        request = checkpoints.SaveRequest(name, incarnation, epoch, checkpoint, keep_after, damaged)
        checkpoints.save(self._writer, request)

    def load_checkpoints(self, name: str, incarnation: str) -> list[Checkpoint]:
        """See `Store.load_checkpoints`."""
        with self._readers.snapshot() as db:
            whole, damaged = checkpoints.load(db, self._streams.find(name, incarnation))
        self._damaged |= damaged
        return whole

    def put_blob(self, name: str, incarnation: str, key: str, blob: bytes) -> None:
        """See `Store.put_blob`."""
        blob_refs.put(self._writer, name, incarnation, key, blob)
        if self.get_blob(name, incarnation, key) != blob:
            raise StoreUnavailableError(f"the disk under {self._where} gave other bytes than were written; check it")

    def get_blob(self, name: str, incarnation: str, key: str) -> bytes:
        """See `Store.get_blob`."""
        with self._readers.snapshot() as db:
            return blob_refs.get(db, self._streams.find(name, incarnation), key)

    def drop_blob(self, name: str, incarnation: str, key: str) -> None:
        """See `Store.drop_blob`."""
        self._writer.run(partial(blob_refs.drop_on_request, name=name, incarnation=incarnation, key=key))

    def blob_keys(self, name: str, incarnation: str) -> list[str]:
        """See `Store.blob_keys`."""
        with self._readers.snapshot() as db:
            return blob_refs.keys(db, self._streams.find(name, incarnation))

    def put_job(self, name: str, incarnation: str, job_id: str, body: bytes, *, version: int) -> bool:
        """See `Store.put_job`."""
        job = Job(job_id, version, body)
        return self._writer.run(partial(records.put_job, name=name, incarnation=incarnation, job=job), len(body))

    def jobs(self, name: str, incarnation: str) -> list[Job]:
        """See `Store.jobs`."""
        with self._readers.snapshot() as db:
            return records.jobs(db, self._streams.find(name, incarnation))

    def add_dead_letter(self, name: str, incarnation: str, epoch: int, letter: DeadLetter) -> None:
        """See `Store.add_dead_letter`."""
        work = partial(records.add_dead_letter, name=name, incarnation=incarnation, epoch=epoch, letter=letter)
        self._writer.run(work, len(letter.payload))

    def write_pages(
        self,
        name: str,
        incarnation: str,
        epoch: int,
        pages: Mapping[PagePlace, bytes],
        dropped: Sequence[PageRun] = (),
    ) -> Future[None]:
        """See `Store.write_pages`."""
        return record_pages.write(self._writer, name, incarnation, epoch, pages, dropped)

    def read_pages(self, name: str, incarnation: str, places: Sequence[PagePlace]) -> list[bytes | None]:
        """See `Store.read_pages`."""
        with self._readers.snapshot() as db:
            return record_pages.read(db, self._streams.find(name, incarnation), places)

    def documents(self, name: str, incarnation: str, kind: str) -> Mapping[str, bytes]:
        """See `Store.documents`."""
        rules.check_document_kind(kind)
        with self._readers.snapshot() as db:
            return documents.read(db, self._streams.find(name, incarnation), kind)

    def document_names(self, name: str, incarnation: str, kind: str) -> list[str]:
        """See `Store.document_names`."""
        with self._readers.snapshot() as db:
            return documents.names(db, self._streams.find(name, incarnation), kind)

    def set_document(self, name: str, incarnation: str, kind: str, document: str, value: bytes | None) -> None:
        """See `Store.set_document`."""
        rules.check_document(name, kind, document, value)
        stream = (name, incarnation)
        work = partial(documents.write, stream=stream, kind=kind, name=document, value=value)
        self._writer.run(work, len(value or b""))

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
        work = partial(
            documents.change,
            stream=stream,
            changes=changes,
            expected=expected,
            dropped=dropped,
            max_documents=max_documents,
        )
        return self._writer.run(work, sum(len(value or b"") for value in changes.values()))

    def replace_settings(self, name: str, incarnation: str, epoch: int, expected: bytes, settings: bytes) -> None:
        """See `Store.replace_settings`."""
        work = partial(
            registry.replace_settings,
            name=name,
            incarnation=incarnation,
            epoch=epoch,
            expected=expected,
            settings=settings,
        )
        self._writer.run(work, len(settings))

    def dead_letters(self, name: str, incarnation: str) -> list[DeadLetter]:
        """See `Store.dead_letters`."""
        with self._readers.snapshot() as db:
            return records.dead_letters(db, self._streams.find(name, incarnation))

    def dead_letter(self, name: str, incarnation: str, seq: int) -> DeadLetter:
        """See `Store.dead_letter`."""
        with self._readers.snapshot() as db:
            return records.dead_letter(db, self._streams.find(name, incarnation), seq)

    def dead_letter_heads(self, name: str, incarnation: str) -> list[DeadLetterHead]:
        """See `Store.dead_letter_heads`."""
        with self._readers.snapshot() as db:
            return records.dead_letter_heads(db, self._streams.find(name, incarnation))

    def dead_letter_reasons(self, name: str, incarnation: str) -> dict[int, str]:
        """See `Store.dead_letter_reasons`."""
        return {head.seq: head.reason for head in self.dead_letter_heads(name, incarnation)}

    # -- access keys

    def access_version(self) -> int:
        """See `Store.access_version`."""
        with self._readers.snapshot() as db:
            return access_keys.version(db)

    def access_keys(self) -> list[AccessKey]:
        """See `Store.access_keys`."""
        with self._readers.snapshot() as db:
            return access_keys.all_keys(db)

    def put_access_key(self, key: AccessKey, *, only: bool = False) -> None:
        """See `Store.put_access_key`."""
        self._writer.run(partial(access_keys.put, key=key, only=only))

    def delete_access_key(self, key_id: str) -> bool:
        """See `Store.delete_access_key`."""
        return self._writer.run(partial(access_keys.delete, key_id=key_id))

    def mark_access_keys_used(self, used_at: Mapping[str, float]) -> None:
        """See `Store.mark_access_keys_used`."""
        self._writer.run(partial(access_keys.mark_used, used_at=dict(used_at)))

    # -- the store itself

    def check(self) -> None:
        """See `Store.check`. Writes a counter and waits for the disk, five seconds at most."""
        try:
            self._writer.submit(_probe).result(CHECK_TIMEOUT_S)
        except TimeoutError:
            raise StoreUnavailableError(
                f"the disk of the data folder has not completed a write for {CHECK_TIMEOUT_S:g} s; check the disk"
            ) from None

    def describe(self) -> str:
        """See `Store.describe`."""
        if self._where == "memory":
            return "memory: acknowledged means held by this process, and lost when it ends"
        return (
            f"sqlite {sqlite3.sqlite_version} in {self._where}: acknowledged means on this disk "
            "(WAL, synchronous=FULL); one process"
        )

    def close(self) -> None:
        """See `Store.close`."""
        with self._closing:
            self._streams.close()
            self._readers.close()
            self._writer.close()
            self._release.close()


def _probe(tx: Transaction) -> None:
    tx.db.execute("UPDATE shoal_format SET probes = probes + 1")
