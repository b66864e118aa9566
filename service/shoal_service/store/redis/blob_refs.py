"""Blobs under keys in Redis. The scripts hold the references of entries to them, in the hash `needs`."""

import hashlib
import uuid
from typing import Any

from shoal_service.errors import StoreUnavailableError
from shoal_service.store import rules
from shoal_service.store.redis.connection import Connections
from shoal_service.store.redis.keys import PIECE_BYTES, StreamKeys, pieces
from shoal_service.store.redis.scripts import accept, script
from shoal_service.store.redis.writer import RedisWriter, WriteRequest

UNFINISHED = b"~"


def put(writer: RedisWriter, keys: StreamKeys, name: str, incarnation: str, key: str, blob: bytes) -> None:
    """Store a blob piece by piece, as `Store.put_blob` but without reading it back."""
    digest = hashlib.sha256(blob).hexdigest()
    cut, blob_id = pieces(blob), uuid.uuid4().hex

    def parse(reply: list[Any], resent: bool) -> bool:
        if reply[0] == b"there":
            rules.check_same_blob(name, key, reply[1].split(b" ")[1] == digest.encode())
            return True
        if reply[0] == b"torn":
            raise StoreUnavailableError(f"the blob {key!r} of stream {name!r} was damaged in transfer; send it again")
        accept(reply, name, incarnation)
        return False

    for i, piece in enumerate(cut):
        command = script("put_blob_piece").command(
            (keys.meta, keys.blobs, keys.named), key, len(blob), digest, blob_id, len(cut), i, piece
        )
        if writer.run(WriteRequest(keys.tag, command, parse, PIECE_BYTES)):
            return


def get(connections: Connections, keys: StreamKeys, name: str, key: str) -> bytes:
    """Return a blob, as `Store.get_blob`."""
    (header,) = connections.ask(("HGET", keys.named, key))
    blob = None if header is None or header.startswith(UNFINISHED) else read_blob(connections, keys, header)
    if blob is None:
        raise rules.missing_blob(name, key)
    return blob


def read_blob(connections: Connections, keys: StreamKeys, header: bytes) -> bytes | None:
    """Return the blob of the header "size sha256 blob:pieces", or None when either is damaged."""
    try:
        size, digest, run = header.split(b" ")
        blob_id, n = run.decode().rsplit(":", 1)
        blob = b"".join(connections.ask(("HGET", keys.blobs, f"{blob_id}/{i}"))[0] or b"" for i in range(int(n)))
        is_whole = len(blob) == int(size) and hashlib.sha256(blob).hexdigest().encode() == digest
    except ValueError:
        return None
    return blob if is_whole else None


def drop_request(keys: StreamKeys, name: str, incarnation: str, key: str) -> WriteRequest[None]:
    """Return the request that deletes a blob."""
    command = script("drop_blob").command((keys.meta, keys.blobs, keys.needs, keys.named), key)

    def parse(reply: list[Any], resent: bool) -> None:
        accept(reply, name, incarnation)

    return WriteRequest(keys.tag, command, parse)


def keys_of_blobs(connections: Connections, keys: StreamKeys) -> list[str]:
    """Return the keys of all complete blobs, as `Store.blob_keys`."""
    (flat,) = connections.ask(("HGETALL", keys.named))
    return sorted(flat[i].decode() for i in range(0, len(flat), 2) if not flat[i + 1].startswith(UNFINISHED))
