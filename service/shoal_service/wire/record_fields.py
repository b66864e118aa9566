"""Fields beside a point: key, time, payload and weight, checked row by row, and their bytes in the log."""

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from shoal.errors import counted
from shoal_service.errors import MalformedBodyError, RecordFieldError
from shoal_service.wire.texts import Texts

MAX_KEY_BYTES = 256
"""Largest key, in UTF-8."""
MAX_PAYLOAD_BYTES = 4_096
"""Largest payload as JSON, unless the service has another setting."""
LEAST_WEIGHT, MOST_WEIGHT = 1e-9, 1e9
"""Limits of a weight. The library has the same."""
_MAX_SECONDS = 253_402_300_799.0
"""End of the year 9999, beyond which RFC 3339 has no text."""
_FIRST_SECOND = -62_135_596_800.0
"""Begin of the year 1 in UTC, before which a moment has no text here. A number of seconds may be smaller."""
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_UNITS_PER_SECOND = {"D": 1 / 86_400, "s": 1.0, "ms": 1e3, "us": 1e6}

FIELDS = ("keys", "times", "payloads", "weights")
"""Names of the lists in a JSON body, beside `points`."""


class RecordFields(NamedTuple):
    """Fields of N points, in their order. A list that no point has a value for is None."""

    arrived: float
    """Unix time at which the batch was accepted. 0 before."""
    keys: Texts | None
    """UTF-8, 1 to 256 bytes; empty for a point without a key."""
    times: npt.NDArray[np.float64] | None
    """Unix seconds; NaN for a point without a time."""
    time_is_text: npt.NDArray[np.bool_] | None
    """Whether the time was sent as text. It is shown as text then."""
    payloads: Texts | None
    """A JSON object; empty for a point without a payload."""
    weights: npt.NDArray[np.float64] | None = None
    """How often each point counts. None where each counts once."""


def checked_fields(
    n: int,
    keys: object = None,
    times: object = None,
    payloads: object = None,
    weights: object = None,
    *,
    max_payload_bytes: int = MAX_PAYLOAD_BYTES,
) -> RecordFields | None:
    """Check the lists of a batch of n points. None where there is none of them.

    `times` may also be an array of datetime64 in days, seconds, milliseconds or microseconds of UTC.
    Raises RecordFieldError, with the first bad row of the first bad list.
    """
    if keys is None and times is None and payloads is None and weights is None:
        return None
    found = _weights(_list("weights", "weight", weights, n))
    seconds = is_text = None
    if isinstance(times, np.ndarray):
        seconds, is_text = _seconds_of_moments(times), np.ones(n, np.bool_)
    elif (given := _list("times", "time", times, n)) is not None:
        seconds = np.fromiter((_seconds(i, value) for i, value in enumerate(given)), np.float64, n)
        is_text = np.fromiter((isinstance(value, str) for value in given), np.bool_, n)
    names, objects = _list("keys", "key", keys, n), _list("payloads", "payload", payloads, n)
    return RecordFields(
        0.0,
        None if names is None else _keys(names),
        seconds,
        is_text,
        None if objects is None else Texts.of(_payload(i, value, max_payload_bytes) for i, value in enumerate(objects)),
        found,
    )


def _list(name: str, one: str, values: object, n: int) -> Sequence[Any] | None:
    if values is None:
        return None
    if not isinstance(values, list):
        raise RecordFieldError(f"{name} is {_shown(values)}, which is not an array; send one {one} for each point")
    if len(values) != n:
        raise RecordFieldError(
            f"{name} holds {counted(len(values), 'value')} for {counted(n, 'point')}; send one {one} for each point, "
            "null where there is none",
            row=min(len(values), n),
        )
    return values


def _keys(values: Sequence[Any]) -> Texts:
    """The keys as UTF-8, all at once where each is ASCII of a length that is accepted."""
    try:
        text = "".join(values)
    except TypeError:  # some are null, or no text
        text = ""
    if text and text.isascii():
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        if lengths.min() >= 1 and lengths.max() <= MAX_KEY_BYTES:
            return Texts(np.frombuffer(text.encode("ascii"), np.uint8), lengths)
    return Texts.of(_key(row, value) for row, value in enumerate(values))


def _key(row: int, value: object) -> bytes:
    if value is None:
        return b""
    if not isinstance(value, str):
        raise RecordFieldError(f"row {row} has the key {_shown(value)}, which is not text; send text", row=row)
    try:
        key = value.encode()
    except UnicodeEncodeError:
        raise RecordFieldError(
            f"row {row} has the key {_shown(value)}, which UTF-8 cannot hold; send other text", row=row
        ) from None
    if not 1 <= len(key) <= MAX_KEY_BYTES:
        raise RecordFieldError(
            f"row {row} has a key of {len(key)} bytes; send 1 to {MAX_KEY_BYTES} bytes of UTF-8", row=row
        )
    return key


def _seconds(row: int, value: object) -> float:
    if value is None:
        return math.nan
    if isinstance(value, str):
        return _parsed(row, value)
    if isinstance(value, bool) or not isinstance(value, float | int) or not abs(value) <= _MAX_SECONDS:
        raise RecordFieldError(
            f"row {row} has the time {_shown(value)}; send RFC 3339 text, such as 2026-01-31T12:00:00Z, or seconds "
            "since 1970",
            row=row,
        )
    return float(value)


def _seconds_of_moments(moments: npt.NDArray[np.datetime64]) -> npt.NDArray[np.float64]:
    """Seconds of moments, NaN for none. Raises RecordFieldError outside of the years 1 to 9999.

    They are not cast to another unit first: large ones would overflow to a time that nobody sent.
    """
    per_second = _UNITS_PER_SECOND[np.datetime_data(moments.dtype)[0]]
    units, missing = moments.astype(np.int64), np.isnat(moments)
    outside = ~missing & ((units < _FIRST_SECOND * per_second) | (units >= (_MAX_SECONDS + 1.0) * per_second))
    if outside.any():
        row = int(outside.argmax())
        raise RecordFieldError(f"row {row} has the time {moments[row]}; send one of the years 1 to 9999", row=row)
    return np.where(missing, np.nan, units / per_second)


def _parsed(row: int, text: str) -> float:
    if _RFC_3339.fullmatch(text):
        try:
            return (_moment(text.upper()) - _EPOCH).total_seconds()
        except ValueError:  # such as the 30th of February
            pass
        except OverflowError:
            raise RecordFieldError(
                f"row {row} has the time {_shown(text)}; send one of the years 1 to 9999 in UTC", row=row
            ) from None
    raise RecordFieldError(
        f"row {row} has the time {_shown(text)}, which is not RFC 3339; send a date, a time and an offset, such as "
        "2026-01-31T12:00:00Z",
        row=row,
    )


def _moment(text: str) -> datetime:
    """The moment of a text of RFC 3339. A leap second is the first second after it, as seconds since 1970 have it.

    Raises ValueError, also for a second 60 elsewhere than at the end of a month in UTC, and OverflowError.
    """
    if text[17:19] != "60":
        return datetime.fromisoformat(text).astimezone(UTC)
    moment = datetime.fromisoformat(f"{text[:17]}59{text[19:]}").astimezone(UTC) + timedelta(seconds=1)
    if (moment.day, moment.hour, moment.minute) != (1, 0, 0):
        raise ValueError("no leap second")
    return moment


def time_text(seconds: float) -> str:
    """Write a time as RFC 3339, in UTC, to the microsecond: the nearest one of the years 1 to 9999."""
    try:
        moment = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        moment = _FIRST if seconds < 0 else _LAST
    return moment.isoformat().replace("+00:00", "Z")


def _payload(row: int, value: object, max_bytes: int) -> bytes:
    if value is None:
        return b""
    if not isinstance(value, dict):
        raise RecordFieldError(f"row {row} has the payload {_shown(value)}; send a JSON object", row=row)
    try:
        payload = msgspec.json.encode(value)
        changed = msgspec.json.decode(payload) != value
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise RecordFieldError(
            f"row {row} has a payload that JSON cannot hold ({str(error)[:80]}); send a JSON object", row=row
        ) from None
    if changed and (what := not_in_json(value)) is not None:
        raise RecordFieldError(
            f"row {row} has a payload with {what}, which JSON cannot hold; send null or text", row=row
        )
    if len(payload) > max_bytes:
        raise RecordFieldError(
            f"row {row} has a payload of {len(payload)} bytes as JSON, the limit is {max_bytes} (setting "
            "max_payload_bytes); send a shorter one",
            row=row,
        )
    return payload


def not_in_json(payload: object) -> str | None:
    """What a decoded payload holds that JSON has not, and that the encoder writes as something else. None for nothing.

    Moments, which it writes as RFC 3339, are accepted.
    """
    rest = [payload]
    while rest:
        value = rest.pop()
        if isinstance(value, dict):
            if not all(isinstance(name, str) for name in value):
                return "a name that is not text"
            rest += value.values()
        elif isinstance(value, list):
            rest += value
        elif isinstance(value, bytes):
            return "bytes"
        elif isinstance(value, float) and not math.isfinite(value):
            return "NaN or an infinity"
    return None


def _weights(weights: Sequence[Any] | None) -> npt.NDArray[np.float64] | None:
    """The weights, 1 where none is given. None where each is 1."""
    if weights is None:
        return None
    for row, value in enumerate(weights):
        number = isinstance(value, float | int) and not isinstance(value, bool)
        if value is not None and not (number and LEAST_WEIGHT <= value <= MOST_WEIGHT):
            raise RecordFieldError(
                f"row {row} has the weight {_shown(value)}; send a number above 0, from {LEAST_WEIGHT:g} to "
                f"{MOST_WEIGHT:g}",
                row=row,
            )
    found = np.array([1.0 if value is None else value for value in weights], np.float64)
    return None if bool((found == 1.0).all()) else found


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


# -- bytes in the log


class _Packed(msgspec.Struct, frozen=True, omit_defaults=True):
    """Fields as the log holds them, in MessagePack. Lengths and numbers are little-endian.

    Texts are read without a copy, so they keep the payload of the log in memory. Numbers are copied, to be aligned.
    """

    at: float
    kl: memoryview | None = None
    """Length of each key, u2."""
    k: memoryview | None = None
    """All keys, one after another."""
    tm: bytes | None = None
    """Times, f8."""
    tt: bytes | None = None
    """Whether each time was text, one byte."""
    pl: memoryview | None = None
    """Length of each payload, u4."""
    p: memoryview | None = None
    w: bytes | None = None
    """Weights, f8."""


_DECODER = msgspec.msgpack.Decoder(_Packed)


def pack_fields(fields: RecordFields) -> bytes:
    """Write the fields for the log."""
    keys, payloads = fields.keys, fields.payloads
    packed = _Packed(
        fields.arrived,
        None if keys is None else keys.lengths.astype("<u2").data,
        None if keys is None else keys.data.data,
        None if fields.times is None else fields.times.astype("<f8").tobytes(),
        None if fields.time_is_text is None else fields.time_is_text.tobytes(),
        None if payloads is None else payloads.lengths.astype("<u4").data,
        None if payloads is None else payloads.data.data,
        None if fields.weights is None else fields.weights.astype("<f8").tobytes(),
    )
    return msgspec.msgpack.encode(packed)


def unpack_fields(data: bytes | memoryview) -> RecordFields:
    """Inverse of `pack_fields`. Raises MalformedBodyError."""
    try:
        packed = _DECODER.decode(data)
        return RecordFields(
            packed.at,
            _texts(packed.k, packed.kl, "<u2"),
            None if packed.tm is None else np.frombuffer(packed.tm, "<f8"),
            None if packed.tt is None else np.frombuffer(packed.tt, np.bool_),
            _texts(packed.p, packed.pl, "<u4"),
            None if packed.w is None else np.frombuffer(packed.w, "<f8"),
        )
    except (msgspec.DecodeError, ValueError) as error:
        raise MalformedBodyError(f"the record fields of a batch are not whole: {str(error)[:200]}") from None


def packed_weights(data: bytes | memoryview) -> npt.NDArray[np.float64] | None:
    """The weights in packed fields. None where each point counts once. Raises MalformedBodyError."""
    try:
        packed = _DECODER.decode(data)
        return None if packed.w is None else np.frombuffer(packed.w, "<f8")
    except (msgspec.DecodeError, ValueError) as error:
        raise MalformedBodyError(f"the record fields of a batch are not whole: {str(error)[:200]}") from None


def packed_times(data: bytes | memoryview) -> tuple[npt.NDArray[np.float64] | None, float | None]:
    """The times in packed fields, None without them, and when the batch was accepted, None where they do not say.

    Raises MalformedBodyError.
    """
    try:
        packed = _DECODER.decode(data)
        return None if packed.tm is None else np.frombuffer(packed.tm, "<f8"), packed.at or None
    except (msgspec.DecodeError, ValueError) as error:
        raise MalformedBodyError(f"the record fields of a batch are not whole: {str(error)[:200]}") from None


def _texts(data: memoryview | None, lengths: memoryview | None, dtype: str) -> Texts | None:
    if data is None or lengths is None:
        return None
    found = np.frombuffer(lengths, dtype)
    if found.size and bool((found == found[0]).all()):  # as most keys have one length, which moves once
        found = np.broadcast_to(np.int64(found[0]), len(found))
    if int(found.sum(dtype=np.int64)) != len(data):
        raise ValueError("a list is cut short")
    return Texts(np.frombuffer(data, np.uint8), found)
