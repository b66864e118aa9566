"""One body to one batch of checked points, whatever it was written in. No I/O, no state: any thread or process."""

from collections.abc import Callable

from shoal_service.errors import BodyTooLargeError, MalformedBodyError
from shoal_service.wire.formats.arrow_body import decode_arrow
from shoal_service.wire.formats.gunzip import gunzip
from shoal_service.wire.formats.json_body import decode_json
from shoal_service.wire.formats.media_types import Format, parse_content_encoding, parse_content_type
from shoal_service.wire.formats.msgpack_body import decode_msgpack
from shoal_service.wire.formats.ndjson_body import decode_ndjson
from shoal_service.wire.formats.npy_body import decode_npy
from shoal_service.wire.points import Body, Points, WireLimits

_TEXTS: dict[Format, Callable[[Body, WireLimits, int | None], Points]] = {
    Format.JSON: decode_json,
    Format.NDJSON: decode_ndjson,
}
_BINARIES: dict[Format, Callable[[Body, WireLimits], Points]] = {
    Format.MSGPACK: decode_msgpack,
    Format.NPY: decode_npy,
    Format.ARROW: decode_arrow,
}


def decode(
    body: Body,
    content_type: str | None,
    limits: WireLimits,
    *,
    content_encoding: str | None = None,
    n_features: int | None = None,
) -> Points:
    """The points of a body, taken whole or refused. `n_features`: what the stream has, where it is there; sparse rows
    in a format of text do not say it.

    Raises UnsupportedMediaTypeError, BodyTooLargeError (also after decompression), MalformedBodyError, LimitError,
    ShapeError, NotNumericError, NotFiniteError, and nothing else, whatever the bytes are; where the fault lies in a
    row, the error's `row` is the first bad one.
    """
    kind = parse_content_type(content_type)
    gzipped = parse_content_encoding(content_encoding)
    check_size(body, limits)
    plain = gunzip(body, limits.max_body_bytes) if gzipped else body
    return _TEXTS[kind](plain, limits, n_features) if kind in _TEXTS else _BINARIES[kind](plain, limits)


def check_size(body: Body, limits: WireLimits) -> None:
    """BodyTooLargeError for a body over the limit as it came, MalformedBodyError for none."""
    if len(body) > limits.max_body_bytes:
        raise BodyTooLargeError(
            f"the body has {len(body)} bytes, at most {limits.max_body_bytes} are taken; send smaller batches"
        )
    if not body:
        raise MalformedBodyError("the body is empty; send points")
