"""Missing values in every format: NaN where the stream takes them, or the first row that has one."""

import json
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from wire_bodies import ARROW, JSON, LIMITS, MSGPACK, NDJSON, NPY, arrow_body, in_columns, msgpack_body, npy_body

from shoal.errors import NotFiniteError, NotNumericError, ShapeError
from shoal_service.errors import FeatureNamesError
from shoal_service.wire import decode, from_log, to_log
from shoal_service.wire.decoder.frames import DecodeRequest
from shoal_service.wire.decoder.process import DecoderProcess

HOLES = msgspec.structs.replace(LIMITS, holes=True)
X = np.array([[1.0, np.nan], [np.nan, 2.5], [3.0, 4.0]])
ROWS = [[1.0, None], [None, 2.5], [3, 4.0]]
LISTS = pa.FixedSizeListArray.from_arrays(pa.array([1.0, None, None, 2.5, 3.0, 4.0]), 2)
SCHEMA = pa.schema([("c0", pa.float64()), ("c1", pa.float64())])
BATCHES = [pa.record_batch(part, schema=SCHEMA) for part in ([[1.0], [None]], [[None, 3.0], [2.5, 4.0]])]
BODIES: dict[str, tuple[bytes, str]] = {
    "json": (json.dumps({"points": ROWS, "keys": ["a", None, "c"]}).encode(), JSON),
    "ndjson": ("\n".join(json.dumps(row) for row in ROWS).encode(), NDJSON),
    "records": ("\n".join(json.dumps({"point": row, "key": "k"}) for row in ROWS).encode(), NDJSON),
    "named json": (json.dumps({"points": [{"x": x, "y": y} for x, y in ROWS]}).encode(), JSON),
    "named rows": ("\n".join(json.dumps({"x": x, "y": y}) for x, y in ROWS).encode(), NDJSON),
    "named records": ("\n".join(json.dumps({"point": {"x": x, "y": y}}) for x, y in ROWS).encode(), NDJSON),
    "f8": (msgpack_body(X), MSGPACK),
    "f4": (msgpack_body(X.astype("f4")), MSGPACK),
    "npy": (npy_body(X), NPY),
    "arrow columns": (arrow_body(in_columns([1.0, None, 3.0], [None, 2.5, np.float64(4.0)])), ARROW),
    "arrow NaN": (arrow_body(in_columns(X[:, 0], X[:, 1])), ARROW),
    "arrow integers": (arrow_body(in_columns([1, None, 3], [None, 2.5, 4.0])), ARROW),
    "arrow lists": (arrow_body(pa.record_batch([LISTS], ["x"])), ARROW),
    "arrow batches": (arrow_body(*BATCHES), ARROW),
}


@pytest.mark.parametrize("name", BODIES)
def test_missing_values_are_nan_where_they_may_be(name: str) -> None:
    body, media = BODIES[name]
    points = decode(body, media, HOLES)
    np.testing.assert_array_equal(np.asarray(points.x, float), X)
    np.testing.assert_array_equal(from_log(to_log(points)), X)
    with pytest.raises((NotFiniteError, NotNumericError), match=r"row 0 .*(column 1|feature '(y|c1)')") as caught:
        decode(body, media, LIMITS)
    assert caught.value.row == 0


def test_a_child_process_reads_them_too() -> None:
    body, media = BODIES["json"]
    child = DecoderProcess()
    try:
        points = child.decode(body, DecodeRequest(media, None, HOLES, len(body)))
    finally:
        child.end()
        child.discard()
    np.testing.assert_array_equal(points.x, X)


@pytest.mark.parametrize(
    ("rows", "error", "row"),
    [
        ([[1.0, None], [None, None]], NotFiniteError, 1),
        ([[1.0, None], [None, True]], NotNumericError, 1),
        ([[1.0, None], [None, "2"]], NotNumericError, 1),
        ([[1.0, None], [None]], ShapeError, 1),
        ([[1.0, None], None], ShapeError, 1),
        ([[1.0, None], [None, 1e151]], NotFiniteError, 1),
    ],
)
def test_other_faults_stay_faults(rows: list[Any], error: type[Exception], row: int) -> None:
    for body, media in (
        (json.dumps({"points": rows}).encode(), JSON),
        ("\n".join(map(json.dumps, rows)).encode(), NDJSON),
    ):
        with pytest.raises(error) as caught:
            decode(body, media, HOLES)
        assert getattr(caught.value, "row", None) == row


def test_a_name_that_is_left_out_is_no_missing_value() -> None:
    rows = [{"x": 1.0, "y": None}, {"x": 1.0}]
    for body, media in (
        (json.dumps({"points": rows}).encode(), JSON),
        ("\n".join(json.dumps({"point": row}) for row in rows).encode(), NDJSON),
        ("\n".join(json.dumps(row) for row in rows).encode(), NDJSON),
    ):
        with pytest.raises(FeatureNamesError, match="row 1 has no feature 'y'"):
            decode(body, media, HOLES)


def test_infinities_and_empty_rows_are_refused_in_binary_bodies() -> None:
    for value in (np.inf, -np.inf):
        x = X.copy()
        x[2, 1] = value
        with pytest.raises(NotFiniteError, match="row 2"):
            decode(msgpack_body(x), MSGPACK, HOLES)
    x = X.copy()
    x[1] = np.nan
    with pytest.raises(NotFiniteError, match="row 1 holds no value"):
        decode(npy_body(x), NPY, HOLES)
