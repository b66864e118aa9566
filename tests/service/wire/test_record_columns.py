"""Columns of Arrow bodies that hold keys, times, payloads and weights, and are no features."""

import json
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from wire_bodies import ARROW, JSON, LIMITS, NDJSON, arrow_body, same

from shoal_service.errors import ParameterError, RecordFieldError
from shoal_service.wire import RecordColumns, decode, fields_from_log, request_digest, to_log

X = np.random.default_rng(5).normal(size=(4, 2))
COLUMNS = RecordColumns("id", "when", ("host", "n"))
MOMENT = datetime(2026, 1, 31, 12, 0, 0, 250_000, UTC)


def table(**columns: Any) -> bytes:
    return arrow_body(pa.record_batch(list(columns.values()), list(columns)))


def as_arrow(**changes: Any) -> bytes:
    columns: dict[str, Any] = {
        "id": pa.array(["a", None, "c/ü", "d"]),
        "x": pa.array(X[:, 0]),
        "when": pa.array([MOMENT, None, MOMENT, MOMENT], pa.timestamp("ns", "UTC")),
        "host": pa.array(["web", "007", None, ""]),
        "y": pa.array(X[:, 1]),
        "n": pa.array([7, None, -1, 0]),
    }
    return table(**{name: value for name, value in (columns | changes).items() if value is not None})


def test_named_columns_are_fields_and_the_others_features() -> None:
    points = decode(as_arrow(), ARROW, LIMITS, columns=COLUMNS)
    same(points.x, X)
    fields = fields_from_log(to_log(points))
    assert fields is not None
    assert list(fields.keys) == [b"a", b"", "c/ü".encode(), b"d"]
    assert fields.times is not None
    assert fields.time_is_text is not None
    np.testing.assert_array_equal(fields.times, [MOMENT.timestamp(), np.nan, MOMENT.timestamp(), MOMENT.timestamp()])
    assert fields.time_is_text[[0, 2, 3]].all()
    assert list(fields.payloads) == [
        b'{"host":"web","n":7}', b'{"host":"007","n":null}', b'{"host":null,"n":-1}', b'{"host":"","n":0}',
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("times", "seconds", "text"),
    [
        (pa.array([MOMENT] * 4, pa.timestamp("us", "Asia/Kolkata")), MOMENT.timestamp(), True),
        (pa.array([MOMENT.replace(tzinfo=None)] * 4, pa.timestamp("ms")), MOMENT.timestamp(), True),
        (pa.array([date(2026, 1, 31)] * 4, pa.date32()), MOMENT.timestamp() // 86400 * 86400, True),
        (pa.array([MOMENT.astimezone(timezone(timedelta(hours=-3))).isoformat()] * 4), MOMENT.timestamp(), True),
        (pa.array([1.5] * 4, pa.float32()), 1.5, False),
        (pa.array([-3] * 4, pa.int64()), -3.0, False),
    ],
)
def test_times_are_timestamps_text_or_seconds(times: Any, seconds: float, text: bool) -> None:
    fields = decode(as_arrow(when=times), ARROW, LIMITS, columns=COLUMNS).fields
    assert fields is not None
    np.testing.assert_array_equal(fields.times, [seconds] * 4)
    np.testing.assert_array_equal(fields.time_is_text, [text] * 4)


@pytest.mark.parametrize(
    "times",
    [
        pa.array([0, None, 18_446_744_073_709, 0], pa.timestamp("s")),  # 2^64 microseconds: nearly 0 after an overflow
        pa.array([0, None, -(2**63) + 1, 0], pa.timestamp("ms")),
        pa.array([0, None, 253_402_300_800_000_000, 0], pa.timestamp("us", "UTC")),
        pa.array([0, None, -62_135_596_801, 0], pa.timestamp("s")),
        pa.array([0, None, 2**31 - 1, 0], pa.date32()),
    ],
)
def test_timestamps_outside_of_the_years_1_to_9999_are_refused_by_their_row(times: Any) -> None:
    with pytest.raises(RecordFieldError, match=r"row 2 has the time .* years 1 to 9999") as caught:
        decode(as_arrow(when=times), ARROW, LIMITS, columns=COLUMNS)
    assert caught.value.row == 2


def test_a_large_timestamp_of_a_payload_is_no_other_time() -> None:
    times = pa.array([18_446_744_073_709] * 4, pa.timestamp("s"))  # as microseconds, nearly 0 after an overflow
    with pytest.raises(RecordFieldError, match="column 'host' cannot be read"):
        decode(as_arrow(host=times), ARROW, LIMITS, columns=COLUMNS)


def test_nan_in_a_column_of_a_payload_is_null() -> None:
    points = decode(as_arrow(n=pa.array([1.5, np.nan, None, 0.0])), ARROW, LIMITS, columns=COLUMNS)
    assert [json.loads(payload)["n"] for payload in points.fields.payloads] == [1.5, None, None, 0.0]


def test_integers_are_keys_by_their_digits_and_lists_of_features_stay() -> None:
    lists = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 2)
    body = table(x=lists, id=pa.array([1, 2, 2**63, 4], pa.uint64()))
    points = decode(body, ARROW, LIMITS, columns=RecordColumns("id"))
    same(points.x, X)
    assert points.fields is not None
    assert list(points.fields.keys) == [b"1", b"2", b"9223372036854775808", b"4"]


def test_batches_of_a_stream_are_joined() -> None:
    pieces = [pa.record_batch([["a", "b"], [1.0, 2.0]], ["id", "x"]), pa.record_batch([["c"], [3.0]], ["id", "x"])]
    points = decode(arrow_body(*pieces), ARROW, LIMITS, columns=RecordColumns("id"))
    same(points.x, np.array([[1.0], [2.0], [3.0]]))
    assert points.fields is not None
    assert list(points.fields.keys) == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("changes", "row", "says"),
    [
        ({"id": pa.array([1.5, 2.5, 3.5, 4.5])}, 0, "key 1.5, which is not text"),
        ({"id": pa.array(["a", "b", "x" * 257, "d"])}, 2, "257 bytes"),
        ({"id": pa.array([["a"]] * 4)}, None, "'id' holds list"),
        ({"when": pa.array(["2026-01-31T12:00:00Z", "yesterday", None, None])}, 1, "not RFC 3339"),
        ({"when": pa.array([None, None, None, True])}, 3, "time True"),
        ({"when": pa.array([0, 2**62, 0, 0], pa.timestamp("us"))}, 1, "years 1 to 9999"),
        ({"n": pa.array([[1]] * 4)}, None, "'n' holds list"),
        ({"n": pa.array(["x" * 5000] * 4)}, 0, "payload of 50"),
        ({"n": pa.FixedSizeListArray.from_arrays(pa.nulls(4 << 20), 1 << 20)}, None, "'n' holds fixed_size_list"),
    ],
)
def test_a_bad_field_of_arrow_names_its_row(changes: dict[str, Any], row: int | None, says: str) -> None:
    with pytest.raises(RecordFieldError, match=says) as caught:
        decode(as_arrow(**changes), ARROW, LIMITS, columns=COLUMNS)
    assert caught.value.row == row


def test_two_columns_of_one_name_are_no_key() -> None:
    body = arrow_body(pa.record_batch([["a"], ["b"], [1.0]], ["id", "id", "x"]))
    with pytest.raises(ParameterError, match="2 columns are called 'id'"):
        decode(body, ARROW, LIMITS, columns=RecordColumns("id"))


def test_a_column_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(ParameterError, match="no column 'ident'; the columns are id, x, when, host, y, n"):
        decode(as_arrow(), ARROW, LIMITS, columns=RecordColumns("ident", "when"))


def test_formats_without_columns_refuse_to_name_them() -> None:
    for body, media in ((b'{"points": [[1.0]]}', JSON), (b"[1.0]\n", NDJSON)):
        with pytest.raises(ParameterError, match="send keys, times"):
            decode(body, media, LIMITS, columns=RecordColumns("id"))


def test_a_retry_with_other_columns_is_another_request() -> None:
    bare = request_digest(b"x", ARROW, None)
    assert bare == request_digest(b"x", ARROW, None, RecordColumns())
    digests = {request_digest(b"x", ARROW, None, RecordColumns(name)) for name in ("a", "b")}
    assert len(digests | {bare, request_digest(b"x", ARROW, None, RecordColumns(None, "a"))}) == 4


def test_dictionaries_are_read_as_their_values() -> None:
    """pandas writes a column of categories so, of texts and of numbers."""
    names = ("id", "x", "when", "n", "host")
    days = np.array(["2026-01-31", "2026-01-31", "2026-02-01"], "M8[ns]")
    plain: dict[str, Any] = {"id": ["a", "b", "a"], "x": [1.5, 2.5, 1.5], "when": days, "n": [2, 2, None]}
    plain["host"] = ["h", None, "h"]
    columns = RecordColumns("id", "when", ("n", "host"))

    def logged(arrays: list[Any]) -> bytes:
        points = decode(arrow_body(pa.record_batch(arrays, names)), ARROW, LIMITS, columns=columns)
        np.testing.assert_array_equal(points.x, np.array([[1.5], [2.5], [1.5]]))
        assert points.names == ("x",)
        return to_log(points)

    arrays = [pa.array(plain[name]) for name in names]
    assert logged([array.dictionary_encode() for array in arrays]) == logged(arrays)
