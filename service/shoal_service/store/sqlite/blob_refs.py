"""Blobs under keys in SQLite, and the references of entries to them. The table of references is named `needs`."""

import hashlib
import sqlite3
from functools import partial

from shoal_service.store import rules
from shoal_service.store.contract import References
from shoal_service.store.sqlite import chunks, staged_blob
from shoal_service.store.sqlite.stream_state import StreamState, find
from shoal_service.store.sqlite.writer import SqliteWriter, Transaction

# -- references


def add_reference(tx: Transaction, state: StreamState, references: References) -> None:
    """Store what the last entry of `state` refers to."""
    tx.db.execute("INSERT INTO needs VALUES (?, ?, ?, ?)", (state.id, state.end.seq, *references))


def referenced_entries(db: sqlite3.Connection, state: StreamState) -> list[tuple[int, int]]:
    """Return seq and after_seq of each entry that refers to earlier ones."""
    return db.execute("SELECT seq, after_seq FROM needs WHERE stream = ?", (state.id,)).fetchall()


def drop_references(tx: Transaction, state: StreamState, last: int) -> None:
    """Delete the references of entries up to `last`, with the blobs that no later entry refers to."""
    keys = tx.db.execute(
        "DELETE FROM needs WHERE stream = ? AND seq <= ? RETURNING blob_key", (state.id, last)
    ).fetchall()
    for (key,) in keys:
        drop(tx, state, key)


# -- blobs


def put(writer: SqliteWriter, name: str, incarnation: str, key: str, blob: bytes) -> None:
    """Store a blob, as `Store.put_blob` but without reading it back."""
    digest = hashlib.sha256(blob).digest()

    def is_stored(tx: Transaction) -> bool:
        row = _row(tx.db, find(tx.streams, name, incarnation), key)
        if row is not None:
            rules.check_same_blob(name, key, row[0] == digest)
        return row is not None

    if writer.run(is_stored):
        return
    insert = partial(_insert, stream=(name, incarnation), key=key, digest=digest, size=len(blob))
    staged_blob.write(writer, blob, is_stored, insert)


def _insert(tx: Transaction, first: int, stream: tuple[str, str], key: str, digest: bytes, size: int) -> None:
    state = find(tx.streams, *stream)
    rules.check_same_blob(stream[0], key, _row(tx.db, state, key) is None)
    tx.db.execute("INSERT INTO blobs VALUES (?, ?, ?, ?, ?)", (state.id, key, digest, size, first))


def get(db: sqlite3.Connection, state: StreamState, key: str) -> bytes:
    """Return a blob, as `Store.get_blob`."""
    row = _row(db, state, key)
    blob = None if row is None else chunks.read_run(db, row[2], row[1])
    if row is None or blob is None or hashlib.sha256(blob).digest() != row[0]:
        raise rules.missing_blob(state.record.name, key)
    return blob


def has_blob(db: sqlite3.Connection, state: StreamState, key: str) -> bool:
    """Return whether the store holds a blob of this key."""
    return _row(db, state, key) is not None


def keys(db: sqlite3.Connection, state: StreamState) -> list[str]:
    """Return the keys of all blobs, as `Store.blob_keys`."""
    return [key for (key,) in db.execute("SELECT key FROM blobs WHERE stream = ? ORDER BY key", (state.id,))]


def drop_on_request(tx: Transaction, name: str, incarnation: str, key: str) -> None:
    """Delete a blob, as `Store.drop_blob`."""
    drop(tx, find(tx.streams, name, incarnation), key)


def drop(tx: Transaction, state: StreamState, key: str) -> None:
    """Delete a blob, unless an entry refers to it."""
    referenced = "SELECT 1 FROM needs WHERE stream = ? AND blob_key = ?"
    if tx.db.execute(referenced, (state.id, key)).fetchone() is not None:
        return
    of = "FROM blobs WHERE stream = ? AND key = ?"
    tx.db.execute(f"INSERT INTO garbage SELECT first_chunk, size {of}", (state.id, key))
    if tx.db.execute(f"DELETE {of}", (state.id, key)).rowcount:
        tx.leaves_garbage = True


def drop_unreferenced(tx: Transaction, state: StreamState) -> None:
    """Delete every blob that no entry refers to."""
    for (key,) in tx.db.execute("SELECT key FROM blobs WHERE stream = ?", (state.id,)).fetchall():
        drop(tx, state, key)


def _row(db: sqlite3.Connection, state: StreamState, key: str) -> tuple[bytes, int, int] | None:
    """Return SHA-256, size and first chunk of a blob."""
    row: tuple[bytes, int, int] | None = db.execute(
        "SELECT sha256, size, first_chunk FROM blobs WHERE stream = ? AND key = ?", (state.id, key)
    ).fetchone()
    return row
