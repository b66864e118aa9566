"""Documents of a stream in SQLite: small values by kind and name."""

import logging
import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shoal_service.store import checksums, rules
from shoal_service.store.contract import DocumentName
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


def names(db: sqlite3.Connection, state: StreamState, kind: str) -> list[str]:
    """Return the names of the documents of a kind, as `Store.document_names`."""
    select = "SELECT name FROM documents WHERE stream = ? AND kind = ? ORDER BY name"
    return [name for (name,) in db.execute(select, (state.id, kind))]


class Held(NamedTuple):
    """A document that is there."""

    value: bytes | None
    """None where it is damaged."""


def read_one(tx: Transaction, state: StreamState, kind: str, name: str) -> Held | None:
    """Return one document as it is in this transaction, or None."""
    select = "SELECT value, checksum FROM documents WHERE stream = ? AND kind = ? AND name = ?"
    row = tx.db.execute(select, (state.id, kind, name)).fetchone()
    if row is None:
        return None
    return Held(row[0] if is_whole(kind, name, *row) else None)


def check_room(tx: Transaction, state: StreamState, kind: str) -> None:
    """Raise LimitError when no further document of a kind fits."""
    rules.check_document_limits(state.record.name, kind, _held(tx, state, kind), HeldDocuments(1, 0))


def write(tx: Transaction, stream: tuple[str, str], kind: str, name: str, value: bytes | None) -> None:
    """Write or delete a document, as `Store.set_document`."""
    state = find(tx.streams, *stream)
    if value is None:
        _delete(tx, state, kind, name)
        return
    others = _held(tx, state, kind, [name])
    rules.check_document_limits(stream[0], kind, others, rules.written_documents(kind, {(kind, name): value}))
    replace(tx, state, kind, name, value)


def change(
    tx: Transaction,
    stream: tuple[str, str],
    changes: Mapping[DocumentName, bytes | None],
    expected: Mapping[DocumentName, bytes | None],
    dropped: DocumentName | None,
    max_documents: int | None,
) -> bool:
    """Change several documents, as `Store.change_documents`."""
    state = find(tx.streams, *stream)
    for one, value in expected.items():
        before = read_one(tx, state, *one)
        if (None if before is None else before.value) != value:
            return False
    for kind in dict.fromkeys(kind for (kind, _), value in changes.items() if value is not None):
        beginning = dropped[1] if dropped is not None and dropped[0] == kind else None
        others = _held(tx, state, kind, [name for of, name in changes if of == kind], beginning)
        rules.check_document_limits(stream[0], kind, others, rules.written_documents(kind, changes), max_documents)
    if dropped is not None:
        kind, beginning = dropped
        delete = "DELETE FROM documents WHERE stream = ? AND kind = ? AND substr(name, 1, ?) = ?"
        tx.db.execute(delete, (state.id, kind, len(beginning), beginning))
    for (kind, name), value in changes.items():
        if value is None:
            _delete(tx, state, kind, name)
        else:
            replace(tx, state, kind, name, value)
    return True


def _delete(tx: Transaction, state: StreamState, kind: str, name: str) -> None:
    tx.db.execute("DELETE FROM documents WHERE stream = ? AND kind = ? AND name = ?", (state.id, kind, name))


def replace(tx: Transaction, state: StreamState, kind: str, name: str, value: bytes) -> None:
    """Write a document. The caller has checked the limits."""
    row = (state.id, kind, name, value, checksums.row_checksum(zlib.crc32(value), kind, name))
    tx.db.execute(
        "INSERT INTO documents VALUES (?, ?, ?, ?, ?) ON CONFLICT (stream, kind, name)"
        " DO UPDATE SET value = excluded.value, checksum = excluded.checksum",
        row,
    )


def _held(
    tx: Transaction, state: StreamState, kind: str, names: Sequence[str] = (), beginning: str | None = None
) -> HeldDocuments:
    """Return what the documents of a kind hold beside those of some names, and those whose names begin so."""
    count = (
        "SELECT count(*), coalesce(sum(length(value)), 0) FROM documents"
        f" WHERE stream = ? AND kind = ? AND name NOT IN ({', '.join('?' * len(names))})"
        " AND (? IS NULL OR substr(name, 1, length(?)) != ?)"
    )
    return HeldDocuments(*tx.db.execute(count, (state.id, kind, *names, *[beginning] * 3)).fetchone())


def is_whole(kind: object, name: object, value: object, checksum: object) -> bool:
    """Return whether a row matches its checksum."""
    return (
        isinstance(value, bytes)
        and isinstance(checksum, bytes)
        and checksums.is_row_whole(checksum, kind, name)
        and checksums.is_payload_whole(checksum, value)
    )
