"""Large payloads in SQLite, staged in several transactions, so that appends can pass in between.

A transaction delays every append that comes after it, and a payload may have up to a gigabyte. All pieces but the last
are therefore written in transactions of their own, as a run that is listed as garbage. The last transaction checks
again, takes the run off that list and refers to it. After a crash before it, the next start deletes the run. A small
payload needs the last transaction only.
"""

from collections.abc import Callable
from functools import partial

from shoal_service.store.sqlite import chunks
from shoal_service.store.sqlite.writer import SqliteWriter, Transaction

PIECE_BYTES = 16 * chunks.CHUNK_BYTES

Check = Callable[[Transaction], object]
"""Raises when the payload must not be written."""
Refer = Callable[[Transaction, int], None]
"""Writes the row that refers to the run of the given first chunk. It may refuse before its first write."""


def write(writer: SqliteWriter, payload: bytes, check: Check, refer: Refer) -> None:
    """Store the payload durably with the row that refers to it. Raises what `check` and `refer` raise."""
    blob = memoryview(payload)
    staged = max(0, len(blob) - 1) // PIECE_BYTES * PIECE_BYTES
    if staged == 0:
        writer.run(partial(_finish, blob=blob, refer=refer, first=None, staged=0), len(blob))
        return
    first = writer.run(partial(_begin, check=check, size=len(blob)))
    try:
        for at in range(0, staged, PIECE_BYTES):
            writer.run(partial(_write_piece, check=check, blob=blob, first=first, at=at), PIECE_BYTES)
        writer.run(partial(_finish, blob=blob, refer=refer, first=first, staged=staged), len(blob) - staged)
    except BaseException:
        writer.ids.staged.discard(first)
        writer.submit(_leave_garbage)
        raise
    writer.ids.staged.discard(first)


def _begin(tx: Transaction, check: Check, size: int) -> int:
    """Reserve the run, as garbage that no sweep deletes yet."""
    check(tx)
    first = tx.ids.take(size)
    tx.ids.staged.add(first)
    tx.db.execute("INSERT INTO garbage VALUES (?, ?)", (first, size))
    return first


def _write_piece(tx: Transaction, check: Check, blob: memoryview, first: int, at: int) -> None:
    check(tx)
    chunks.write_run(tx.db, first + at // chunks.CHUNK_BYTES, blob[at : at + PIECE_BYTES])


def _finish(tx: Transaction, blob: memoryview, refer: Refer, first: int | None, staged: int) -> None:
    """Refer to the run, and write the bytes from `staged` on."""
    run = tx.ids.take(len(blob)) if first is None else first
    refer(tx, run)
    if first is not None:
        tx.db.execute("DELETE FROM garbage WHERE first_chunk = ?", (first,))
    chunks.write_run(tx.db, run + staged // chunks.CHUNK_BYTES, blob[staged:])


def _leave_garbage(tx: Transaction) -> None:
    tx.leaves_garbage = True
