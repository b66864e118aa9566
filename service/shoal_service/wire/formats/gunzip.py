"""Decompression with a limit on the result, so that a small body cannot become a huge one."""

import zlib

from shoal_service.errors import BodyTooLargeError, MalformedBodyError
from shoal_service.wire.points import Body

_GZIP = 16 + zlib.MAX_WBITS
_STEP = 65_536
_MAX_MEMBERS = 4_096
"""Largest number of gzip members in a body. 64 MiB can hold three million empty ones, each with its own costs."""


def gunzip(body: Body, max_bytes: int) -> bytearray:
    """Decompress a gzip body of one or several members, as `cat a.gz b.gz` makes them. Zero padding may follow.

    Raises BodyTooLargeError as soon as the result has more than `max_bytes`; memory stays below that and one step.
    Raises MalformedBodyError for a body that is not gzip, is cut short or has a wrong checksum.
    """
    out = bytearray()
    rest = memoryview(body)
    for _ in range(_MAX_MEMBERS):
        rest = _inflate_member(rest, out, max_bytes)
        if not rest or (rest[0] == 0 and not bytes(rest).strip(b"\0")):
            return out
    raise MalformedBodyError(f"the gzip body has more than {_MAX_MEMBERS} members; compress it as one")


def _inflate_member(data: memoryview, out: bytearray, max_bytes: int) -> memoryview:
    """Append the content of the first member of `data` to `out`. Returns the bytes behind the member."""
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
            raise MalformedBodyError(
                f"the body is not gzip, or is damaged ({error}); send the whole gzip file, or no Content-Encoding"
            ) from error
        if not (step or piece or member.eof):
            raise MalformedBodyError("the gzip body is cut short; send the whole body")
        out += piece
        if len(out) > max_bytes:
            raise BodyTooLargeError(
                f"the body is larger than {max_bytes} bytes after decompression; send smaller batches"
            )
    return data[fed - len(member.unused_data) :]
