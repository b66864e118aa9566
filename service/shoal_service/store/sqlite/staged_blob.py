"""A large payload, written ahead of its name in pieces, so that appends pass in between.

Whatever is in one transaction holds up every append that comes after it, and a state may be large (up to a gigabyte).
So all pieces but the last go ahead, each a job of its own, as a run that is noted as garbage. The closing job checks
once more, takes the note back and names the run, all in one transaction: a crash before it leaves what there was, and a
run that the next start sweeps away. A small payload needs the closing job alone.
"""

from collections.abc import Callable
from functools import partial

from shoal_service.store.sqlite import chunks
from shoal_service.store.sqlite.writer import GroupWriter, Transaction

PIECE_BYTES = 16 * chunks.CHUNK_BYTES

Check = Callable[[Transaction], object]
"""Raises where the payload is not to be written (any more)."""
Name = Callable[[Transaction, int], None]
"""Names the run that begins at the id given; it may refuse, before its first write."""


def write(writer: GroupWriter, payload: bytes, check: Check, name: Name) -> None:
    """Store the payload and name it; returns once it is durable. Raises what `check` and `name` raise."""
    blob = memoryview(payload)
    ahead = max(0, len(blob) - 1) // PIECE_BYTES * PIECE_BYTES
    if ahead == 0:
        writer.run(partial(_finish, blob=blob, name=name, first=None, ahead=0), len(blob))
        return
    first = writer.run(partial(_begin, check=check, size=len(blob)))
    try:
        for at in range(0, ahead, PIECE_BYTES):
            writer.run(partial(_write_piece, check=check, blob=blob, first=first, at=at), PIECE_BYTES)
        writer.run(partial(_finish, blob=blob, name=name, first=first, ahead=ahead), len(blob) - ahead)
    except BaseException:
        writer.ids.spared.discard(first)
        writer.submit(_leave_garbage)
        raise
    writer.ids.spared.discard(first)


def _begin(tx: Transaction, check: Check, size: int) -> int:
    """Reserve the run, as garbage that no sweep may take yet."""
    check(tx)
    first = tx.ids.take(size)
    tx.ids.spared.add(first)
    tx.db.execute("INSERT INTO garbage VALUES (?, ?)", (first, size))
    return first


def _write_piece(tx: Transaction, check: Check, blob: memoryview, first: int, at: int) -> None:
    check(tx)
    chunks.write_run(tx.db, first + at // chunks.CHUNK_BYTES, blob[at : at + PIECE_BYTES])


def _finish(tx: Transaction, blob: memoryview, name: Name, first: int | None, ahead: int) -> None:
    """Name the run, and write what is left from `ahead` on."""
    run = tx.ids.take(len(blob)) if first is None else first
    name(tx, run)
    if first is not None:
        tx.db.execute("DELETE FROM garbage WHERE first_chunk = ?", (first,))
    chunks.write_run(tx.db, run + ahead // chunks.CHUNK_BYTES, blob[ahead:])


def _leave_garbage(tx: Transaction) -> None:
    tx.leaves_garbage = True
