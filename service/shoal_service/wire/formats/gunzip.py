"""Decompression with a bound, so that a small body cannot become a large one."""

import zlib

from shoal_service.errors import BodyTooLargeError, MalformedBodyError
from shoal_service.wire.points import Body

_GZIP = 16 + zlib.MAX_WBITS
_STEP = 65_536
_MAX_MEMBERS = 4_096
"""A body of 64 MiB can hold three million empty members, each of which costs a decompressor."""


def gunzip(body: Body, max_bytes: int) -> bytearray:
    """The bytes that a gzip body holds: one member or several, as `cat a.gz b.gz` makes them, zero padding allowed.

    BodyTooLargeError as soon as more than `max_bytes` have come out, with no more than that and one step held;
    MalformedBodyError for anything that is not gzip, is cut short or has a wrong checksum.
    """
    out = bytearray()
    rest = memoryview(body)
    for _ in range(_MAX_MEMBERS):
        rest = _inflate_member(rest, out, max_bytes)
        if not rest or (rest[0] == 0 and not bytes(rest).strip(b"\0")):
            return out
    raise MalformedBodyError(f"the gzip body has more than {_MAX_MEMBERS} members; compress it as one")


def _inflate_member(data: memoryview, out: bytearray, max_bytes: int) -> memoryview:
    """Append what the first member of `data` holds to `out`; what lies behind the member is given back."""
    member = zlib.decompressobj(_GZIP)
    fed = 0
    while not member.eof:
        step: bytes | memoryview = member.unconsumed_tail
        if not step:
            step = data[fed : fed + _STEP]
            fed += len(step)
        try:
            piece = member.decompress(step, _STEP)
        except zlib.error as error:
            raise MalformedBodyError(f"the body is not gzip, or is damaged: {error}") from error
        if not (step or piece or member.eof):
            raise MalformedBodyError("the gzip body is cut short; send the whole of it")
        out += piece
        if len(out) > max_bytes:
            raise BodyTooLargeError(f"the body is over {max_bytes} bytes after decompression; send smaller batches")
    return data[fed - len(member.unused_data) :]
