"""The body of `POST /records/lookup`: `{"keys": [...]}`."""

import msgspec

from shoal_service.errors import LimitError, MalformedBodyError, UnsupportedMediaTypeError
from shoal_service.wire.formats import Format, check_size, gunzip, parse_content_encoding, parse_content_type
from shoal_service.wire.points import Body, WireLimits

MOST_KEYS = 10_000
"""Most keys of one lookup."""


class _Lookup(msgspec.Struct, forbid_unknown_fields=True):
    keys: list[str]


_DECODER = msgspec.json.Decoder(_Lookup)


def decode_lookup(body: Body, content_type: str | None, content_encoding: str | None, limits: WireLimits) -> list[str]:
    """Read the keys. Raises UnsupportedMediaTypeError, BodyTooLargeError, MalformedBodyError and LimitError."""
    if parse_content_type(content_type) is not Format.JSON:
        raise UnsupportedMediaTypeError(f"the content type is {content_type!r}; send the keys as {Format.JSON}")
    gzipped = parse_content_encoding(content_encoding)
    check_size(body, limits)
    try:
        keys = _DECODER.decode(gunzip(body, limits.max_body_bytes) if gzipped else body).keys
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedBodyError(
            f'the body does not hold keys in JSON: {str(error)[:200]}; send {{"keys": ["a", "b"]}}'
        ) from None
    if not 1 <= len(keys) <= MOST_KEYS:
        raise LimitError(f"the body holds {len(keys)} keys; send 1 to {MOST_KEYS:,}")
    return keys
