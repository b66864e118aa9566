"""What comes in query strings, paths and headers rather than in bodies, checked."""

import base64
import hashlib
import re
import struct
from collections.abc import Collection, Sequence

import numpy as np

from shoal.errors import NotNumericError, ShapeError
from shoal_service.errors import HostNotAllowedError, LimitError, ParameterError, StreamNameError
from shoal_service.wire.points import Body, Points, WireLimits, check_shape, check_values

_STREAM_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]([\x20-\x7e]{0,126}[\x21-\x7e])?")
_DIGITS = r"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?"
_NUMBER = re.compile(rf"{_DIGITS}|(?i:[+-]?(?:nan|inf|infinity))", re.ASCII)
_PLAIN_ROW = re.compile(rf"{_DIGITS}(?:,{_DIGITS})*+", re.ASCII)
_CURSOR = struct.Struct(">dq")
_MAX_ID = 2**53


def parse_points_query(values: Sequence[str], limits: WireLimits, *, max_points: int) -> Points:
    """Points from `?x=1.2,3.4&x=5.6,7.8`: one parameter a point, features separated by commas.

    ParameterError (none), LimitError (more than `max_points`), ShapeError (ragged, empty), NotNumericError,
    NotFiniteError; the last three name the row, which counts the parameters from 0.
    """
    if not values:
        raise ParameterError("the query holds no point; send x=1.2,3.4, and repeat x for more points")
    if len(values) > max_points:
        raise LimitError(f"the query holds {len(values)} points, at most {max_points} are taken; POST them in a body")
    rows = [_parse_row(i, value) for i, value in enumerate(values)]
    width = len(rows[0])
    check_shape(len(rows), width, limits)
    for i, row in enumerate(rows):
        if len(row) != width:
            raise ShapeError(f"row {i} holds {len(row)} numbers, row 0 {width}; send rows of equal length", row=i)
    x = np.array(rows, np.float64)
    check_values(x)
    return Points(x)


def check_stream_name(name: str) -> str:
    """The name as it is, or StreamNameError."""
    if not _STREAM_NAME.fullmatch(name):
        raise StreamNameError(
            f"stream name {name[:80]!r} is not taken; use 1 to 64 of a-z, 0-9, _ and -, the first a letter or digit"
        )
    return name


def check_idempotency_key(key: str) -> str:
    """The key as it is, or ParameterError: 1 to 128 printable ASCII characters, no space at either end."""
    if not _IDEMPOTENCY_KEY.fullmatch(key):
        raise ParameterError("Idempotency-Key must be 1 to 128 printable ASCII characters; a UUID will do")
    return key


def request_digest(body: Body, content_type: str | None, content_encoding: str | None) -> bytes:
    """SHA-256 (32 bytes) over what was sent, by which a retry is known from another request under the same key.

    A large body takes a while, without the interpreter's lock: hash it in a thread.
    """
    digest = hashlib.sha256()
    for header in (content_type, content_encoding):
        text = (header or "").encode("utf-8", "surrogateescape")
        digest.update(struct.pack(">q", len(text)) + text)  # lengths, so that nothing can move from one to the next
    digest.update(body)
    return digest.digest()


def check_host(host: str | None, allowed: Collection[str]) -> None:
    """HostNotAllowedError unless the Host header names, at any port, one of `allowed` (lower case; `*` allows all).

    A page in a browser can have its own name resolve to 127.0.0.1; its Host header still says whose page it is.
    """
    if "*" in allowed or (host and _without_port(host) in allowed):
        return
    # which names are allowed is not told: a page that rebinds its name can read the answer
    raise HostNotAllowedError(f"Host {(host or '')[:80]!r} is not on the list; add it to allowed_hosts if it is yours")


def encode_cursor(mass: float, component: int) -> str:
    """Where a page of components ended, as text for a URL: the last one's mass and id, exactly."""
    return base64.urlsafe_b64encode(_CURSOR.pack(mass, component)).decode().rstrip("=")


def decode_cursor(text: str) -> tuple[float, int]:
    """The mass and id of `encode_cursor`; ParameterError for anything else."""
    try:
        mass, component = _CURSOR.unpack(base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True))
    except (ValueError, struct.error):
        mass, component = -1.0, -1
    if not (0 <= mass < float("inf") and 0 <= component < _MAX_ID):
        raise ParameterError(f"cursor {text[:80]!r} is none that was given out; take it from the last page's `next`")
    return mass, component


def _parse_row(row: int, text: str) -> list[float]:
    if _PLAIN_ROW.fullmatch(text):
        return [float(part) for part in text.split(",")]
    parts = [part.strip(" ") for part in text.split(",")]
    for column, part in enumerate(parts):
        if not _NUMBER.fullmatch(part):
            hint = "; write + as %2B in a URL" if " " in part else ""
            raise NotNumericError(
                f"row {row} holds {part[:40]!r} in column {column}, which is no number{hint}", row=row
            )
    return [float(part) for part in parts]


def _without_port(host: str) -> str:
    """`[::1]:8000`, `localhost.:8000` and `LOCALHOST` as they stand in a list of names."""
    name = host.strip().lower()
    name = name[: name.find("]") + 1] if name.startswith("[") else name.partition(":")[0]
    return name.removesuffix(".")
