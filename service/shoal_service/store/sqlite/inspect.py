"""Inspection of a data folder: every row and every payload is read and compared with its checksum."""

import hashlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shoal_service.store import checksums, inspection, rules
from shoal_service.store.contract import DeadLetter
from shoal_service.store.inspection import (
    AnswerFacts,
    BlobFacts,
    CheckpointFacts,
    EntryFacts,
    Finding,
    Inspection,
    Item,
    JobFacts,
    LetterFacts,
    ReferenceFacts,
    StreamFacts,
)
from shoal_service.store.rules import START, LogPosition
from shoal_service.store.sqlite import access_keys, chunks, documents, records, stream_state
from shoal_service.store.sqlite.high_water import Mark, key_of, read_marks
from shoal_service.store.sqlite.read_only import one_commit, open_read_only
from shoal_service.store.sqlite.schema import DATABASE_ERRORS, is_corruption
from shoal_service.store.sqlite.stream_state import SELECT_ENTRIES, STREAM_COLUMNS, EntryRow

ACCESS_KEYS_SINCE, PAGES_SINCE, DOCUMENTS_SINCE = 4, 5, 6
"""First formats with these tables."""
_STREAM_TABLES = ("entries", "answers", "checkpoints", "dead_letters", "blobs", "needs", "jobs")
_RUN_TABLES = ("entries", "checkpoints", "dead_letters", "blobs", "garbage")


def inspect_folder(folder: Path) -> Inspection:
    """Inspect the store in a data folder, which may be in use. Nothing is changed. Raises as `open_read_only`."""
    with open_read_only(folder) as (db, version, in_use):
        look = _Look(db, folder, version)
        found = look.all()
        if in_use and found:  # what a running process changed in between is no finding
            found = [finding for finding in _Look(db, folder, version).all() if finding in found]
        return Inspection(f"sqlite in {folder}", version, in_use, look.summaries, found, look.notes)


class _Look:
    """One reading of the whole store."""

    def __init__(self, db: sqlite3.Connection, folder: Path, version: int) -> None:
        self._db = db
        self._version = version
        self._folder = folder
        self._damaged_rows = False
        self._unreadable: list[str] = []
        self.summaries: list[inspection.StreamSummary] = []
        self.notes: list[str] = []

    def all(self) -> list[Finding]:
        """Read everything, and return the findings."""
        marks = read_marks(self._folder)
        found: list[Finding] = []
        by_key = {mark.key: mark for mark in marks or () if mark is not None}
        streams = list(self._rows("streams", f"SELECT {STREAM_COLUMNS} FROM streams ORDER BY name"))
        for row in streams:
            with one_commit(self._db):
                facts = self._stream(row, by_key.pop(key_of(str(row[1]), str(row[2])), None))
            found += inspection.examine(facts)
            self.notes += inspection.notes_on(facts)
            self.summaries.append(inspection.summarise(facts))
        found += self._marks(marks, by_key)
        if self._version >= ACCESS_KEYS_SINCE:
            found += [inspection.damaged_key(key.id) for key in access_keys.all_keys(self._db) if not key.digest]
        found += self._file()
        return found

    def _rows(self, table: str, sql: str, arguments: tuple[Any, ...] = ()) -> Iterator[Any]:
        """Yield rows, up to the first that SQLite cannot read."""
        try:
            yield from self._db.execute(sql, arguments)
        except DATABASE_ERRORS as error:
            if not is_corruption(error):
                raise
            self._damaged_rows = True
            self._unreadable.append(f"table {table}: SQLite cannot read it ({error})")

    def _run(self, first: Any, size: Any) -> bytes | None:
        """Return a payload, or None when it is missing or unreadable."""
        try:
            return chunks.read_run(self._db, first, size)
        except DATABASE_ERRORS as error:
            if not is_corruption(error):
                raise
            return None

    def _is_whole(self, row: Any) -> bool:
        whole = checksums.is_row_whole(row[-1], *row[:-1])
        self._damaged_rows |= not whole
        return whole

    # -- one stream

    def _stream(self, row: Any, mark: Mark | None) -> StreamFacts:
        stream, whole = row[0], self._is_whole(row)
        outside, self._unreadable = self._unreadable, []
        entries = list(self._entries(stream))
        floor = LogPosition(*row[6:9]) if whole else START._replace(seq=entries[0].seq - 1 if entries else 0)
        facts = StreamFacts(
            name=str(row[1]),
            record_damage=None if whole else "it does not match its checksum",
            floor=floor,
            floor_known=whole,
            counted_end=None,
            acknowledged=None if mark is None else mark.seq,
            entries=entries,
            checkpoints=list(self._checkpoints(stream)),
            blobs=list(self._blobs(stream)),
            references=[
                ReferenceFacts(*found)
                for found in self._rows(
                    "needs", "SELECT seq, after_seq, blob_key FROM needs WHERE stream = ?", (stream,)
                )
            ],
            letters=list(self._letters(stream)),
            jobs=[
                JobFacts(*job) for job in self._rows("jobs", "SELECT id, body FROM jobs WHERE stream = ?", (stream,))
            ],
            damaged_pages=list(self._damaged_pages(stream)),
            damaged_documents=list(self._damaged_documents(stream)),
            answers=[
                AnswerFacts(*answer)
                for answer in self._rows(
                    "answers", "SELECT key, digest, seq, log_offset, n_points FROM answers WHERE stream = ?", (stream,)
                )
            ],
        )
        facts = facts._replace(unreadable=self._unreadable)
        self._unreadable = outside
        return facts

    def _entries(self, stream: int) -> Iterator[EntryFacts]:
        for values in self._rows("entries", f"{SELECT_ENTRIES} ORDER BY seq", (stream,)):
            row = EntryRow(*values)
            if not self._is_whole(row):
                yield EntryFacts(row.seq, None, 0, 0, payload_whole=False)
                continue
            payload = self._run(row.first_chunk, row.size)
            whole = payload is not None and checksums.is_payload_whole(row.checksum, payload)
            yield EntryFacts(row.seq, row.position, row.n_points, row.size, whole)

    def _checkpoints(self, stream: int) -> Iterator[CheckpointFacts]:
        select = "SELECT seq, log_offset, sha256, size, first_chunk, window_seq, checksum FROM checkpoints"
        for row in self._rows("checkpoints", f"{select} WHERE stream = ? ORDER BY seq DESC", (stream,)):
            seq, log_offset, digest, size, first, window_seq, _ = row
            row_whole = self._is_whole(row)
            blob = self._run(first, size) if row_whole else None
            whole = blob is not None and hashlib.sha256(blob).digest() == digest
            yield CheckpointFacts(seq, log_offset, window_seq, row_whole, whole)

    def _blobs(self, stream: int) -> Iterator[BlobFacts]:
        select = "SELECT key, sha256, size, first_chunk FROM blobs WHERE stream = ? ORDER BY key"
        for key, digest, size, first in self._rows("blobs", select, (stream,)):
            blob = self._run(first, size)
            yield BlobFacts(key, blob is not None and hashlib.sha256(blob).digest() == digest)

    def _letters(self, stream: int) -> Iterator[LetterFacts]:
        select = "SELECT seq, log_offset, n_points, reason, size, first_chunk, checksum FROM dead_letters"
        for row in self._rows("dead_letters", f"{select} WHERE stream = ? ORDER BY seq", (stream,)):
            payload = self._run(row[5], row[4]) if self._is_whole(row) else None
            whole = payload is not None and checksums.is_payload_whole(row[-1], payload)
            yield LetterFacts(f"entry {row[0]}", row[0], whole)

    def _damaged_pages(self, stream: int) -> Iterator[str]:
        if self._version < PAGES_SINCE:
            return
        for run, page, data in self._rows("pages", "SELECT run, page, data FROM pages WHERE stream = ?", (stream,)):
            if not checksums.is_page_whole(data):
                yield f"run {run}, page {page}"

    def _damaged_documents(self, stream: int) -> Iterator[str]:
        if self._version < DOCUMENTS_SINCE:
            return
        select = "SELECT kind, name, value, checksum FROM documents WHERE stream = ?"
        for kind, name, value, checksum in self._rows("documents", select, (stream,)):
            if not documents.is_whole(kind, name, value, checksum):
                yield f"{kind} {name!r}"

    # -- the file

    def _marks(self, marks: list[Mark | None] | None, left: dict[bytes, Mark]) -> Iterator[Finding]:
        if marks is None:
            self.notes.append("there is no file of high-water marks; the next start writes it")
            return
        n_damaged = sum(mark is None for mark in marks)
        if n_damaged:
            lost = "for those streams, the end of the log cannot be checked"
            said = f"{n_damaged} of {len(marks)} do not match their checksum"
            yield Finding(None, Item.HIGH_WATER, "file", said, lost, "nothing is needed: the next start writes them")
        for mark in left.values():
            said = f"entry {mark.seq} was acknowledged, but the database has no such stream"
            yield Finding(mark.name, Item.HIGH_WATER, f"entry {mark.seq}", said, "the stream", inspection.RESTORE)

    def _file(self) -> Iterator[Finding]:
        """Check the pages of the database, and look for rows and chunks that nothing refers to."""
        later = {"pages": PAGES_SINCE, "documents": DOCUMENTS_SINCE}
        for table in (*_STREAM_TABLES, *(table for table, since in later.items() if self._version >= since)):
            select = (
                f"SELECT stream, count(*) FROM {table} WHERE stream NOT IN (SELECT id FROM streams) GROUP BY stream"
            )
            for stream, n in self._rows(table, select):
                where = f"table {table}"
                said = f"{n} rows of a stream of number {stream}, which does not exist"
                yield Finding(None, Item.ORPHAN, where, said, "nothing but space", "nothing is needed")
        if self._damaged_rows:
            self.notes.append("orphan chunks were not looked for: damaged rows no longer say which are theirs")
        else:
            for first, last in self._orphans():
                where = f"chunk {first}" if first == last else f"chunks {first} to {last}"
                loss = "nothing but space"
                yield Finding(None, Item.ORPHAN, where, "nothing refers to it", loss, "nothing is needed")
        for (line,) in self._rows("pages", "PRAGMA quick_check(20)"):
            if line != "ok":
                yield Finding(None, Item.STORE, "pages of the file", line, "what cannot be read", inspection.RESTORE)
        for what in self._unreadable:
            yield Finding(None, Item.STORE, what.partition(":")[0], what, "what cannot be read", inspection.RESTORE)

    def _orphans(self) -> list[tuple[int, int]]:
        """Return first and last id of each stretch of chunks that no run covers."""
        with one_commit(self._db):
            runs: list[tuple[int, int]] = []
            for table in _RUN_TABLES:
                runs += self._db.execute(f"SELECT first_chunk, size FROM {table}")
            covered = iter(sorted((first, first + chunks.n_chunks(size)) for first, size in runs))
            first, end = next(covered, (1 << 62, 1 << 62))
            found: list[tuple[int, int]] = []
            for (number,) in self._db.execute("SELECT id FROM chunks ORDER BY id"):
                while number >= end:
                    first, end = next(covered, (1 << 62, 1 << 62))
                if number >= first:
                    continue
                if found and found[-1][1] == number - 1:
                    found[-1] = (found[-1][0], number)
                else:
                    found.append((number, number))
            return found


def dead_letters_at_rest(folder: Path, stream: str) -> list[DeadLetter]:
    """Return the dead letters of a stream, oldest first. The folder may be in use, and nothing in it changes.

    Raises UnknownStreamError, LogGapError when one is damaged, and as `open_read_only`.
    """
    with open_read_only(folder) as (db, _, _), one_commit(db):
        state = stream_state.StreamTable(stream_state.load(db)).of_name(stream)
        if state is None:
            raise rules.unknown(stream)
        return records.dead_letters(db, state)
