"""Payload of a log entry that forgets records: their keys, in MessagePack."""

import msgspec


def forget_payload(keys: list[str]) -> bytes:
    """Write the payload."""
    return msgspec.msgpack.encode(keys)


def forgotten_keys(payload: bytes) -> list[bytes]:
    """Read the keys of a payload, as UTF-8."""
    return [key.encode() for key in msgspec.msgpack.decode(payload, type=list[str])]
