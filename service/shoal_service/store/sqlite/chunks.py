"""Payloads of any size as runs of rows: at most 256 KiB a row, consecutive ids, found by (first_chunk, size).

A run that is no longer referred to is listed in the table `garbage`, in the same transaction. Its rows are deleted
later, some in each of the following commits. Trimming a gigabyte therefore delays no append by more than a few
milliseconds. A run that is being staged is listed as garbage too, so that a crash leaves nothing behind.
"""

import sqlite3
from collections.abc import Collection

CHUNK_BYTES = 256 * 1024
_SWEEP_BYTES = 4 << 20
"""Bytes that one commit deletes at most."""
_SWEEP_RUNS = 256
"""Runs that one commit deletes at most."""

_RUN_END = f"first_chunk + max(1, (size + {CHUNK_BYTES - 1}) / {CHUNK_BYTES})"


def n_chunks(size: int) -> int:
    """Count the rows for `size` bytes. An empty payload has one row too, so that each run has its own ids."""
    return max(1, -(-size // CHUNK_BYTES))


def write_run(db: sqlite3.Connection, first: int, payload: bytes | memoryview) -> None:
    """Store `payload` from the id `first` on. The caller has reserved the ids."""
    if len(payload) <= CHUNK_BYTES:
        db.execute("INSERT INTO chunks VALUES (?, ?)", (first, payload))
        return
    view = memoryview(payload)
    cuts = range(0, len(view), CHUNK_BYTES)
    rows = ((first + i, view[at : at + CHUNK_BYTES]) for i, at in enumerate(cuts))
    db.executemany("INSERT INTO chunks VALUES (?, ?)", rows)


def read_run(db: sqlite3.Connection, first: int, size: int) -> bytes | None:
    """Return the payload. None when a row is missing or the length differs."""
    ids = (first, first + n_chunks(size))
    parts = [data for (data,) in db.execute("SELECT data FROM chunks WHERE id >= ? AND id < ? ORDER BY id", ids)]
    if not all(isinstance(part, bytes) for part in parts):
        return None  # damaged: SQLite gives values of any type
    payload: bytes = parts[0] if len(parts) == 1 else b"".join(parts)
    return payload if len(parts) == n_chunks(size) and len(payload) == size else None


def first_free_chunk(db: sqlite3.Connection) -> int:
    """Return the first id after every row and every run that is referred to, even if its rows are missing.

    The ids of a stream's entries rise with seq, so the last entry stands for all.
    """
    (end,) = db.execute(
        "SELECT max(ends) FROM (SELECT max(id) + 1 AS ends FROM chunks"
        f" UNION ALL SELECT max({_RUN_END}) FROM garbage"
        f" UNION ALL SELECT max({_RUN_END}) FROM checkpoints"
        f" UNION ALL SELECT max({_RUN_END}) FROM dead_letters"
        f" UNION ALL SELECT max({_RUN_END}) FROM blobs"
        f" UNION ALL SELECT (SELECT {_RUN_END} FROM entries WHERE stream = streams.id ORDER BY seq DESC LIMIT 1)"
        " FROM streams)"
    ).fetchone()
    return int(end or 1)


def sweep(db: sqlite3.Connection, staged: Collection[int]) -> bool:
    """Delete one instalment of garbage, but no run that begins at one of `staged`. Returns whether some is left."""
    limit = _SWEEP_RUNS + len(staged)
    noted = db.execute("SELECT first_chunk, size FROM garbage LIMIT ?", (limit,)).fetchall()
    left = _SWEEP_BYTES
    for first, size in noted:
        if first in staged:
            continue
        if left <= 0:
            return True
        taken = min(n_chunks(size), max(1, left // CHUNK_BYTES))
        db.execute("DELETE FROM chunks WHERE id >= ? AND id < ?", (first, first + taken))
        db.execute("DELETE FROM garbage WHERE first_chunk = ?", (first,))
        if taken < n_chunks(size):
            db.execute("INSERT INTO garbage VALUES (?, ?)", (first + taken, size - taken * CHUNK_BYTES))
            return True
        left -= size
    return len(noted) == limit
