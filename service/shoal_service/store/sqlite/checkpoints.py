"""Checkpoints in SQLite: saving one with the trim of the log in the same transaction, and loading them."""

import hashlib
import logging
import sqlite3
from collections.abc import Collection
from functools import partial
from typing import NamedTuple

from shoal_service.store import rules
from shoal_service.store.contract import Checkpoint
from shoal_service.store.sqlite import blob_refs, chunks, staged_blob
from shoal_service.store.sqlite.schema import is_corruption
from shoal_service.store.sqlite.stream_state import StreamState, find, position_of
from shoal_service.store.sqlite.writer import SqliteWriter, Transaction

_log = logging.getLogger("shoal_service.store")


class SaveRequest(NamedTuple):
    """Arguments of `Store.save_checkpoint`, with the first chunks of checkpoints known as damaged."""

    name: str
    incarnation: str
    epoch: int
    checkpoint: Checkpoint
    keep_after: int | None
    damaged: Collection[int]


def save(writer: SqliteWriter, request: SaveRequest) -> None:
    """Save a checkpoint, as `Store.save_checkpoint`."""
    digest = hashlib.sha256(request.checkpoint.blob).digest()
    check, insert = partial(_check, request=request), partial(_insert, request=request, digest=digest)
    staged_blob.write(writer, request.checkpoint.blob, check, insert)


def _check(tx: Transaction, request: SaveRequest) -> StreamState:
    state = find(tx.streams, request.name, request.incarnation)
    rules.check_epoch(request.name, request.epoch, state.epoch)
    rules.check_within_log(request.name, "a checkpoint", request.checkpoint.seq, state.end.seq)
    return state


def _insert(tx: Transaction, first: int, request: SaveRequest, digest: bytes) -> None:
    """Insert the row of the checkpoint, delete checkpoints beyond the second, and trim the log."""
    state = _check(tx, request)
    seq, log_offset, blob, window_seq = request.checkpoint
    kept: list[tuple[int, int | None]] = [(seq, window_seq)]
    for other, run, window in tx.db.execute(
        "SELECT seq, first_chunk, window_seq FROM checkpoints WHERE stream = ?", (state.id,)
    ).fetchall():
        if other == seq or run in request.damaged:
            _delete(tx, state, other)
        else:
            kept.append((other, window))
    row = (state.id, seq, log_offset, digest, len(blob), first, window_seq)
    tx.db.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    kept.sort(reverse=True, key=lambda c: c[0])
    for other, _ in kept[2:]:
        _delete(tx, state, other)
    _trim(tx, state, kept[:2], request.keep_after)


def _delete(tx: Transaction, state: StreamState, seq: int) -> None:
    of = "FROM checkpoints WHERE stream = ? AND seq = ?"
    tx.db.execute(f"INSERT INTO garbage SELECT first_chunk, size {of}", (state.id, seq))
    tx.db.execute(f"DELETE {of}", (state.id, seq))
    tx.leaves_garbage = True


def _trim(tx: Transaction, state: StreamState, kept: list[tuple[int, int | None]], keep_after: int | None) -> None:
    """Delete the entries that nobody will read again."""
    references = blob_refs.referenced_entries(tx.db, state)
    last = rules.last_droppable(state.floor.seq, kept, keep_after, references)
    if last == state.floor.seq:
        return
    floor = position_of(tx.db, state, last)
    of = "FROM entries WHERE stream = ? AND seq <= ?"
    tx.db.execute(f"INSERT INTO garbage SELECT first_chunk, size {of}", (state.id, last))
    tx.db.execute(f"DELETE {of}", (state.id, last))
    tx.db.execute(
        "UPDATE streams SET floor_seq = ?, floor_offset = ?, floor_bytes = ? WHERE id = ?", (*floor, state.id)
    )
    blob_refs.drop_references(tx, state, last)
    tx.put(state._replace(floor=floor))
    tx.leaves_garbage = True


def load(db: sqlite3.Connection, state: StreamState) -> tuple[list[Checkpoint], set[int]]:
    """Return the checkpoints that match their checksum, newest first, and the first chunks of those that do not."""
    whole: list[Checkpoint] = []
    damaged: set[int] = set()
    rows = db.execute(
        "SELECT seq, log_offset, sha256, size, first_chunk, window_seq FROM checkpoints WHERE stream = ?"
        " ORDER BY seq DESC",
        (state.id,),
    ).fetchall()
    for seq, log_offset, digest, size, first_chunk, window_seq in rows:
        blob = _read_blob(db, first_chunk, size)
        if blob is not None and hashlib.sha256(blob).digest() == digest:
            whole.append(Checkpoint(seq, log_offset, blob, window_seq))
        else:
            damaged.add(first_chunk)
            _log.warning("%s", rules.damaged_checkpoint(state.record.name, seq))
    return whole, damaged


def _read_blob(db: sqlite3.Connection, first_chunk: int, size: int) -> bytes | None:
    try:
        return chunks.read_run(db, first_chunk, size)
    except sqlite3.DatabaseError as error:
        if not is_corruption(error):
            raise
        return None
