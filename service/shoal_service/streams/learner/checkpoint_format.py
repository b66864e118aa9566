"""What a learner's checkpoint holds beside the state's bytes: the newest events, so that a restart loses none of them.

    magic 8 | length of what follows, u32 little-endian | JSON | the state's bytes

A checkpoint without the magic is a state alone, as earlier versions wrote it.
"""

import struct

import msgspec

from shoal_service.streams.events import FeedEvent, Place, Trail

_MAGIC = b"\x93SHOALCP"
_LENGTH = struct.Struct("<I")


def sealed(state: bytes, trail: Trail) -> bytes:
    """The checkpoint's blob."""
    head = trail_to_bytes(trail)
    return b"".join((_MAGIC, _LENGTH.pack(len(head)), head, state))


def opened(blob: bytes) -> tuple[bytes, Trail | None]:
    """Inverse of `sealed`; None where there are no events with the state."""
    if not blob.startswith(_MAGIC):
        return blob, None
    (length,) = _LENGTH.unpack_from(blob, len(_MAGIC))
    start = len(_MAGIC) + _LENGTH.size
    return blob[start + length :], trail_from_bytes(blob[start : start + length])


def trail_to_bytes(trail: Trail) -> bytes:
    """As JSON."""
    return msgspec.json.encode(trail)


def trail_from_bytes(data: bytes) -> Trail:
    """Inverse of `trail_to_bytes`."""
    begins, events = msgspec.json.decode(data)
    return Trail(Place(*begins), [FeedEvent(Place(*place), kind, data) for place, kind, data in events])
