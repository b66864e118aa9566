"""Documents of a stream in SQLite: small values by kind and name."""

import logging
import sqlite3
import zlib
from collections.abc import Mapping

from shoal_service.store import checksums, rules
from shoal_service.store.rules import HeldDocuments
from shoal_service.store.sqlite.stream_state import StreamState, find
from shoal_service.store.sqlite.writer import Transaction

_log = logging.getLogger("shoal_service.store")


def read(db: sqlite3.Connection, state: StreamState, kind: str) -> Mapping[str, bytes]:
    """Return the documents of a kind, as `Store.documents`."""
    select = "SELECT name, value, checksum FROM documents WHERE stream = ? AND kind = ? ORDER BY name"
    found: dict[str, bytes] = {}
    for name, value, checksum in db.execute(select, (state.id, kind)):
        if is_whole(kind, name, value, checksum):
            found[name] = value
        else:
            _log.warning("%s", rules.damaged_document(state.record.name, kind, name))
    return found


def write(tx: Transaction, stream: tuple[str, str], kind: str, name: str, value: bytes | None) -> None:
    """Write or delete a document, as `Store.set_document`."""
    state = find(tx.streams, *stream)
    if value is None:
        tx.db.execute("DELETE FROM documents WHERE stream = ? AND kind = ? AND name = ?", (state.id, kind, name))
        return
    count = (
        "SELECT count(*), coalesce(sum(length(value)), 0) FROM documents WHERE stream = ? AND kind = ? AND name != ?"
    )
    others = HeldDocuments(*tx.db.execute(count, (state.id, kind, name)).fetchone())
    rules.check_document_limits(stream[0], kind, others, len(value))
    row = (state.id, kind, name, value, checksums.row_checksum(zlib.crc32(value), kind, name))
    tx.db.execute(
        "INSERT INTO documents VALUES (?, ?, ?, ?, ?) ON CONFLICT (stream, kind, name)"
        " DO UPDATE SET value = excluded.value, checksum = excluded.checksum",
        row,
    )


def is_whole(kind: object, name: object, value: object, checksum: object) -> bool:
    """Return whether a row matches its checksum."""
    return (
        isinstance(value, bytes)
        and isinstance(checksum, bytes)
        and checksums.is_row_whole(checksum, kind, name)
        and checksums.is_payload_whole(checksum, value)
    )
