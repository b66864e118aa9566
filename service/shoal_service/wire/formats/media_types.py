"""Content-Type and Content-Encoding headers (RFC 9110, 8.3 and 8.4)."""

from collections.abc import Collection
from enum import StrEnum

from shoal_service.errors import UnsupportedMediaTypeError


class Format(StrEnum):
    """A format for points, by its media type."""

    JSON = "application/json"
    NDJSON = "application/x-ndjson"
    MSGPACK = "application/msgpack"
    NPY = "application/x-npy"
    ARROW = "application/vnd.apache.arrow.stream"


_TEXT = (Format.JSON, Format.NDJSON)
_ALIASES = {
    "application/ndjson": Format.NDJSON,
    "application/jsonl": Format.NDJSON,
    "application/x-msgpack": Format.MSGPACK,
    "application/vnd.msgpack": Format.MSGPACK,
    "application/npy": Format.NPY,
}
_FORMATS: dict[str, Format] = {str(f): f for f in Format} | _ALIASES

_UTF8 = {"utf-8", "utf8", "us-ascii"}


def parse_content_type(header: str | None, accepted: Collection[Format] = tuple(Format)) -> Format:
    """Find the format that a Content-Type header names, one of those `accepted`. Raises UnsupportedMediaTypeError.

    Upper and lower case are the same. Parameters are ignored, but JSON must be UTF-8 (RFC 8259, 8.1).
    """
    if header in _FORMATS and _FORMATS[header] in accepted:  # as nearly all clients send it
        return _FORMATS[header]
    advice = f"send {'' if len(accepted) == 1 else 'one of '}{', '.join(accepted)}"
    if header is None or not header.strip():
        raise UnsupportedMediaTypeError(f"the body has no Content-Type; {advice}")
    media_type, _, parameters = header.partition(";")
    found = _FORMATS.get(media_type.strip().lower())
    if found is None or found not in accepted:
        raise UnsupportedMediaTypeError(f"Content-Type {_shown(header)} is not supported; {advice}")
    if found in _TEXT:
        _check_charset(parameters)
    return found


def parse_content_encoding(header: str | None) -> bool:
    """Whether the body is compressed with gzip. Raises UnsupportedMediaTypeError for another or a repeated coding."""
    if header is None:
        return False
    codings = [c for c in (part.strip().lower() for part in header.split(",")) if c not in ("", "identity")]
    if not codings:
        return False
    if codings in (["gzip"], ["x-gzip"]):
        return True
    raise UnsupportedMediaTypeError(
        f"Content-Encoding {_shown(header)} is not supported; send gzip once, or no encoding"
    )


def _check_charset(parameters: str) -> None:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        charset = value.strip().strip('"').lower()
        if name.strip().lower() == "charset" and charset not in _UTF8:
            raise UnsupportedMediaTypeError(f"JSON in charset {_shown(charset)} is not supported; send UTF-8")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
