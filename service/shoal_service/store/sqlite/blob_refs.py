"""What entries need beside their payloads, in SQLite: blobs under keys, and which entry needs which."""

import hashlib
import sqlite3
from functools import partial

from shoal_service.store import rules
from shoal_service.store.contract import References
from shoal_service.store.sqlite import chunks, staged_blob
from shoal_service.store.sqlite.stream_state import StreamState, find
from shoal_service.store.sqlite.writer import GroupWriter, Transaction


def note(tx: Transaction, state: StreamState, references: References) -> None:
    """Write down what the entry that comes next needs. LogGapError when it is not there (nothing is written then)."""
    name = state.record.name
    rules.check_entries_held(name, references.after_seq, state.floor, state.end)
    if _row(tx.db, state, references.blob_key) is None:
        raise rules.missing_needs(name, f"the blob {references.blob_key!r}")
    tx.db.execute("INSERT INTO needs VALUES (?, ?, ?, ?)", (state.id, state.end.seq + 1, *references))


def of_entries(db: sqlite3.Connection, state: StreamState) -> list[tuple[int, int]]:
    """Seq and after_seq of every entry held that needs something."""
    return db.execute("SELECT seq, after_seq FROM needs WHERE stream = ?", (state.id,)).fetchall()


def forget_entries(tx: Transaction, state: StreamState, last: int) -> None:
    """The entries up to `last` are dropped: their blobs go, unless a later entry names them too."""
    keys = tx.db.execute(
        "DELETE FROM needs WHERE stream = ? AND seq <= ? RETURNING blob_key", (state.id, last)
    ).fetchall()
    for (key,) in keys:
        drop(tx, state, key)


def drop_unnamed(tx: Transaction, state: StreamState) -> None:
    """Let go of every blob that no entry names."""
    for (key,) in tx.db.execute("SELECT key FROM blobs WHERE stream = ?", (state.id,)).fetchall():
        drop(tx, state, key)


def drop(tx: Transaction, state: StreamState, key: str) -> None:
    """Let go of a blob, unless an entry names it."""
    named = "SELECT 1 FROM needs WHERE stream = ? AND blob_key = ?"
    if tx.db.execute(named, (state.id, key)).fetchone() is not None:
        return
    of = "FROM blobs WHERE stream = ? AND key = ?"
    tx.db.execute(f"INSERT INTO garbage SELECT first_chunk, size {of}", (state.id, key))
    if tx.db.execute(f"DELETE {of}", (state.id, key)).rowcount:
        tx.leaves_garbage = True


def drop_asked(tx: Transaction, name: str, incarnation: str, key: str) -> None:
    """As `Store.drop_blob`."""
    drop(tx, find(tx.streams, name, incarnation), key)


# -- blobs


def put(writer: GroupWriter, name: str, incarnation: str, key: str, blob: bytes) -> None:
    """As `Store.put_blob`, but for the reading back."""
    digest = hashlib.sha256(blob).digest()

    def is_there(tx: Transaction) -> bool:
        row = _row(tx.db, find(tx.streams, name, incarnation), key)
        if row is not None:
            rules.check_same_blob(name, key, row[0] == digest)
        return row is not None

    if writer.run(is_there):
        return
    staged_blob.write(
        writer, blob, is_there, partial(_name, stream=(name, incarnation), key=key, digest=digest, blob=blob)
    )


def _name(tx: Transaction, first: int, stream: tuple[str, str], key: str, digest: bytes, blob: bytes) -> None:
    state = find(tx.streams, *stream)
    rules.check_same_blob(stream[0], key, _row(tx.db, state, key) is None)
    tx.db.execute("INSERT INTO blobs VALUES (?, ?, ?, ?, ?)", (state.id, key, digest, len(blob), first))


def get(db: sqlite3.Connection, state: StreamState, key: str) -> bytes:
    """As `Store.get_blob`."""
    row = _row(db, state, key)
    blob = None if row is None else chunks.read_run(db, row[2], row[1])
    if row is None or blob is None or hashlib.sha256(blob).digest() != row[0]:
        raise rules.gap(state.record.name, f"the blob {key!r} is missing or not whole")
    return blob


def keys(db: sqlite3.Connection, state: StreamState) -> list[str]:
    """As `Store.blob_keys`."""
    return [key for (key,) in db.execute("SELECT key FROM blobs WHERE stream = ? ORDER BY key", (state.id,))]


def _row(db: sqlite3.Connection, state: StreamState, key: str) -> tuple[bytes, int, int] | None:
    """Checksum, size and first chunk."""
    row: tuple[bytes, int, int] | None = db.execute(
        "SELECT sha256, size, first_chunk FROM blobs WHERE stream = ? AND key = ?", (state.id, key)
    ).fetchone()
    return row
