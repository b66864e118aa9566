"""Small records of a stream in SQLite: dead letters and jobs."""

import sqlite3
import zlib
from typing import NamedTuple

from shoal_service.store import checksums, rules
from shoal_service.store.contract import JOBS_KEPT, DeadLetter, DeadLetterHead, Job
from shoal_service.store.sqlite import chunks
from shoal_service.store.sqlite.stream_state import StreamState, find
from shoal_service.store.sqlite.writer import Transaction


def add_dead_letter(tx: Transaction, name: str, incarnation: str, epoch: int, letter: DeadLetter) -> None:
    """Store a dead letter, as `Store.add_dead_letter`."""
    state = find(tx.streams, name, incarnation)
    rules.check_epoch(name, epoch, state.epoch)
    known = "SELECT 1 FROM dead_letters WHERE stream = ? AND seq = ?"
    if tx.db.execute(known, (state.id, letter.seq)).fetchone() is not None:
        return
    size = len(letter.payload)
    first_chunk = tx.ids.take(size)
    chunks.write_run(tx.db, first_chunk, letter.payload)
    fields = (letter.seq, letter.log_offset, letter.n_points, letter.reason, size, first_chunk)
    checksum = checksums.row_checksum(zlib.crc32(letter.payload), *fields)
    tx.db.execute("INSERT INTO dead_letters VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (state.id, *fields, checksum))


class _DeadLetterRow(NamedTuple):
    """Row of the table `dead_letters`."""

    seq: int
    log_offset: int
    n_points: int
    reason: str
    size: int
    first_chunk: int
    checksum: bytes | None


def _dead_letter_rows(db: sqlite3.Connection, state: StreamState) -> list[_DeadLetterRow]:
    """Return the rows of all dead letters, oldest first. LogGapError when one is damaged."""
    select = f"SELECT {', '.join(_DeadLetterRow._fields)} FROM dead_letters WHERE stream = ? ORDER BY seq"
    rows = [_DeadLetterRow(*row) for row in db.execute(select, (state.id,))]
    for row in rows:
        if not checksums.is_row_whole(row.checksum, *row[:-1]):
            raise rules.damaged_dead_letter(state.record.name, row.seq)
    return rows


def dead_letters(db: sqlite3.Connection, state: StreamState) -> list[DeadLetter]:
    """Return all dead letters, as `Store.dead_letters`."""
    return [_dead_letter(db, state, row) for row in _dead_letter_rows(db, state)]


def dead_letter(db: sqlite3.Connection, state: StreamState, seq: int) -> DeadLetter:
    """Return one dead letter, as `Store.dead_letter`."""
    for row in _dead_letter_rows(db, state):
        if row.seq == seq:
            return _dead_letter(db, state, row)
    raise rules.unknown_dead_letter(state.record.name, seq)


def dead_letter_heads(db: sqlite3.Connection, state: StreamState) -> list[DeadLetterHead]:
    """Return the dead letters without payloads, as `Store.dead_letter_heads`."""
    return [
        DeadLetterHead(row.seq, row.log_offset, row.n_points, row.size, row.reason)
        for row in _dead_letter_rows(db, state)
    ]


def _dead_letter(db: sqlite3.Connection, state: StreamState, row: _DeadLetterRow) -> DeadLetter:
    payload = chunks.read_run(db, row.first_chunk, row.size)
    if payload is None or not checksums.is_payload_whole(row.checksum, payload):
        raise rules.damaged_dead_letter(state.record.name, row.seq)
    return DeadLetter(row.seq, row.log_offset, row.n_points, row.reason, payload)


def put_job(tx: Transaction, name: str, incarnation: str, job: Job) -> bool:
    """Write a job, as `Store.put_job`. `job.version` is the expected version."""
    stream = find(tx.streams, name, incarnation).id
    if job.version:
        done = tx.db.execute(
            "UPDATE jobs SET version = version + 1, body = ? WHERE stream = ? AND id = ? AND version = ?",
            (job.body, stream, job.id, job.version),
        )
        return done.rowcount == 1
    (newest,) = tx.db.execute("SELECT max(ordinal) FROM jobs WHERE stream = ?", (stream,)).fetchone()
    row = (stream, job.id, (newest or 0) + 1, job.body)
    if tx.db.execute("INSERT INTO jobs VALUES (?, ?, ?, 1, ?) ON CONFLICT DO NOTHING", row).rowcount == 0:
        return False
    tx.db.execute("DELETE FROM jobs WHERE stream = ? AND ordinal <= ?", (stream, row[2] - JOBS_KEPT))
    return True


def jobs(db: sqlite3.Connection, state: StreamState) -> list[Job]:
    """Return all jobs, as `Store.jobs`."""
    rows = db.execute("SELECT id, version, body FROM jobs WHERE stream = ? ORDER BY ordinal DESC", (state.id,))
    return [Job(*row) for row in rows]
