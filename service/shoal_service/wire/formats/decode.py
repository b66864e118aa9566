"""Decoding of one body, in any format, to one batch of checked points. It has no state and does no I/O."""

from collections.abc import Callable

from shoal_service.errors import BodyTooLargeError, MalformedBodyError, ParameterError
from shoal_service.wire.formats.arrow_body import decode_arrow
from shoal_service.wire.formats.gunzip import gunzip
from shoal_service.wire.formats.json_body import decode_json
from shoal_service.wire.formats.json_text import refuse_byte_order_mark
from shoal_service.wire.formats.media_types import (
    Format,
    parse_content_encoding,
    parse_content_type,
)
from shoal_service.wire.formats.msgpack_body import decode_msgpack
from shoal_service.wire.formats.ndjson_body import decode_ndjson
from shoal_service.wire.formats.npy_body import decode_npy
from shoal_service.wire.points import Body, Points, WireLimits
from shoal_service.wire.record_columns import RecordColumns

_TEXTS: dict[Format, Callable[[Body, WireLimits, int | None], Points]] = {
    Format.JSON: decode_json,
    Format.NDJSON: decode_ndjson,
}
_BINARIES: dict[Format, Callable[[Body, WireLimits], Points]] = {
    Format.MSGPACK: decode_msgpack,
    Format.NPY: decode_npy,
}


def decode(
    body: Body,
    content_type: str | None,
    limits: WireLimits,
    *,
    content_encoding: str | None = None,
    n_features: int | None = None,
    columns: RecordColumns | None = None,
) -> Points:
    """Read the points of a body, or refuse the whole body.

    `n_features`: number of features of the stream, if it exists; sparse rows in JSON or NDJSON do not contain it.
    `columns`: columns of an Arrow body that hold fields of records. Others refuse it with ParameterError.
    Raises UnsupportedMediaTypeError, BodyTooLargeError (also after decompression), MalformedBodyError, LimitError,
    ShapeError, NotNumericError and NotFiniteError, and nothing else for any bytes. If the fault is in a row, the
    error's `row` is the first bad row.
    """
    kind = parse_content_type(content_type)
    gzipped = parse_content_encoding(content_encoding)
    check_size(body, limits)
    if columns and kind is not Format.ARROW:
        raise ParameterError(
            f"columns of fields are named for {Format.ARROW}, and the body is {kind}; send keys, times, payloads and "
            "weights in the body"
        )
    plain = gunzip(body, limits.max_body_bytes) if gzipped else body
    if kind is Format.ARROW:
        return decode_arrow(plain, limits, columns)
    if kind in _BINARIES:
        return _BINARIES[kind](plain, limits)
    refuse_byte_order_mark(plain)
    return _TEXTS[kind](plain, limits, n_features)


def check_size(body: Body, limits: WireLimits) -> None:
    """Check the size of a body as sent. Raises BodyTooLargeError, and MalformedBodyError for an empty body."""
    if len(body) > limits.max_body_bytes:
        raise BodyTooLargeError(
            f"the body has {len(body)} bytes, the limit is {limits.max_body_bytes}; send smaller batches"
        )
    if not body:
        raise MalformedBodyError("the body is empty; send points")
