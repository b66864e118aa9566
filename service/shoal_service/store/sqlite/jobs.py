"""Jobs in SQLite: small rows, written by whoever has seen the version that is there."""

import sqlite3

from shoal_service.store.contract import JOBS_KEPT, Job
from shoal_service.store.sqlite.stream_state import StreamState, find
from shoal_service.store.sqlite.writer import Transaction


def put(tx: Transaction, name: str, incarnation: str, job: Job) -> bool:
    """As `Store.put_job`; `job.version` is the one expected."""
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


def listed(db: sqlite3.Connection, state: StreamState) -> list[Job]:
    """As `Store.jobs`."""
    rows = db.execute("SELECT id, version, body FROM jobs WHERE stream = ? ORDER BY ordinal DESC", (state.id,))
    return [Job(*row) for row in rows]
