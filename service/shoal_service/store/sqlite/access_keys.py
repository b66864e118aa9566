"""Access keys in SQLite, with a number that grows with every change of them."""

import logging
import sqlite3
from collections.abc import Mapping

from shoal_service.store import checksums, rules
from shoal_service.store.contract import AccessKey
from shoal_service.store.sqlite.writer import Transaction

_log = logging.getLogger("shoal_service.store")


def version(db: sqlite3.Connection) -> int:
    """Return the number of changes, as `Store.access_version`."""
    (found,) = db.execute("SELECT max(version) FROM access_version").fetchone()
    return int(found)


def all_keys(db: sqlite3.Connection) -> list[AccessKey]:
    """Return all keys, as `Store.access_keys`."""
    fields = ", ".join(AccessKey._fields)
    rows = db.execute(f"SELECT {fields}, checksum FROM access_keys ORDER BY created_at, id").fetchall()
    return [_checked(AccessKey(*row[:-1]), row[-1]) for row in rows]


def put(tx: Transaction, key: AccessKey, only: bool) -> None:
    """Store a key, as `Store.put_access_key`."""
    others = tx.db.execute("SELECT count(*) FROM access_keys WHERE id != ?", (key.id,)).fetchone()[0]
    rules.check_key_limit(others, only)
    tx.db.execute(
        "INSERT OR REPLACE INTO access_keys VALUES (?, ?, ?, ?, ?, ?, ?)", (*key, checksums.access_key_checksum(key))
    )
    _count_change(tx)


def delete(tx: Transaction, key_id: str) -> bool:
    """Delete a key, as `Store.delete_access_key`."""
    if tx.db.execute("DELETE FROM access_keys WHERE id = ?", (key_id,)).rowcount == 0:
        return False
    _count_change(tx)
    return True


def mark_used(tx: Transaction, used_at: Mapping[str, float]) -> None:
    """Record uses, as `Store.mark_access_keys_used`."""
    newer = "UPDATE access_keys SET last_used_at = ? WHERE id = ? AND coalesce(last_used_at, 0) < ?"
    tx.db.executemany(newer, [(at, key_id, at) for key_id, at in used_at.items()])


def _count_change(tx: Transaction) -> None:
    tx.db.execute("UPDATE access_version SET version = version + 1")


def _checked(key: AccessKey, checksum: object) -> AccessKey:
    if checksum == checksums.access_key_checksum(key):
        return key
    _log.warning(rules.damaged_access_key(key.id))
    return key._replace(digest=b"", body=b"")
