"""What is taken, and that it arrives bit for bit: fixed cases, and properties over many."""

import json
import warnings
from random import Random

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from wire_bodies import (
    ARROW,
    JSON,
    LIMITS,
    MSGPACK,
    NDJSON,
    NPY,
    arrow_body,
    in_lists,
    json_body,
    msgpack_body,
    ndjson_body,
    npy_body,
    npy_with_header,
    same,
    zipped,
)

from shoal.errors import InputError
from shoal.points.arrays import MAX_MAGNITUDE, as_points
from shoal_service.errors import RequestError
from shoal_service.wire import Format, decode, points

TABLES = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=8),
    elements=st.floats(-MAX_MAGNITUDE, MAX_MAGNITUDE, allow_nan=False),
)
SINGLES = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=8),
    elements=st.floats(width=32, allow_nan=False, allow_infinity=False),
)
FIXED = settings(derandomize=True, deadline=None, database=None, max_examples=150)


@FIXED
@given(TABLES)
def test_json_arrives_bit_for_bit(x: np.ndarray) -> None:
    same(decode(msgspec.json.encode({"points": x.tolist()}), JSON, LIMITS).x, x)


@FIXED
@given(TABLES, st.randoms(use_true_random=False), st.sampled_from(["a", "values", "indices"]))
def test_rows_with_names_arrive_bit_for_bit_in_any_order(x: np.ndarray, random: Random, first: str) -> None:
    names = [first, *(f"f{i}" for i in range(1, x.shape[1]))]
    rows = [dict(zip(names, row, strict=True)) for row in x.tolist()]
    for row in rows[1:]:
        items = random.sample(list(row.items()), len(row))
        row.clear()
        row.update(items)
    points = decode(json.dumps({"points": rows, "keys": ["k"] * len(x)}).encode(), JSON, LIMITS)
    same(points.x, x)
    assert points.names == tuple(names)
    assert points.fields is not None
    lines = decode(ndjson_body(rows), NDJSON, LIMITS)
    same(lines.x, x)
    assert lines.names == tuple(names)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"x": 1.0, "y": 2.0}, {"x": 1.0}], "row 1 has no feature 'y'"),
        ([{"x": 1.0, "y": 2.0}, {"x": 1.0, "y": 2.0, "z": 3.0}], "row 1 has the unknown feature 'z'"),
        ([{"x": 1.0, "y": 2.0}, {"x": 1.0, "y": True}], "row 1 holds true in feature 'y'"),
        ([{"x": 1.0, "y": 2.0}, {"x": 1e200, "y": 2.0}], "row 1 holds 1e\\+200 in "),
        ([{"x": 1.0}, [1.0]], "row 1 is an array, and the rows before have named features"),
        ([[1.0], {"x": 1.0}], "row 1 is an object, which is not an array"),
        ([{}], "row 0"),
    ],
)
def test_the_first_bad_row_with_names_is_named(rows: list[object], words: str) -> None:
    with pytest.raises((InputError, RequestError), match=words):
        decode(json.dumps({"points": rows}).encode(), JSON, LIMITS, n_features=2)
    with pytest.raises((InputError, RequestError), match=words):
        decode(ndjson_body(rows), NDJSON, LIMITS, n_features=2)


@pytest.mark.parametrize(
    ("media", "point", "x"),
    [
        (NDJSON, [1.0, 2.0], [[1.0, 2.0]]),
        (NDJSON, {"indices": [1], "values": [2.0]}, [[0.0, 2.0]]),
        (NDJSON, {"values": 1.0, "b": 2.0}, [[1.0, 2.0]]),
        (JSON, [1.0, 2.0], [[1.0, 2.0]]),
        (JSON, {"indices": [1], "values": [2.0]}, [[0.0, 2.0]]),
        (JSON, {"a": 1.0, "b": 2.0}, [[1.0, 2.0]]),
    ],
)
@pytest.mark.parametrize("inner", [{"x": 1}, {"indices": [1], "values": [1]}, {}])
@pytest.mark.parametrize("first", [True, False])
def test_a_payload_may_look_like_other_points(
    media: Format, point: object, x: list[list[float]], inner: object, first: bool
) -> None:
    payload = {"point": inner, "points": [inner]}
    record = {"point": point, "payload": payload} if media is NDJSON else {"points": [point], "payloads": [payload]}
    if first:
        record = dict(reversed(record.items()))
    found = decode(json.dumps(record).encode(), media, LIMITS, n_features=2)
    assert (found.x.toarray() if found.is_sparse else found.x).tolist() == x
    assert found.fields is not None


def test_names_beside_rows_with_names_are_refused() -> None:
    with pytest.raises(RequestError, match="leave out feature_names"):
        decode(b'{"points": [{"x": 1.0}], "feature_names": ["x"]}', JSON, LIMITS)


@FIXED
@given(TABLES, st.sampled_from(["\n", "\r\n", "\n\n \n", " \n\t"]), st.booleans())
def test_ndjson_arrives_bit_for_bit(x: np.ndarray, between: str, ended: bool) -> None:
    lines = [json.dumps(row) for row in x.tolist()]
    same(decode((between.join(lines) + between * ended).encode(), NDJSON, LIMITS).x, x)


@FIXED
@given(TABLES | SINGLES)
def test_msgpack_arrives_bit_for_bit(x: np.ndarray) -> None:
    same(decode(msgpack_body(x), MSGPACK, LIMITS).x, x)


@FIXED
@given(TABLES | SINGLES, st.booleans(), st.booleans(), st.sampled_from([(1, 0), (2, 0), (3, 0)]))
def test_npy_arrives_bit_for_bit(x: np.ndarray, by_columns: bool, swapped: bool, version: tuple[int, int]) -> None:
    sent = np.asfortranarray(x) if by_columns else x
    sent = sent.astype(sent.dtype.newbyteorder(">")) if swapped else sent
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # NumPy's word on versions that it need not have used
        body = npy_body(sent, version=version)
    same(decode(body, NPY, LIMITS).x, x)


@FIXED
@given(st.binary(max_size=300), st.sampled_from(list(Format)), st.sampled_from([None, "gzip"]))
def test_random_bytes_are_refused_by_the_tree_and_nothing_else(
    body: bytes, media: Format, encoding: str | None
) -> None:
    refused_or_finite(body, media, encoding)


@FIXED
@given(st.data(), st.sampled_from(list(Format)), st.booleans())
def test_damaged_bodies_are_refused_by_the_tree_or_still_good(data: st.DataObject, media: Format, pack: bool) -> None:
    x = np.arange(12.0).reshape(4, 3)
    body = {
        JSON: json_body(x.tolist()),
        NDJSON: ndjson_body(x.tolist()),
        MSGPACK: msgpack_body(x),
        NPY: npy_body(x),
        ARROW: arrow_body(in_lists(x[:2]), in_lists(x[2:])),
    }[media]
    body = zipped(body) if pack else body
    at = data.draw(st.integers(0, len(body) - 1))
    splice = data.draw(st.binary(max_size=4))
    skipped = data.draw(st.integers(0, 6))
    refused_or_finite(body[:at] + splice + body[at + skipped :], media, "gzip" if pack else None)


def refused_or_finite(body: bytes, media: str, encoding: str | None) -> None:
    try:
        x = decode(body, media, LIMITS, content_encoding=encoding).x
    except (InputError, RequestError):
        return
    assert as_points(x).shape == x.shape


@pytest.mark.parametrize("kind", ["i1", "u1", "<i4", ">i4", "<i8", "<u8", "<f2", ">f2"])
def test_npy_of_other_numbers_is_converted_exactly(kind: str) -> None:
    x = np.array([[0, 1, 2], [100, 7, 3]], kind)
    same(decode(npy_body(x), NPY, LIMITS).x, x.astype(np.float32 if "f2" in kind else np.float64))


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2)}",
        "{'shape':(1,2),'fortran_order':False,'descr':'<f8'}   \n",
        "{ 'fortran_order' : False , 'shape' : ( 1L, 2L, ), 'descr' : '<f8' , }",
    ],
)
def test_npy_headers_of_other_writers_are_read(header: str) -> None:
    same(decode(npy_with_header(header, np.array([3.0, 4.0]).tobytes()), NPY, LIMITS).x, np.array([[3.0, 4.0]]))


def test_msgpack_is_single_precision_unless_it_says_otherwise() -> None:
    x = np.array([[1.5, 2.5]], np.float32)
    same(decode(msgpack_body(x, t=None), MSGPACK, LIMITS).x, x)


def test_json_takes_integers_beyond_64_bits_and_keeps_minus_zero() -> None:
    x = decode(b'{"points": [[123456789012345678901234567890, -0.0], [1e-400, 5e-324]]}', JSON, LIMITS).x
    same(x, np.array([[123456789012345678901234567890.0, -0.0], [0.0, 5e-324]]))


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "Application/JSON",
        " application/json ;charset=UTF-8",
        'application/json; charset="utf-8"; profile=a=b',
        "application/json;",
    ],
)
def test_content_types_are_read_as_the_standard_has_them(content_type: str) -> None:
    assert decode(json_body([[1]]), content_type, LIMITS).n_points == 1


@pytest.mark.parametrize("content_type", ["application/x-msgpack", "application/vnd.msgpack; v=1"])
def test_msgpack_goes_by_other_names_too(content_type: str) -> None:
    assert decode(msgpack_body(np.zeros((1, 3), "<f4")), content_type, LIMITS).n_features == 3


@pytest.mark.parametrize("content_type", ["application/ndjson", "application/jsonl; charset=utf-8"])
def test_ndjson_goes_by_other_names_too(content_type: str) -> None:
    assert decode(b"[1,2]", content_type, LIMITS).n_features == 2


@pytest.mark.parametrize("content_type", ["application/json; charset=latin-1", "application/json; CHARSET = utf-16"])
def test_json_is_utf8_and_nothing_else(content_type: str) -> None:
    with pytest.raises(RequestError, match="UTF-8"):
        decode(json_body([[1]]), content_type, LIMITS)


@pytest.mark.parametrize("encoding", [None, "", "identity", "gzip", "GZIP", "x-gzip", "identity, gzip"])
def test_content_encodings(encoding: str | None) -> None:
    body = json_body([[1, 2]])
    body = zipped(body) if encoding and "gzip" in encoding.lower() else body
    assert decode(body, JSON, LIMITS, content_encoding=encoding).n_features == 2


def test_aligned_binary_bodies_are_not_copied() -> None:
    body = npy_body(np.arange(6.0).reshape(3, 2))
    x = decode(body, NPY, LIMITS).x
    assert np.shares_memory(x, np.frombuffer(body, np.uint8))
    assert not x.flags.writeable


def test_the_library_and_the_wire_draw_the_same_line() -> None:
    assert points.MAX_MAGNITUDE == MAX_MAGNITUDE
