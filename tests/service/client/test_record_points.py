"""Points with keys, times, payloads and weights: what the server reads is what was given, batch by batch."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import httpx
import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fake_shoal import Deliver, FakeShoal
from scipy import sparse
from test_bodies import LIMITS, cut

from shoal_service.client import BadPointsError, Client, Records
from shoal_service.client.bodies import Format, body_of
from shoal_service.client.points import Batcher
from shoal_service.errors import RequestError
from shoal_service.wire import RecordFields, decode

X = np.random.default_rng(3).normal(size=(25, 3))
KEYS = [f"k{i}" if i % 4 else None for i in range(25)]
TIMES: list[Any] = [1000.25 * i if i % 3 else None for i in range(25)]
PAYLOADS = [{"n": i, "deep": [{"x": None}]} if i % 5 else None for i in range(25)]


def sent(batch: Any, kind: Format) -> Any:
    body = body_of(batch, kind)
    return decode(body.content, body.content_type, LIMITS, n_features=batch.x.shape[1])


@pytest.mark.parametrize("kind", ["msgpack", "ndjson"])
@pytest.mark.parametrize("batch_size", [1, 7, 25, 100])
@pytest.mark.parametrize("pieces", [False, True])
@pytest.mark.parametrize("kept_sparse", [False, True])
def test_fields_stay_with_their_points(kind: Format, batch_size: int, pieces: bool, kept_sparse: bool) -> None:
    x = sparse.csr_array(X) if kept_sparse else X
    if pieces:  # the middle table has no keys, and a generator may fill lists as it likes
        cuts = [slice(0, 9), slice(9, 16), slice(16, 25)]
        points: Any = [
            Records(x[rows], None if rows.start == 9 else KEYS[rows], TIMES[rows], PAYLOADS[rows]) for rows in cuts
        ]
    else:
        points = Records(x, KEYS, TIMES, PAYLOADS)
    got = [sent(batch, kind) for batch in cut(points, batch_size)]
    fields = [(p.fields or RecordFields(0.0, None, None, None, None), p.n_points) for p in got]
    keys = [key for own, n in fields for key in (own.keys or [b""] * n)]
    expected = [None if pieces and 9 <= i < 16 else key for i, key in enumerate(KEYS)]
    assert keys == [(key or "").encode() for key in expected]
    times = np.concatenate([np.full(n, np.nan) if own.times is None else own.times for own, n in fields])
    np.testing.assert_array_equal(times, [np.nan if time is None else time for time in TIMES])
    payloads = [payload for own, n in fields for payload in (own.payloads or [b""] * n)]
    assert [len(payload) > 0 for payload in payloads] == [payload is not None for payload in PAYLOADS]
    assert b'{"n":24,"deep":[{"x":null}]}' in payloads


def test_moments_may_be_datetimes() -> None:
    zone = timezone(timedelta(hours=5, minutes=30))
    times: list[Any] = [datetime(2026, 1, 31, 12, tzinfo=UTC), datetime(2026, 1, 31, 17, 30, tzinfo=zone)]
    arrays = np.array(["2026-01-31T12:00:00", "2026-01-31T12:00:00.25"], "M8[ms]"), np.array(["NaT", "NaT"], "M8[s]")
    expected = 1769860800.0
    column = pd.Series(pd.to_datetime(times, utc=True)).dt.tz_convert("America/New_York")
    for given, seconds in (
        (times, [expected] * 2),
        (column, [expected] * 2),
        (column.where([True, False]), [expected, np.nan]),
        (column.dt.tz_convert(None), [expected] * 2),
        (pa.chunked_array([pa.array(times)]), [expected] * 2),
        (arrays[0], [expected, expected + 0.25]),
        (arrays[1], [np.nan] * 2),
    ):
        fields = sent(cut(Records(X[:2], times=given), 2)[0], "msgpack").fields
        np.testing.assert_array_equal(fields.times, seconds)
    assert fields.time_is_text is not None


def test_a_missing_value_in_a_column_of_pandas_is_none() -> None:
    for keys in (pd.Series(["a", None]), pd.Series(["a", pd.NA], dtype="string")):
        fields = sent(
            cut(Records(X[:2], keys, [1.5, 2.5], weights=pd.array([2, None], dtype="Int64")), 2)[0], "msgpack"
        )
        assert list(fields.fields.keys) == [b"a", b""]
        assert fields.fields.weights.tolist() == [2.0, 1.0]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"keys": ["a"]}, "1 value for 25 points"),
        ({"keys": "a" * 25}, "keys is a str"),
        ({"payloads": {"a": 1}}, "payloads is a dict"),
        ({"times": [datetime(2026, 1, 31)] * 25}, "without a zone"),
        ({"payloads": [{"a": object()}] * 25}, "cannot be sent"),
    ],
)
def test_fields_that_do_not_fit_are_refused_before_anything_is_sent(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(BadPointsError, match=says):
        body_of(cut(Records(X, **fields), 25)[0], "msgpack")


@pytest.mark.parametrize("kind", ["msgpack", "ndjson"])
@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"payloads": [None, {"deep": [{"x": float("nan")}]}]}, "NaN"),
        ({"payloads": [None, {"x": b"abc"}]}, "bytes"),
        ({"payloads": [None, {7: "x"}]}, "a name that is not text"),
        ({"weights": [1.0, float("nan")]}, "weight"),
        ({"times": [1.0, float("nan")]}, "time"),
        ({"keys": [None, b"abc"]}, "key"),
    ],
)
def test_what_json_has_not_is_refused_in_every_format(kind: Format, fields: dict[str, Any], says: str) -> None:
    """Lines of JSON carried NaN as null, so that a weight counted as 1, and bytes as text."""
    with pytest.raises((BadPointsError, RequestError), match=says) as refused:
        sent(cut(Records(X[:2], **fields), 2)[0], kind)
    assert refused.value.row == 1


def test_keys_need_a_table(fake: FakeShoal) -> None:
    with Client(transport=httpx.MockTransport(fake.handle)) as shoal:
        with pytest.raises(BadPointsError, match="must be a table"):
            shoal.ingest((row for row in X), keys=KEYS)
        with pytest.raises(BadPointsError, match="'arrow' does not carry"):
            shoal.ingest(X, keys=KEYS, format="arrow")


def test_the_service_finds_a_point_by_the_key_that_the_client_sent(real_shoal: Deliver) -> None:
    with Client(stream="keyed-by-client", transport=httpx.MockTransport(real_shoal)) as shoal:
        shoal.create_stream("keyed-by-client", n_features=3)
        shoal.ingest(X, keys=KEYS, times=TIMES, payloads=PAYLOADS, wait="applied", batch_size=10)
    reply = real_shoal(httpx.Request("GET", "http://127.0.0.1/streams/keyed-by-client/records/k17")).json()
    assert (reply["key"], reply["log_offset"], reply["time"], reply["payload"]) == ("k17", 18, TIMES[17], PAYLOADS[17])


def test_a_missing_value_is_sent_if_it_is_asked_for() -> None:
    x = X[:3].copy()
    x[1, 2] = np.nan
    with pytest.raises(BadPointsError, match="row 1"):
        cut(x, 3)
    batcher = Batcher(3, holes=True)
    (batch,) = batcher.push(x)
    holes = msgspec.structs.replace(LIMITS, holes=True)
    for kind in ("msgpack", "ndjson", "arrow"):
        body = body_of(batch, kind)  # type: ignore[arg-type]
        np.testing.assert_array_equal(decode(body.content, body.content_type, holes).x, x)
    x[0, 0] = np.inf
    with pytest.raises(BadPointsError, match="row 0"):
        list(Batcher(3, holes=True).push(x))
