"""Bodies of `PUT /streams/{stream}`: settings as JSON, checked for their types; their ranges are the library's."""

from typing import Any

from pydantic import ValidationError

from shoal.errors import SettingError
from shoal_service.errors import MalformedBodyError, UnsupportedMediaTypeError
from shoal_service.wire.decode import check_size
from shoal_service.wire.gunzip import gunzip
from shoal_service.wire.media import Format, parse_content_encoding, parse_content_type
from shoal_service.wire.models import StreamIn
from shoal_service.wire.points import Body, WireLimits


def decode_stream_spec(
    body: Body, content_type: str | None, limits: WireLimits, *, content_encoding: str | None = None
) -> dict[str, Any]:
    """The settings that the body names, as plain values, and no others.

    UnsupportedMediaTypeError, BodyTooLargeError, MalformedBodyError (not a JSON object), SettingError (an unknown name,
    or a value of the wrong type).
    """
    if parse_content_type(content_type) is not Format.JSON:
        raise UnsupportedMediaTypeError(f"settings are taken as {Format.JSON} only")
    gzipped = parse_content_encoding(content_encoding)
    check_size(body, limits)
    text = gunzip(body, limits.max_body_bytes) if gzipped else body
    try:
        return StreamIn.model_validate_json(text).model_dump(exclude_unset=True)
    except ValidationError as error:
        raise _refusal(error) from None


def _refusal(error: ValidationError) -> MalformedBodyError | SettingError:
    """The first fault, in words; the others would repeat it (each member of a union has its own)."""
    first = error.errors(include_url=False, include_context=False)[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    if first["type"] == "json_invalid" or not name:
        return MalformedBodyError(f"the body is not an object of settings in JSON: {first['msg']}")
    if first["type"] == "extra_forbidden":
        return SettingError(f"there is no setting {name[:80]!r}; use {', '.join(StreamIn.model_fields)}")
    return SettingError(f"{name} is {str(first['input'])[:80]!r}: {first['msg']}")
