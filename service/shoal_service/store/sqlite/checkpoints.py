"""A learner's checkpoint: its blob is written ahead (ahead.py), then one small transaction makes it count and trims."""

import hashlib
from collections.abc import Collection
from functools import partial
from typing import NamedTuple

from shoal_service.store import rules
from shoal_service.store.contract import Checkpoint
from shoal_service.store.sqlite import blob_refs, staged_blob
from shoal_service.store.sqlite.stream_state import StreamState, find, mark_at
from shoal_service.store.sqlite.writer import GroupWriter, Transaction


class SaveRequest(NamedTuple):
    """The arguments of `Store.save_checkpoint`, and the first chunks of checkpoints that were found damaged."""

    name: str
    incarnation: str
    epoch: int
    checkpoint: Checkpoint
    keep_after: int | None
    damaged: Collection[int]


def save(writer: GroupWriter, request: SaveRequest) -> None:
    """As `Store.save_checkpoint`; returns once it is durable."""
    digest = hashlib.sha256(request.checkpoint.blob).digest()
    check, name = partial(_checked, request=request), partial(_name, request=request, digest=digest)
    staged_blob.write(writer, request.checkpoint.blob, check, name)


def _name(tx: Transaction, first: int, request: SaveRequest, digest: bytes) -> None:
    """Make the run the checkpoint's, let go of checkpoints past the second and of old entries."""
    state = _checked(tx, request)
    seq, log_offset, blob, window_seq = request.checkpoint
    kept: list[tuple[int, int | None]] = [(seq, window_seq)]
    for other, run, window in tx.db.execute(
        "SELECT seq, first_chunk, window_seq FROM checkpoints WHERE stream = ?", (state.id,)
    ).fetchall():
        if other == seq or run in request.damaged:
            _drop(tx, state, other)
        else:
            kept.append((other, window))
    row = (state.id, seq, log_offset, digest, len(blob), first, window_seq)
    tx.db.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    kept.sort(reverse=True, key=lambda c: c[0])
    for other, _ in kept[2:]:
        _drop(tx, state, other)
    _trim(tx, state, kept[:2], request.keep_after)


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


def _trim(tx: Transaction, state: StreamState, kept: list[tuple[int, int | None]], keep_after: int | None) -> None:
    """Drop the entries that nothing needs."""
    last = rules.last_droppable(state.floor, kept, keep_after, blob_refs.of_entries(tx.db, state))
    if last == state.floor.seq:
        return
    floor = mark_at(tx.db, state, last)
    of = "FROM entries WHERE stream = ? AND seq <= ?"
    tx.db.execute(f"INSERT INTO garbage SELECT first_chunk, size {of}", (state.id, last))
    tx.db.execute(f"DELETE {of}", (state.id, last))
    tx.db.execute(
        "UPDATE streams SET floor_seq = ?, floor_offset = ?, floor_bytes = ? WHERE id = ?", (*floor, state.id)
    )
    blob_refs.forget_entries(tx, state, last)
    tx.put(state._replace(floor=floor))
    tx.leaves_garbage = True
