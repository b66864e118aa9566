"""Access keys in Redis, with a number that grows with every change of them."""

import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from shoal_service.store import checksums, rules
from shoal_service.store.contract import MAX_ACCESS_KEYS, AccessKey
from shoal_service.store.redis.connection import Connections
from shoal_service.store.redis.keys import FORMAT_VERSION, RegistryKeys
from shoal_service.store.redis.scripts import script
from shoal_service.store.redis.writer import RedisWriter, WriteRequest

VERSION_FIELD = b""
"""Field of the hash that counts the changes."""

_log = logging.getLogger("shoal_service.store")


class AccessKeys:
    """Methods of `Store` on access keys."""

    def __init__(self, connections: Connections, writer: RedisWriter, keys: RegistryKeys) -> None:
        self._connections = connections
        self._writer = writer
        self._keys = keys

    def version(self) -> int:
        """See `Store.access_version`."""
        (found,) = self._connections.ask(("HGET", self._keys.access, VERSION_FIELD))
        return int(found or 0)

    def all_keys(self) -> list[AccessKey]:
        """See `Store.access_keys`."""
        rows, used = self._connections.ask(("HGETALL", self._keys.access), ("HGETALL", self._keys.access_used))
        used_at = {used[i]: float(used[i + 1]) for i in range(0, len(used), 2)}
        found = [
            parse_access_key(rows[i].decode("utf-8", "replace"), rows[i + 1])._replace(
                last_used_at=used_at.get(rows[i])
            )
            for i in range(0, len(rows), 2)
            if rows[i] != VERSION_FIELD
        ]
        return sorted(found, key=lambda key: (key.created_at, key.id))

    def put(self, key: AccessKey, only: bool) -> None:
        """See `Store.put_access_key`."""
        keys = (self._keys.access, self._keys.format)
        most = 1 if only else MAX_ACCESS_KEYS
        command = script("put_access_key").command(keys, key.id, _value(key), most, FORMAT_VERSION)

        def parse(reply: list[Any], resent: bool) -> None:
            if reply[0] == b"full":
                rules.check_key_limit(reply[1], only)

        self._writer.run(WriteRequest(self._keys.streams, command, parse))
        if key.last_used_at is not None:
            self.mark_used({key.id: key.last_used_at})

    def delete(self, key_id: str) -> bool:
        """See `Store.delete_access_key`."""
        if not key_id:
            return False
        command = script("delete_access_key").command((self._keys.access, self._keys.access_used), key_id)
        # After a lost reply, a key that is gone now was deleted by this request.
        parse = lambda reply, resent: bool(reply[1] == 1 or resent)  # noqa: E731
        return self._writer.run(WriteRequest(self._keys.streams, command, parse))

    def mark_used(self, used_at: Mapping[str, float]) -> None:
        """See `Store.mark_access_keys_used`."""
        if not used_at:
            return
        pairs = [word for key_id, at in used_at.items() for word in (key_id, repr(float(at)))]
        command = script("mark_access_keys_used").command((self._keys.access, self._keys.access_used), *pairs)
        self._writer.run(WriteRequest(self._keys.streams, command, lambda reply, resent: None))


def _value(key: AccessKey) -> bytes:
    return msgspec.msgpack.encode([key.name, key.digest, key.body, key.created_at, checksums.access_key_checksum(key)])


def parse_access_key(key_id: str, value: bytes) -> AccessKey:
    """Return the key of a value. A damaged one has no digest and no body."""
    try:
        name, digest, body, created_at, checksum = msgspec.msgpack.decode(
            value, type=tuple[str, bytes, bytes, float, bytes]
        )
        key = AccessKey(key_id, name, digest, body, created_at)
        if checksum == checksums.access_key_checksum(key):
            return key
    except (msgspec.MsgspecError, ValueError):
        name, created_at = "", 0.0
    _log.warning(rules.damaged_access_key(key_id))
    return AccessKey(key_id, name, b"", b"", created_at)
