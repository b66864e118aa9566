"""Checkpoints in SQLite: saving one with the trim of the log in the same transaction, and loading them."""

import hashlib
import logging
import sqlite3
from collections.abc import Collection
from functools import partial
from typing import NamedTuple

from shoal_service.store import checksums, rules
from shoal_service.store.contract import Checkpoint
from shoal_service.store.sqlite import blob_refs, chunks, staged_blob
from shoal_service.store.sqlite.schema import DATABASE_ERRORS, is_corruption
from shoal_service.store.sqlite.stream_state import StreamState, find, position_of, write_row
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
    for other in _rows(tx.db, state):
        if other.seq == seq or other.first_chunk in request.damaged or not other.is_whole:
            _delete(tx, state, other.seq)
        else:
            kept.append((other.seq, other.window_seq))
    fields = (seq, log_offset, digest, len(blob), first, window_seq)
    row = (state.id, *fields, checksums.row_checksum(0, *fields))
    tx.db.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    kept.sort(reverse=True, key=lambda c: c[0])
    for old, _ in kept[2:]:
        _delete(tx, state, old)
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
    state = state._replace(floor=position_of(tx.db, state, last))
    last = state.floor.seq
    of = "FROM entries WHERE stream = ? AND seq <= ?"
    tx.db.execute(f"INSERT INTO garbage SELECT first_chunk, size {of}", (state.id, last))
    tx.db.execute(f"DELETE {of}", (state.id, last))
    write_row(tx.db, state)
    blob_refs.drop_references(tx, state, last)
    tx.put(state)
    tx.leaves_garbage = True


def load(db: sqlite3.Connection, state: StreamState) -> tuple[list[Checkpoint], set[int]]:
    """Return the checkpoints that match their checksum, newest first, and the first chunks of those that do not."""
    whole: list[Checkpoint] = []
    damaged: set[int] = set()
    for row in _rows(db, state):
        blob = _read_blob(db, row.first_chunk, row.size) if row.is_whole else None
        if blob is not None and hashlib.sha256(blob).digest() == row.sha256:
            whole.append(Checkpoint(row.seq, row.log_offset, blob, row.window_seq))
        else:
            damaged.add(row.first_chunk)
            _log.warning("%s", rules.damaged_checkpoint(state.record.name, row.seq))
    return whole, damaged


class _Row(NamedTuple):
    """Row of the table `checkpoints`."""

    seq: int
    log_offset: int
    sha256: bytes
    size: int
    first_chunk: int
    window_seq: int | None
    checksum: bytes | None

    @property
    def is_whole(self) -> bool:
        return checksums.is_row_whole(self.checksum, *self[:-1])


def _rows(db: sqlite3.Connection, state: StreamState) -> list[_Row]:
    """Return the rows of all checkpoints, newest first."""
    select = f"SELECT {', '.join(_Row._fields)} FROM checkpoints WHERE stream = ? ORDER BY seq DESC"
    return [_Row(*row) for row in db.execute(select, (state.id,))]


def _read_blob(db: sqlite3.Connection, first_chunk: int, size: int) -> bytes | None:
    try:
        return chunks.read_run(db, first_chunk, size)
    except DATABASE_ERRORS as error:
        if not is_corruption(error):
            raise
        return None
