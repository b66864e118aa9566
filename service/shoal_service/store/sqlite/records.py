"""Small records of a stream in SQLite: dead letters and jobs."""

import sqlite3

from shoal_service.store import rules
from shoal_service.store.contract import JOBS_KEPT, DeadLetter, Job
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
    tx.db.execute(
        "INSERT INTO dead_letters VALUES (?, ?, ?, ?, ?, ?, ?)",
        (state.id, letter.seq, letter.log_offset, letter.n_points, letter.reason, size, first_chunk),
    )


def dead_letters(db: sqlite3.Connection, state: StreamState) -> list[DeadLetter]:
    """Return all dead letters, as `Store.dead_letters`."""
    rows = db.execute(
        "SELECT seq, log_offset, n_points, reason, size, first_chunk FROM dead_letters WHERE stream = ? ORDER BY seq",
        (state.id,),
    )
    letters: list[DeadLetter] = []
    for seq, log_offset, n_points, reason, size, first_chunk in rows:
        payload = chunks.read_run(db, first_chunk, size)
        if payload is None:
            raise rules.damaged_dead_letter(state.record.name, seq)
        letters.append(DeadLetter(seq, log_offset, n_points, reason, payload))
    return letters


def dead_letter_reasons(db: sqlite3.Connection, state: StreamState) -> dict[int, str]:
    """Return the reasons by seq, as `Store.dead_letter_reasons`."""
    return dict(
        db.execute("SELECT seq, reason FROM dead_letters WHERE stream = ? ORDER BY seq", (state.id,)).fetchall()
    )


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
