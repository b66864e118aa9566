"""The body of `POST /records/lookup`: `{"keys": [...]}`."""

import msgspec

from shoal_service.errors import LimitError, MalformedBodyError
from shoal_service.wire.formats import json_text
from shoal_service.wire.points import Body, WireLimits

MOST_KEYS = 10_000
"""Most keys of one lookup."""


class _Lookup(msgspec.Struct, forbid_unknown_fields=True):
    keys: list[str]


_DECODER = msgspec.json.Decoder(_Lookup)


def decode_lookup(body: Body, content_type: str | None, content_encoding: str | None, limits: WireLimits) -> list[str]:
    """Read the keys. Raises UnsupportedMediaTypeError, BodyTooLargeError, MalformedBodyError and LimitError."""
    text = json_text(body, content_type, content_encoding, limits.max_body_bytes)
    try:
        keys = _DECODER.decode(text).keys
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedBodyError(
            f'the body does not hold keys in JSON: {str(error)[:200]}; send {{"keys": ["a", "b"]}}'
        ) from None
    if not 1 <= len(keys) <= MOST_KEYS:
        raise LimitError(f"the body holds {len(keys)} keys; send 1 to {MOST_KEYS:,}")
    return keys
