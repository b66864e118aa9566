"""Rows of the table `streams`: creation, deletion, the writer's epoch and the settings.

Each function runs inside a transaction of the writer. It refuses before it writes anything.
"""

from shoal_service.store import rules
from shoal_service.store.contract import MayCreate, StreamRecord
from shoal_service.store.rules import START
from shoal_service.store.sqlite import blob_refs
from shoal_service.store.sqlite.stream_state import StreamState, find, write_row
from shoal_service.store.sqlite.writer import Transaction


def create_stream(
    tx: Transaction, record: StreamRecord, max_streams: int, may_create: MayCreate | None
) -> tuple[StreamRecord, bool]:
    """Create the stream, as `Store.create_stream`."""
    if record.name in tx.damaged:
        raise rules.damaged_record(record.name)
    if (known := tx.streams.get(record.name)) is not None:
        return known.record, False
    rules.check_stream_limit(record.name, len(tx.streams), max_streams)
    if may_create is not None:
        may_create(tx.streams.keys())
    row = tx.db.execute("INSERT INTO streams VALUES (NULL, ?, ?, ?, ?, 0, 0, 0, 0, NULL)", record)
    assert row.lastrowid is not None
    state = StreamState(row.lastrowid, record, 0, START, START, 0)
    write_row(tx.db, state)
    tx.put(state)
    return record, True


def delete_stream(tx: Transaction, name: str, incarnation: str | None) -> None:
    """Delete the stream with all its rows. Its payloads become garbage."""
    if name in tx.damaged:
        raise rules.damaged_record(name)
    if name not in tx.streams:
        raise rules.unknown(name)
    if incarnation is not None:
        find(tx.streams, name, incarnation)  # raises for another one
    stream = tx.streams[name].id
    for table in ("entries", "checkpoints", "dead_letters", "blobs"):
        tx.db.execute(f"INSERT INTO garbage SELECT first_chunk, size FROM {table} WHERE stream = ?", (stream,))
    for table in ("entries", "checkpoints", "dead_letters", "blobs", "needs", "jobs", "answers", "pages", "documents"):
        tx.db.execute(f"DELETE FROM {table} WHERE stream = ?", (stream,))
    tx.db.execute("DELETE FROM streams WHERE id = ?", (stream,))
    tx.leaves_garbage = True
    tx.remove(name)


def acquire_writer(tx: Transaction, name: str, incarnation: str) -> int:
    """Return the next epoch, as `Store.acquire_writer`."""
    state = find(tx.streams, name, incarnation)
    state = state._replace(epoch=state.epoch + 1)
    write_row(tx.db, state)
    blob_refs.drop_unreferenced(tx, state)
    tx.put(state)
    return state.epoch


def replace_settings(
    tx: Transaction, name: str, incarnation: str, epoch: int, expected: bytes, settings: bytes
) -> None:
    """Replace the settings, as `Store.replace_settings`."""
    state = find(tx.streams, name, incarnation)
    rules.check_epoch(name, epoch, state.epoch)
    if state.record.settings == expected:
        tx.put(write_settings(tx, state, settings))


def write_settings(tx: Transaction, state: StreamState, settings: bytes) -> StreamState:
    """Write the settings of the record, and return the new state."""
    state = state._replace(record=state.record._replace(settings=settings))
    write_row(tx.db, state)
    return state
