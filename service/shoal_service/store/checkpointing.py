"""A learner's checkpoint: its blob is written ahead in pieces, then one small transaction makes it count and trims.

A state may be large (up to a gigabyte), and whatever is in one transaction holds up every append that comes after it.
So all pieces but the last go ahead, each a job of its own with appends in between, as a run that is noted as garbage.
The closing job checks the epoch once more, takes the note back and names the run, all in one transaction: a crash
before it leaves the two checkpoints that there were, and a run that the next start sweeps away. A small state needs the
closing job alone.
"""

import hashlib
from collections.abc import Collection
from functools import partial
from typing import NamedTuple

from shoal_service.store import chunks, rules
from shoal_service.store.base import Checkpoint
from shoal_service.store.state import StreamState, find, mark_at
from shoal_service.store.writer import GroupWriter, Transaction

PIECE_BYTES = 16 * chunks.CHUNK_BYTES


class SaveRequest(NamedTuple):
    """The arguments of `Store.save_checkpoint`, and the first chunks of checkpoints that were found damaged."""

    name: str
    incarnation: str
    epoch: int
    checkpoint: Checkpoint
    keep_points: int
    keep_bytes: int
    damaged: Collection[int]


def save(writer: GroupWriter, request: SaveRequest) -> None:
    """As `Store.save_checkpoint`; returns once it is durable."""
    blob = memoryview(request.checkpoint.blob)
    digest = hashlib.sha256(blob).digest()
    ahead = max(0, len(blob) - 1) // PIECE_BYTES * PIECE_BYTES
    if ahead == 0:
        writer.run(partial(_finish, request=request, digest=digest, first=None, ahead=0), len(blob))
        return
    first = writer.run(partial(_begin, request=request))
    try:
        for at in range(0, ahead, PIECE_BYTES):
            writer.run(partial(_write_piece, request=request, first=first, at=at), PIECE_BYTES)
        writer.run(partial(_finish, request=request, digest=digest, first=first, ahead=ahead), len(blob) - ahead)
    except BaseException:
        writer.ids.spared.discard(first)
        writer.submit(_leave_garbage)
        raise
    writer.ids.spared.discard(first)


def _begin(tx: Transaction, request: SaveRequest) -> int:
    """Reserve the run, as garbage that no sweep may take yet."""
    _checked(tx, request)
    size = len(request.checkpoint.blob)
    first = tx.ids.take(size)
    tx.ids.spared.add(first)
    tx.db.execute("INSERT INTO garbage VALUES (?, ?)", (first, size))
    return first


def _write_piece(tx: Transaction, request: SaveRequest, first: int, at: int) -> None:
    _checked(tx, request)
    piece = memoryview(request.checkpoint.blob)[at : at + PIECE_BYTES]
    chunks.write_run(tx.db, first + at // chunks.CHUNK_BYTES, piece)


def _finish(tx: Transaction, request: SaveRequest, digest: bytes, first: int | None, ahead: int) -> None:
    """Write what is left from `ahead` on, name the run, let go of checkpoints past the second and of old entries."""
    state = _checked(tx, request)
    seq, log_offset, blob = request.checkpoint
    if first is None:
        first = tx.ids.take(len(blob))
    else:
        tx.db.execute("DELETE FROM garbage WHERE first_chunk = ?", (first,))
    chunks.write_run(tx.db, first + ahead // chunks.CHUNK_BYTES, memoryview(blob)[ahead:])

    kept: list[int] = [seq]
    for other, run in tx.db.execute(
        "SELECT seq, first_chunk FROM checkpoints WHERE stream = ?", (state.id,)
    ).fetchall():
        if other == seq or run in request.damaged:
            _drop(tx, state, other)
        else:
            kept.append(other)
    row = (state.id, seq, log_offset, digest, len(blob), first)
    tx.db.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?)", row)
    kept.sort(reverse=True)
    for other in kept[2:]:
        _drop(tx, state, other)
    if len(kept) > 1:
        _trim(tx, state, kept[1], request.keep_points, request.keep_bytes)


def _checked(tx: Transaction, request: SaveRequest) -> StreamState:
    state = find(tx.streams, request.name, request.incarnation)
    rules.check_epoch(request.name, request.epoch, state.epoch)
    rules.check_reached(request.name, "a checkpoint", request.checkpoint.seq, state.end)
    return state


def _drop(tx: Transaction, state: StreamState, seq: int) -> None:
    of = "FROM checkpoints WHERE stream = ? AND seq = ?"
    tx.db.execute(f"INSERT INTO garbage SELECT first_chunk, size {of}", (state.id, seq))
    tx.db.execute(f"DELETE {of}", (state.id, seq))
    tx.leaves_garbage = True


def _trim(tx: Transaction, state: StreamState, older_seq: int, keep_points: int, keep_bytes: int) -> None:
    """Drop the entries up to `older_seq` that no window needs."""
    last = rules.last_droppable(
        state.floor, older_seq, state.end, keep_points, keep_bytes, partial(mark_at, tx.db, state)
    )
    if last == state.floor.seq:
        return
    floor = mark_at(tx.db, state, last)
    of = "FROM entries WHERE stream = ? AND seq <= ?"
    tx.db.execute(f"INSERT INTO garbage SELECT first_chunk, size {of}", (state.id, last))
    tx.db.execute(f"DELETE {of}", (state.id, last))
    tx.db.execute(
        "UPDATE streams SET floor_seq = ?, floor_offset = ?, floor_bytes = ? WHERE id = ?", (*floor, state.id)
    )
    tx.put(state._replace(floor=floor))
    tx.leaves_garbage = True


def _leave_garbage(tx: Transaction) -> None:
    tx.leaves_garbage = True
