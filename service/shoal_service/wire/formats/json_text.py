"""The text of a body that is one JSON object and holds no points: settings, keys to look up, a webhook."""

from codecs import BOM_UTF8

from shoal_service.errors import BodyTooLargeError, MalformedBodyError
from shoal_service.wire.formats.gunzip import gunzip
from shoal_service.wire.formats.media_types import Format, parse_content_encoding, parse_content_type
from shoal_service.wire.points import Body


def json_text(
    body: Body, content_type: str | None, content_encoding: str | None, max_bytes: int, *, optional: bool = False
) -> Body:
    """Return the JSON text, at most `max_bytes` after decompression. `optional`: no body at all is an empty text.

    Raises UnsupportedMediaTypeError, BodyTooLargeError and MalformedBodyError.
    """
    if optional and not body:
        return body
    parse_content_type(content_type, (Format.JSON,))
    gzipped = parse_content_encoding(content_encoding)
    if len(body) > max_bytes:
        raise BodyTooLargeError(f"the body has {len(body)} bytes, the limit is {max_bytes}; send a shorter one")
    text = gunzip(body, max_bytes) if gzipped else body
    if not text:
        raise MalformedBodyError("the body is empty; send a JSON object")
    refuse_byte_order_mark(text)
    return text


def refuse_byte_order_mark(text: Body) -> None:
    """Raise MalformedBodyError for a text that begins with the mark (RFC 8259, 8.1)."""
    if text.startswith(BOM_UTF8):
        raise MalformedBodyError("the body begins with a byte order mark, EF BB BF; send UTF-8 without it")
