"""Checks of values in query strings, paths and headers."""

import base64
import hashlib
import math
import re
import struct
from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import numpy as np

from shoal.errors import NotNumericError, ShapeError, counted
from shoal_service.errors import HostNotAllowedError, LimitError, ParameterError, StreamNameError
from shoal_service.wire.formats.text_rows import table_with_texts
from shoal_service.wire.points import Body, Points, WireLimits, check_shape, check_values
from shoal_service.wire.record_columns import RecordColumns

_STREAM_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]([\x20-\x7e]{0,126}[\x21-\x7e])?")
_DIGITS = r"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?"
_NUMBER = re.compile(rf"{_DIGITS}|(?i:[+-]?(?:nan|inf|infinity))", re.ASCII)
_MISSING = ("", "null")
_JSON_NUMBERS = msgspec.json.Decoder(list[float])
_CURSOR = struct.Struct(">dq")
_MAX_ID = 2**53


def parse_points_query(values: Sequence[str], limits: WireLimits, *, max_points: int) -> Points:
    """Read points from `?x=1.2,3.4&x=5.6,7.8`: one parameter per point, features separated by commas.

    Where `limits` allow holes, a missing value is an empty text, `nan` or `null`. Where they allow texts, what is no
    number is a text.
    Raises ParameterError (no point), LimitError (more than `max_points`), ShapeError (different lengths),
    NotNumericError and NotFiniteError. The last three name the row, which counts the parameters from 0.
    """
    if not values:
        raise ParameterError("the query holds no point; send x=1.2,3.4, and repeat x for more points")
    if len(values) > max_points:
        raise LimitError(
            f"the query holds {len(values)} points, the limit is {max_points}; send them in the body of a POST"
        )
    rows = [_parse_row(i, value, limits) for i, value in enumerate(values)]
    width = len(rows[0])
    check_shape(len(rows), width, limits)
    for i, row in enumerate(rows):
        if len(row) != width:
            raise ShapeError(
                f"row {i} holds {counted(len(row), 'number')}, row 0 holds {width}; send rows of equal length", row=i
            )
    if limits.texts:
        x, texts = table_with_texts(rows, limits)
        return Points(x, texts=texts)
    x = np.array(rows, np.float64)
    check_values(x, holes=limits.holes)
    return Points(x)


def record_columns(key: str | None, time: str | None, payload: str | None, weight: str | None) -> RecordColumns | None:
    """Read the parameters `key_column`, `time_column`, `payload_columns` (names with commas) and `weight_column`."""
    names = tuple(name.strip() for name in (payload or "").split(",") if name.strip())
    columns = RecordColumns(key, time, names, weight)
    return columns if columns else None


def check_stream_name(name: str) -> str:
    """Return a valid name unchanged. Raises StreamNameError for another one."""
    if not _STREAM_NAME.fullmatch(name):
        raise StreamNameError(
            f"stream name {name[:80]!r} is not valid; use 1 to 64 of a-z, 0-9, _ and -, first a letter or digit"
        )
    return name


def check_idempotency_key(key: str) -> str:
    """Return a valid key: 1 to 128 printable ASCII characters, no space at either end. Raises ParameterError."""
    if not _IDEMPOTENCY_KEY.fullmatch(key):
        raise ParameterError(
            f"Idempotency-Key is {key[:40]!r}; send 1 to 128 printable ASCII characters, for example a UUID"
        )
    return key


def request_digest(
    body: Body,
    content_type: str | None,
    content_encoding: str | None,
    columns: RecordColumns | None = None,
    source: tuple[str | None, ...] | None = None,
) -> bytes:
    """SHA-256 (32 bytes) of a request. It tells a retry from another request with the same key.

    `source`: the step of a source that the batch is, in words.
    A large body takes a while, and does not hold the lock of the interpreter: hash it in a thread.
    """
    digest = hashlib.sha256()
    for header in (content_type, content_encoding):
        text = (header or "").encode("utf-8", "surrogateescape")
        digest.update(
            struct.pack(">q", len(text)) + text
        )  # with its length, so that no two requests give the same bytes
    if columns:
        digest.update(msgspec.msgpack.encode(columns))
    if source is not None:
        digest.update(msgspec.msgpack.encode(source))
    digest.update(body)
    return digest.digest()


def check_host(host: str | None, allowed: Collection[str]) -> None:
    """Check that the Host header names one of `allowed` (in lower case; `*` allows all), at any port.

    A web page can make its own name resolve to 127.0.0.1, but its Host header still holds that name. Raises
    HostNotAllowedError.
    """
    if "*" in allowed or (host and _without_port(host) in allowed):
        return
    # the allowed names stay secret: a page that rebinds its name can read the answer
    raise HostNotAllowedError(
        f"Host {(host or '')[:80]!r} is not allowed; if this name is yours, add it to the setting allowed_hosts"
    )


def encode_cursor(rank: float, number: int, order: str = "") -> str:
    """Write the end of a page as text for a URL, exactly: rank and number of the last one, and the name of the order.

    Components are ordered by mass, then by id; their order has no name.
    """
    return base64.urlsafe_b64encode(_CURSOR.pack(rank, number) + order.encode("ascii")).decode().rstrip("=")


def decode_cursor(text: str) -> tuple[float, int]:
    """Read the mass and id that `encode_cursor` wrote. Raises ParameterError."""
    mass, component = decode_rank(text, "")
    if not 0 <= mass < float("inf"):
        raise _bad_cursor(text)
    return mass, component


def decode_name_cursor(text: str) -> str:
    """Read the cursor of a list of streams, which is the last name of the page. Raises ParameterError."""
    if not _STREAM_NAME.fullmatch(text):
        raise _bad_cursor(text)
    return text


def decode_rank(text: str, order: str) -> tuple[float, int]:
    """Read the rank and number that `encode_cursor` wrote. Raises ParameterError, also for the end of a page in another
    order.
    """
    try:
        whole = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
        rank, number = _CURSOR.unpack_from(whole)
    except (ValueError, struct.error):
        raise _bad_cursor(text) from None
    if whole[_CURSOR.size :] != order.encode("ascii"):
        raise ParameterError(
            f"cursor {text[:80]!r} is not of this list in this order; use the value of `next` of its last page, or "
            "begin without a cursor"
        )
    if math.isnan(rank) or not 0 <= number < _MAX_ID:
        raise _bad_cursor(text)
    return rank, number


def _bad_cursor(text: str) -> ParameterError:
    return ParameterError(f"cursor {text[:80]!r} is not valid; use the value of `next` of the last page")


def _parse_row(row: int, text: str, limits: WireLimits) -> list[Any]:
    if plain := _plain_row(text):
        return plain
    parts = [part.strip(" ") for part in text.split(",")]
    if limits.texts:
        missing = _MISSING if limits.holes else ()
        return [None if part.lower() in missing else float(part) if _NUMBER.fullmatch(part) else part for part in parts]
    if limits.holes:
        parts = ["nan" if part.lower() in _MISSING else part for part in parts]
    for column, part in enumerate(parts):
        if not _NUMBER.fullmatch(part):
            hint = "; write + as %2B in a URL" if " " in part else "; send numbers only"
            raise NotNumericError(
                f"row {row} holds {part[:40]!r} in column {column}, which is not a number{hint}", row=row, column=column
            )
    return [float(part) for part in parts]


def _plain_row(text: str) -> list[float] | None:
    """Numbers as JSON has them, between commas and spaces, in a quarter of the time of the general way. None for any
    other text."""
    try:
        return _JSON_NUMBERS.decode(f"[{text}]") if text.isprintable() else None  # JSON takes tabs for spaces, too
    except msgspec.DecodeError:
        return None


def _without_port(host: str) -> str:
    """Name in a Host header, in lower case: `[::1]:8000`, `localhost.:8000` and `LOCALHOST` without port and dot."""
    name = host.strip().lower()
    name = name[: name.find("]") + 1] if name.startswith("[") else name.partition(":")[0]
    return name.removesuffix(".")
