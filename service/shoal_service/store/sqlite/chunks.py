"""Payloads of any size as runs of rows: at most 256 KiB each, consecutive ids, named by (first_chunk, size).

A run that nobody names any more is noted in `garbage`, in the transaction that let go of it, and its rows are deleted
later, a little in each of the following commits: trimming a gigabyte holds no append up for longer than a few
milliseconds. A run that is written ahead of its name is garbage until it has one, so that a crash in between leaves
nothing behind.
"""

import sqlite3
from collections.abc import Collection

CHUNK_BYTES = 256 * 1024
_SWEEP_BYTES = 4 << 20
"""One commit's instalment of deletions, in bytes and in runs."""
_SWEEP_RUNS = 256

_RUN_END = f"first_chunk + max(1, (size + {CHUNK_BYTES - 1}) / {CHUNK_BYTES})"


def n_chunks(size: int) -> int:
    """How many rows hold `size` bytes; an empty payload has one row too, so that each run has ids of its own."""
    return max(1, -(-size // CHUNK_BYTES))


def write_run(db: sqlite3.Connection, first: int, payload: bytes | memoryview) -> None:
    """Store `payload` from the id `first` on; the caller has those ids to itself. Slices are views, not copies."""
    if len(payload) <= CHUNK_BYTES:
        db.execute("INSERT INTO chunks VALUES (?, ?)", (first, payload))
        return
    view = memoryview(payload)
    cuts = range(0, len(view), CHUNK_BYTES)
    rows = ((first + i, view[at : at + CHUNK_BYTES]) for i, at in enumerate(cuts))
    db.executemany("INSERT INTO chunks VALUES (?, ?)", rows)


def read_run(db: sqlite3.Connection, first: int, size: int) -> bytes | None:
    """The payload, or None when a row is missing or the length is another."""
    ids = (first, first + n_chunks(size))
    parts = [data for (data,) in db.execute("SELECT data FROM chunks WHERE id >= ? AND id < ? ORDER BY id", ids)]
    payload: bytes = parts[0] if len(parts) == 1 else b"".join(parts)
    return payload if len(parts) == n_chunks(size) and len(payload) == size else None


def first_free_chunk(db: sqlite3.Connection) -> int:
    """The first id past every row and every run that has a name, whether or not its rows are there.

    The ids of a stream's entries rise with seq, so its last entry speaks for all.
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


def sweep(db: sqlite3.Connection, spared: Collection[int]) -> bool:
    """Delete one instalment of garbage, except the runs that begin at `spared`; True when some is left."""
    limit = _SWEEP_RUNS + len(spared)
    noted = db.execute("SELECT first_chunk, size FROM garbage LIMIT ?", (limit,)).fetchall()
    left = _SWEEP_BYTES
    for first, size in noted:
        if first in spared:
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
