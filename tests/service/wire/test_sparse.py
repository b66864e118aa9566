"""Sparse rows: in every format that takes them, through the log and through the decoding child."""

import asyncio
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from wire_bodies import (
    JSON,
    LIMITS,
    MSGPACK,
    NDJSON,
    Bad,
    csr_body,
    json_body,
    ndjson_body,
    refuse,
    sparse_rows,
    title,
    zipped,
)

from shoal.errors import InputError, NotFiniteError, NotNumericError, ShapeError
from shoal_service.errors import LimitError, MalformedBodyError, RequestError
from shoal_service.wire import Decoder, Points, WireLimits, decode, from_log, to_log

FIXED = settings(derandomize=True, deadline=None, database=None, max_examples=100)
D = 5
M = csr_array(np.array([[0.0, 2, 0, 0, 1], [0, 0, 0, 0, 0], [3, 0, 0, 4, 0]]))
MATRICES = st.builds(
    lambda n, d, seed: csr_array(np.random.default_rng(seed).poisson(0.4, (n, d)).astype(float)),
    st.integers(1, 12),
    st.integers(1, 9),
    st.integers(0, 2**32 - 1),
)


def same_matrix(x: Any, expected: csr_array) -> None:
    assert x.dtype == np.float64
    assert x.indices.dtype == x.indptr.dtype == np.int32
    assert x.shape == expected.shape
    for part in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(x, part), getattr(expected, part))


@FIXED
@given(MATRICES, st.randoms(use_true_random=False))
def test_rows_arrive_in_order_in_whatever_order_they_were_sent(m: csr_array, random: Any) -> None:
    rows = sparse_rows(m)
    for row in rows:
        pairs = list(zip(row["indices"], row["values"], strict=True))
        random.shuffle(pairs)
        row["indices"], row["values"] = [i for i, _ in pairs], [v for _, v in pairs]
    for body, media in ((json_body(rows), JSON), (ndjson_body(rows), NDJSON)):
        points = decode(body, media, LIMITS, n_features=m.shape[1])
        assert points.is_sparse
        assert (points.n_points, points.n_features) == m.shape
        same_matrix(points.x, m)


@FIXED
@given(MATRICES)
def test_compressed_rows_say_their_own_width(m: csr_array) -> None:
    same_matrix(decode(csr_body(m), MSGPACK, LIMITS).x, m)
    same_matrix(decode(zipped(csr_body(m)), MSGPACK, LIMITS, content_encoding="gzip").x, m)


@pytest.mark.parametrize("count", [2**24 + 1, 2**53 - 1, 1])
def test_counts_that_single_precision_has_not_are_exact(count: int) -> None:
    rows = [{"indices": [2], "values": [count]}]
    for body, media in ((json_body(rows), JSON), (ndjson_body(rows), NDJSON)):
        points = decode(body, media, LIMITS, n_features=3)
        assert int(from_log(to_log(points)).data[0]) == count  # type: ignore[attr-defined]


def test_zeros_that_were_sent_are_kept_and_keys_come_in_any_order() -> None:
    body = b' {"points" : [ {"values": [0, 2.5], "indices": [1, 0]}]}'
    x = decode(body, JSON, LIMITS, n_features=2).x
    assert (x.indices.tolist(), x.data.tolist()) == ([0, 1], [2.5, 0.0])  # type: ignore[union-attr]


@FIXED
@given(MATRICES)
def test_the_log_keeps_rows_sparse_and_gives_them_back(m: csr_array) -> None:
    payload = to_log(Points(m))
    same_matrix(from_log(payload), m)
    same_matrix(decode(payload, MSGPACK, LIMITS).x, m)
    same_matrix(from_log(csr_body(m)), m)


@pytest.mark.parametrize("m", [M, csr_array(np.eye(4)), csr_array((3, 2))])
def test_numbers_of_the_log_are_read_without_a_copy(m: csr_array) -> None:
    payload = to_log(Points(m))
    back = from_log(payload)
    for values in (back.data, back.indices):  # type: ignore[attr-defined]
        assert values.flags.aligned
        assert not len(values) or np.shares_memory(values, np.frombuffer(payload, np.uint8))


def test_the_payload_is_canonical() -> None:
    payload = to_log(Points(csr_array(np.array([[0.0, 1.0]]))))
    assert payload.hex() == (
        "de0004"
        "d906696e64707472" "c600000010" "0000000000000000" "0100000000000000"
        "db0000000676616c756573" "c600000008" "000000000000f03f"
        "a164" "cf0000000000000002"
        "a7696e6469636573" "c600000004" "01000000"
    )  # fmt: skip


ROW = {"indices": [0, 3], "values": [1, 2]}


def bad(symptom: str, rows: Any, *more: Any) -> list[Bad]:
    return [Bad(symptom, JSON, json_body(rows), *more), Bad(symptom, NDJSON, ndjson_body(rows), *more)]


def pair(indices: Any, values: Any) -> dict[str, Any]:
    return {"indices": indices, "values": values}


BAD_ROWS = [
    *bad("an index beyond the features", [ROW, pair([5], [1])], ShapeError, 1, "features are 0 to 4"),
    *bad("a negative index", [ROW, pair([-1], [1])], ShapeError, 1, "index -1"),
    *bad("a vast index", [ROW, ROW, pair([10**30], [1])], ShapeError, 2),
    *bad("an index twice", [pair([0, 1, 0], [1, 1, 1])], ShapeError, 0, "index 0 twice"),
    *bad("an index that is no integer", [ROW, pair([1.5], [1])], NotNumericError, 1, "1.5"),
    *bad("an index that is a boolean", [pair([True], [1])], NotNumericError, 0, "true"),
    *bad("an index as text", [pair(["1"], [1])], NotNumericError, 0),
    *bad("lists of unequal length", [ROW, pair([1, 2], [1])], ShapeError, 1, "equal length"),
    *bad("no list", [ROW, pair(1, 1)], ShapeError, 1),
    *bad("a dense row among them", [ROW, [1, 2, 3, 4, 5]], ShapeError, 1, "array"),
    *bad("an unknown name", [ROW, {"index": [1], "values": [1]}], ShapeError, 1, "index"),
    *bad("a name missing", [{"indices": [1]}], ShapeError, 0),
    *bad("a name too many", [ROW, ROW | {"weight": 1}], ShapeError, 1),
    *bad("a boolean", [ROW, pair([1], [True])], NotNumericError, 1, "column 1"),
    *bad("null", [pair([1], [None])], NotNumericError, 0, "null"),
    *bad("text", [pair([4], ["1"])], NotNumericError, 0, '"1"'),
    *bad("NaN", [ROW, pair([4, 2], [1, float("nan")])], NotFiniteError, 1, "nan in column 2"),
    *bad("beyond 1e150", [ROW, pair([4], [-1e151])], NotFiniteError, 1, "-1e+151"),
    *bad("a bad value before a bad index", [pair([2], [None]), pair([9], [1])], NotNumericError, 0),
    *bad("a bad index before a bad value", [pair([9], [1]), pair([2], [None])], ShapeError, 0),
    *bad("too many rows", [ROW] * 10_001, LimitError, None, "10001"),
    Bad("cut off", JSON, json_body([ROW])[:-8], MalformedBodyError),
    Bad("cut off", NDJSON, ndjson_body([ROW, ROW])[:-8], MalformedBodyError, 1),
    Bad("a number of 5,000 digits", NDJSON, b'{"indices": [1], "values": [' + b"7" * 5000 + b"]}", NotFiniteError, 0),
]


@pytest.mark.parametrize("case", BAD_ROWS, ids=title)
def test_bad_row_is_refused_by_its_own_error(case: Bad) -> None:
    refuse(case, case.body, n_features=D)
    refuse(case, zipped(case.body), n_features=D, content_encoding="gzip")


INT, LONG = "<i4", "<i8"
BAD_ARRAYS = [
    Bad("no rows", MSGPACK, csr_body(csr_array((0, 5))), ShapeError),
    Bad("a column beyond", MSGPACK, csr_body(M, d=4), ShapeError, 0, "column 4 at a wrong place"),
    Bad("a negative column", MSGPACK, csr_body(M, indices=np.array([1, 4, -1, 3], INT).tobytes()), ShapeError, 2),
    Bad("columns that fall", MSGPACK, csr_body(M, indices=np.array([4, 1, 0, 3], INT).tobytes()), ShapeError, 0),
    Bad("a column twice", MSGPACK, csr_body(M, indices=np.array([1, 4, 3, 3], INT).tobytes()), ShapeError, 2),
    Bad("NaN", MSGPACK, csr_body(M, values=np.array([1, 2, 3, np.nan]).tobytes()), NotFiniteError, 2, "column 3"),
    Bad("beyond 1e150", MSGPACK, csr_body(M, values=np.array([1, -1e151, 3, 4]).tobytes()), NotFiniteError, 0),
    Bad("too few values", MSGPACK, csr_body(M, values=np.ones(3).tobytes()), MalformedBodyError, None, "indptr"),
    Bad("too few columns", MSGPACK, csr_body(M, indices=np.ones(3, INT).tobytes()), MalformedBodyError),
    Bad("rows that overlap", MSGPACK, csr_body(M, indptr=np.array([0, 4, 2, 4], LONG).tobytes()), MalformedBodyError),
    Bad("rows from elsewhere", MSGPACK, csr_body(M, indptr=np.array([1, 2, 2, 4], LONG).tobytes()), MalformedBodyError),
    Bad("no rows at all", MSGPACK, csr_body(M, indptr=b""), MalformedBodyError),
    Bad("a byte too many", MSGPACK, csr_body(M, values=bytes(33)), MalformedBodyError, None, "whole number"),
    Bad("d is zero", MSGPACK, csr_body(M, d=0), MalformedBodyError),
    Bad("d is vast", MSGPACK, csr_body(M, d=2**40), MalformedBodyError),
    Bad("too many features", MSGPACK, csr_body(M, d=601), LimitError),
    Bad("an array missing", MSGPACK, csr_body(M, indices=None), MalformedBodyError, None, "missing"),
    Bad("no arrays", MSGPACK, csr_body(M, indptr=None, indices=None, values=None), MalformedBodyError, None, "`x`"),
    Bad("an array as a list", MSGPACK, csr_body(M, indices=[1, 2, 3, 4]), MalformedBodyError),
    Bad("cut off", MSGPACK, csr_body(M)[:-3], MalformedBodyError),
]


@pytest.mark.parametrize("case", BAD_ARRAYS, ids=title)
def test_bad_arrays_are_refused_by_their_own_error(case: Bad) -> None:
    refuse(case, case.body)


@pytest.mark.parametrize(("media", "body"), [(JSON, json_body([ROW])), (NDJSON, ndjson_body([ROW]))])
def test_rows_that_nobody_knows_the_width_of_are_refused(media: str, body: bytes) -> None:
    with pytest.raises(ShapeError, match="create it first, with PUT"):
        decode(body, media, LIMITS)


@FIXED
@given(st.data())
def test_damaged_arrays_are_refused_by_the_tree_or_still_good(data: st.DataObject) -> None:
    body = bytearray(data.draw(st.sampled_from([csr_body(M), to_log(Points(M))])))
    at, width = data.draw(st.integers(0, len(body) - 1)), data.draw(st.sampled_from([1, 4, 8]))
    body[at : at + width] = data.draw(st.binary(min_size=width, max_size=width))
    try:
        x = decode(bytes(body), MSGPACK, LIMITS).x
    except (InputError, RequestError):
        return
    assert x.toarray().shape == x.shape if not isinstance(x, np.ndarray) else np.isfinite(x).all()


NUMBERS = st.lists(st.none() | st.floats() | st.integers(-2, 9))
PAIRS = st.lists(st.tuples(st.integers(-1, D), st.integers(-3, 3)), max_size=3).map(
    lambda pairs: pair([i for i, _ in pairs], [v for _, v in pairs])
)


@FIXED
@given(st.lists(PAIRS | st.dictionaries(st.sampled_from(["indices", "values", "x"]), NUMBERS), min_size=1, max_size=4))
def test_any_objects_are_taken_or_refused_by_the_tree(rows: list[dict[str, Any]]) -> None:
    for body, media in ((json_body(rows), JSON), (ndjson_body(rows), NDJSON)):
        try:
            x = decode(body, media, LIMITS, n_features=D).x
        except (InputError, RequestError):
            continue
        assert all(set(row) == {"indices", "values"} for row in rows)
        for dense, row in zip(x.toarray(), rows, strict=True):  # type: ignore[union-attr]
            assert {i: v for i, v in enumerate(dense) if v} == {
                i: v for i, v in zip(row["indices"], row["values"], strict=True) if v
            }


def test_rows_come_back_sparse_from_the_child() -> None:
    m = csr_array(np.random.default_rng(1).poisson(0.05, (3_000, 400)).astype(float))
    rows, first = sparse_rows(m), int((m[:, [399]].toarray() > 0).argmax())
    limits = WireLimits(max_body_bytes=10_000_000, max_rows=100_000, max_features=500)

    async def work() -> None:
        decoder = Decoder(limits)
        try:
            for body, media in ((json_body(rows), JSON), (ndjson_body(rows), NDJSON)):
                assert len(body) > 65_536
                same_matrix((await decoder.decode(body, media, n_features=400)).x, m)
                same_matrix((await decoder.decode(zipped(body), media, n_features=400, content_encoding="gzip")).x, m)
                with pytest.raises(ShapeError, match="features are 0 to 398") as caught:
                    await decoder.decode(body, media, n_features=399)
                assert caught.value.row == first
            assert decoder._children[0].pid is not None
        finally:
            decoder.close()

    asyncio.run(work())
