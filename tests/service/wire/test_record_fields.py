"""The fields of records, in every format that can carry them: the same points and fields, or the first bad row."""

import json
import math
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
import pytest
from wire_bodies import LIMITS, MSGPACK

from shoal_service.errors import LimitError, MalformedBodyError, RecordFieldError
from shoal_service.wire import (
    Points,
    RecordFields,
    decode,
    fields_from_log,
    time_text,
    to_log,
    weights_from_log,
)
from shoal_service.wire.decoder.frames import DecodeRequest
from shoal_service.wire.decoder.process import DecoderProcess
from shoal_service.wire.record_fields import checked_fields

JSON, NDJSON = "application/json", "application/x-ndjson"
X = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.5]]
KEYS = ["a", None, "ключ"]
TIMES = [1.5, "1970-01-01T00:00:02Z", None]
PAYLOADS = [{"a": [1, {"b": None}]}, None, {}]


def as_json(x: Any = X, **lists: Any) -> tuple[bytes, str]:
    return json.dumps({**lists, "points": x}).encode(), JSON


def as_ndjson(x: Any = X, **lists: Any) -> tuple[bytes, str]:
    lines = []
    for i, row in enumerate(x):
        fields = {name[:-1]: values[i] for name, values in lists.items() if values[i] is not None}
        lines.append(json.dumps({**fields, "point": row} if fields else row))
    return "\n\n".join(lines).encode(), NDJSON


def as_msgpack(x: Any = X, **lists: Any) -> tuple[bytes, str]:
    names = {"keys": "k", "times": "tm", "payloads": "p", "weights": "w"}
    data = np.asarray(x, "<f8").tobytes()
    body = {"d": len(x[0]), "t": "f8", "x": data, **{names[name]: values for name, values in lists.items()}}
    return msgspec.msgpack.encode(body), MSGPACK


WRITERS = {"json": as_json, "ndjson": as_ndjson, "msgpack": as_msgpack}


def check(points: Points) -> None:
    np.testing.assert_array_equal(points.x, X)
    fields = points.fields
    assert isinstance(fields, RecordFields)
    assert list(fields.keys) == [b"a", b"", "ключ".encode()]
    np.testing.assert_array_equal(fields.times, [1.5, 2.0, math.nan])
    assert fields.time_is_text.tolist() == [False, True, False]
    assert list(fields.payloads) == [b'{"a":[1,{"b":null}]}', b"", b"{}"]


@pytest.mark.parametrize("kind", WRITERS)
def test_a_batch_carries_its_fields(kind: str) -> None:
    body, content_type = WRITERS[kind](keys=KEYS, times=TIMES, payloads=PAYLOADS, weights=[1, 1.0, None])
    check(decode(body, content_type, LIMITS))


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("given", ["keys", "times", "payloads"])
def test_each_list_may_come_alone(kind: str, given: str) -> None:
    lists = {"keys": KEYS, "times": TIMES, "payloads": PAYLOADS}
    body, content_type = WRITERS[kind](**{given: lists[given]})
    fields = decode(body, content_type, LIMITS).fields
    assert fields is not None
    held = {"keys": fields.keys, "times": fields.times, "payloads": fields.payloads}
    # A line of NDJSON has all fields or none, so its lists are there, and empty.
    assert held.pop(given) is not None
    assert all(values is None or not any(v == v and v for v in values) for values in held.values())


@pytest.mark.parametrize("kind", WRITERS)
def test_a_bad_field_names_its_row(kind: str) -> None:
    for lists in ({"keys": ["a", "b", 7]}, {"times": [1, 2, "3"]}, {"payloads": [{}, {}, 5]}, {"weights": [1, 1, -1]}):
        body, content_type = WRITERS[kind](**lists)
        with pytest.raises(RecordFieldError, match="row 2 ") as caught:
            decode(body, content_type, LIMITS)
        assert caught.value.row == 2


@pytest.mark.parametrize("kind", ["json", "ndjson"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("given", ["times", "weights", "payloads"])
def test_nan_in_a_field_names_its_row(kind: str, given: str, value: float) -> None:
    values: list[Any] = [1, 2, value]
    body, content_type = WRITERS[kind](**{given: [{"a": [v]} for v in values] if given == "payloads" else values})
    with pytest.raises(RecordFieldError, match="row 2 ") as caught:
        decode(body, content_type, LIMITS)
    assert caught.value.row == 2


def test_a_misspelt_field_gets_its_nearest_name() -> None:
    with pytest.raises(MalformedBodyError, match="unknown field 'key'; did you mean 'keys'\\?"):
        decode(b'{"points": [[1, 2]], "key": ["a"]}', JSON, LIMITS)
    with pytest.raises(RecordFieldError, match="row 0 has the field 'wieght'; did you mean 'weight'\\?"):
        decode(b'{"point": [1, 2], "wieght": 2}', NDJSON, LIMITS)


@pytest.mark.parametrize("kind", ["json", "msgpack"])
def test_a_list_of_another_length_names_the_first_row_without_a_partner(kind: str) -> None:
    for keys, row in ((["a"], 1), (["a"] * 5, 3), ([], 0)):
        body, content_type = WRITERS[kind](keys=keys)
        with pytest.raises(RecordFieldError, match="for 3 points") as caught:
            decode(body, content_type, LIMITS)
        assert caught.value.row == row


def test_sparse_points_carry_fields_too() -> None:
    rows = [{"indices": [0, 3], "values": [1, 2]}, {"indices": [1], "values": [5]}]
    bodies = [
        (json.dumps({"keys": ["a", "b"], "points": rows}), JSON),
        (json.dumps({"points": rows, "keys": ["a", "b"]}), JSON),
        ("\n".join(json.dumps({"key": key, "point": row}) for key, row in zip("ab", rows, strict=True)), NDJSON),
    ]
    for body, content_type in bodies:
        points = decode(body.encode(), content_type, LIMITS, n_features=4)
        np.testing.assert_array_equal(points.x.toarray(), [[1, 0, 0, 2], [0, 5, 0, 0]])
        assert list(points.fields.keys) == [b"a", b"b"]


def test_times_and_weights_may_be_arrays_in_messagepack() -> None:
    column = np.array([1.5, np.nan, -2.0]).astype("<f8").tobytes()
    points = decode(*as_msgpack(times=column, weights=np.ones(3).astype("<f8").tobytes()), LIMITS)
    np.testing.assert_array_equal(points.fields.times, [1.5, np.nan, -2.0])
    assert points.fields.weights is None
    weighted = decode(*as_msgpack(weights=np.array([2.0, np.nan, 0.5]).astype("<f8").tobytes()), LIMITS)
    np.testing.assert_array_equal(weighted.fields.weights, [2.0, 1.0, 0.5])
    with pytest.raises(MalformedBodyError, match="whole number"):
        decode(*as_msgpack(times=b"123"), LIMITS)


def test_a_moment_in_a_payload_of_messagepack_becomes_text() -> None:
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    points = decode(*as_msgpack(payloads=[None, {"at": [moment]}, None]), LIMITS)
    assert list(points.fields.payloads) == [b"", b'{"at":["2026-01-31T12:00:00Z"]}', b""]


BAD_LINES = {
    '{"point": [1, 2], "colour": "red"}': (RecordFieldError, "colour"),
    '{"point": {"cpu": 0.3, "mem": 0.7}, "key": "a"}': (RecordFieldError, "named features"),
    '{"point": [1, "x"], "key": "a"}': (Exception, "row 1"),
    '{"point": [1], "key": "a"}': (Exception, "row 1"),
    '{"point": [1, 2], "key": "a"': (MalformedBodyError, "row 1"),
    '{"key": "a"}': (Exception, "row 1"),
}


@pytest.mark.parametrize("line", BAD_LINES)
def test_a_bad_line_among_records_is_named(line: str) -> None:
    body = '{"point": [1, 2], "key": "z"}\n' + line
    error, words = BAD_LINES[line]
    with pytest.raises(error, match=words) as caught:
        decode(body.encode(), NDJSON, LIMITS)
    assert caught.value.row == 1


def test_fields_come_through_the_decoding_process() -> None:
    body, content_type = as_json(keys=KEYS, times=TIMES, payloads=PAYLOADS)
    child = DecoderProcess()
    try:
        check(child.decode(body, DecodeRequest(content_type, None, LIMITS, len(body))))
        assert child.decode(body, DecodeRequest(content_type, None, LIMITS, len(body))).names is None
        for lists in ({}, {"keys": KEYS}):  # in the format of the log, and as a plain table
            named, _ = as_json(feature_names=["cpu", "mem"], **lists)
            assert child.decode(named, DecodeRequest(content_type, None, LIMITS, len(named))).names == ("cpu", "mem")
        body, _ = as_json(keys=["a", "b", 7])
        with pytest.raises(RecordFieldError) as caught:
            child.decode(body, DecodeRequest(content_type, None, LIMITS, len(body)))
        assert caught.value.row == 2
    finally:
        child.end()
        child.discard()


def test_a_payload_is_limited_by_the_setting() -> None:
    fields = checked_fields(1, payloads=[{"x": "y" * 10}], max_payload_bytes=20)
    assert list(fields.payloads) == [b'{"x":"yyyyyyyyyy"}']
    with pytest.raises(RecordFieldError, match="limit is 17"):
        checked_fields(1, payloads=[{"x": "y" * 10}], max_payload_bytes=17)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0.0),
        ("2000-02-29T23:59:59.5+01:00", 951865199.5),
        ("0001-01-01T00:00:00Z", -62135596800.0),
    ],
)
def test_a_time_is_read_and_written_as_its_instant(text: str, seconds: float) -> None:
    assert checked_fields(1, times=[text]).times.tolist() == [seconds]
    assert checked_fields(1, times=[time_text(seconds)]).times.tolist() == [seconds]


def test_a_leap_second_is_the_first_second_after_it() -> None:
    """An example of RFC 3339 is "1990-12-31T15:59:60-08:00". Seconds since 1970 do not count it."""
    texts = ["1990-12-31T15:59:60-08:00", "2016-12-31T23:59:60.5Z"]
    assert checked_fields(2, times=texts).times.tolist() == [662688000.0, 1483228800.5]
    with pytest.raises(RecordFieldError, match="is not RFC 3339"):
        checked_fields(1, times=["2016-12-30T23:59:60Z"])


def test_the_last_moment_of_the_year_9999_can_be_read() -> None:
    """A common way to write "never". As a float it rounds up to the year 10000, which has no text."""
    for text in ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999999Z"):
        (seconds,) = checked_fields(1, times=[text]).times.tolist()
        assert time_text(seconds) == "9999-12-31T23:59:59.999999Z"
    assert time_text(-1e11) == "0001-01-01T00:00:00Z"  # as a log of an earlier version may hold


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-00:01"])
def test_a_time_whose_year_in_utc_has_no_text_is_refused(text: str) -> None:
    with pytest.raises(RecordFieldError, match=r"row 1 has the time .* years 1 to 9999 in UTC") as caught:
        checked_fields(2, times=[None, text])
    assert caught.value.row == 1


def test_a_body_with_too_many_rows_is_refused_before_its_fields_are_read() -> None:
    with pytest.raises(LimitError):
        decode(*as_json([[1.0]] * (LIMITS.max_rows + 1), keys=[7]), LIMITS)


@pytest.mark.parametrize("kind", WRITERS)
def test_weights_go_into_the_log_and_ones_do_not(kind: str) -> None:
    body, content_type = WRITERS[kind](weights=[2, None, 1e-9])
    points = decode(body, content_type, LIMITS)
    assert points.fields.keys is None
    payload = to_log(points)
    np.testing.assert_array_equal(weights_from_log(payload), [2.0, 1.0, 1e-9])
    np.testing.assert_array_equal(fields_from_log(payload).weights, [2.0, 1.0, 1e-9])
    body, content_type = WRITERS[kind](weights=[1, None, 1.0])
    assert weights_from_log(to_log(decode(body, content_type, LIMITS))) is None
    assert weights_from_log(to_log(decode(body, content_type, LIMITS)._replace(fields=None))) is None


@pytest.mark.parametrize("weight", [0, -1, 1e10, 1e-10, True, "2", [1]])
@pytest.mark.parametrize("kind", WRITERS)
def test_a_weight_out_of_range_names_its_row(kind: str, weight: object) -> None:
    body, content_type = WRITERS[kind](weights=[1, 2, weight])
    with pytest.raises(RecordFieldError, match="row 2 has the weight") as caught:
        decode(body, content_type, LIMITS)
    assert caught.value.row == 2
