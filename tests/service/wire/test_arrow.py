"""Arrow streams: what is taken, what is refused, and that pyarrow is needed for them alone."""

import itertools
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_bodies import (
    ARROW,
    LIMITS,
    NPY,
    Bad,
    arrow_body,
    in_columns,
    in_lists,
    npy_body,
    refuse,
    same,
    title,
    with_value,
    zipped,
)

from shoal.errors import InputError, NotFiniteError, NotNumericError, ShapeError, ShoalError
from shoal_service.errors import LimitError, MalformedBodyError, RequestError, UnsupportedMediaTypeError
from shoal_service.wire import decode

FIXED = settings(derandomize=True, deadline=None, database=None, max_examples=150)
F8 = np.arange(6, dtype="<f8").reshape(3, 2)
ONE, TWO = arrow_body(in_lists(F8)), arrow_body(in_lists(F8), in_lists(F8))
SCHEMA_BYTES = 2 * len(ONE) - len(TWO) - 8  # the end of a stream takes eight


LISTS = pa.list_(pa.float64(), 2)
PAIRS = [(1.0, 2.0), (3.0, 4.0), (5.0, 6.0)]
WORDS = in_columns(["a", "b"])


def bad(symptom: str, batch: Any, error: type[ShoalError], row: int | None = None, says: str = "", **how: Any) -> Bad:
    batches = batch if isinstance(batch, tuple) else (batch,)
    return Bad(symptom, ARROW, batch if isinstance(batch, bytes) else arrow_body(*batches, **how), error, row, says)


BAD_ARROW = [
    bad("no rows", in_lists(F8[:0]), ShapeError),
    bad("no columns", pa.RecordBatch.from_struct_array(pa.array([{}])), ShapeError),
    bad("lists of none", in_columns(pa.array([[]], pa.list_(pa.float64(), 0))), ShapeError, 0),
    bad("text", WORDS, NotNumericError, None, "'c0' holds string"),
    bad("a dictionary of texts", in_columns(WORDS[0].dictionary_encode()), NotNumericError, None, "dictionary"),
    bad("booleans", in_columns([1.5], [True]), NotNumericError, None, "'c1' holds bool"),
    bad("lists of booleans", in_columns(pa.array([[True]], pa.list_(pa.bool_(), 1))), NotNumericError),
    bad("times", in_columns(np.zeros(2, "M8[s]")), NotNumericError, None, "timestamp"),
    bad("decimals", in_columns(pa.array([1], pa.decimal128(5))), NotNumericError),
    bad("nothing but nulls", in_columns(pa.nulls(3)), NotNumericError),
    bad("a null in a dictionary", in_columns(pa.array([1.0, None]).dictionary_encode()), NotNumericError, 1, "null"),
    bad("lists of any length", in_columns([[1.0], [2.0, 3.0]]), NotNumericError, None, "list"),
    bad("lists beside columns", in_columns(pa.array(PAIRS, LISTS), [1, 2, 3]), ShapeError),
    bad("a null", in_columns([1.0, 2.0, 3.0], [1, 2, None]), NotNumericError, 2, "null"),
    bad("a null list", in_columns(pa.array([PAIRS[0], None], LISTS)), NotNumericError, 1),
    bad("a null in a list", in_columns(pa.array([PAIRS[0], (1.0, None)], LISTS)), NotNumericError, 1),
    bad("a null in the second batch", (in_columns([1.0, 2.0]), in_columns([3.0, None])), NotNumericError, 3),
    bad("a null before NaN", in_columns([1.0, None, np.nan]), NotNumericError, 1),
    bad("NaN before a null", in_columns([1.0, np.nan, None]), NotFiniteError, 1),
    bad("a null in the first row", in_columns([None, 1.0]), NotNumericError, 0),
    bad("NaN", (in_lists(F8), in_lists(with_value(np.nan, "<f8"))), NotFiniteError, 4, "nan"),
    bad("1e39 cast to f4", in_lists(with_value(1e39, "<f4")), NotFiniteError, 1, "3.4e38"),
    bad("beyond 1e150", in_columns([1.0, 2.0], [1, 1e151]), NotFiniteError, 1),
    bad("compressed", in_lists(np.zeros((99, 2))), MalformedBodyError, None, "gzip", compression="zstd"),
    bad("compressed, by columns", in_columns(np.zeros(99)), MalformedBodyError, compression="lz4"),
    bad("cut off in a batch", ONE[:-20], MalformedBodyError),
    bad("cut off in the schema", ONE[:100], MalformedBodyError),
    bad("something behind it", ONE * 2, MalformedBodyError, None, "follow the end"),
    bad("no schema first", ONE[SCHEMA_BYTES:], MalformedBodyError, None, "schema"),
    bad("a file, not a stream", b"ARROW1\0\0" + ONE, MalformedBodyError),
    bad("no Arrow", b"[[1, 2], [3, 4]]", MalformedBodyError),
    bad("too many features", in_lists(np.zeros((1, 601))), LimitError),
    bad("too many rows", in_lists(np.zeros((10_001, 1))), LimitError),
    bad("small integers that would grow", in_lists(np.zeros((1_000, 300), "i1")), LimitError),
]


@pytest.mark.parametrize("case", BAD_ARROW, ids=title)
def test_bad_stream_is_refused_by_its_own_error(case: Bad) -> None:
    refuse(case, case.body)
    refuse(case, zipped(case.body), content_encoding="gzip")


@FIXED
@given(
    st.integers(1, 40), st.integers(1, 5), st.sampled_from(["<f2", "<f4", "<f8"]), st.lists(st.integers(0, 40)),
    st.booleans(), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_batches_and_slices_arrive_bit_for_bit(
    n: int, d: int, kind: str, cuts: list[int], in_one_column: bool, seed: int
) -> None:
    x = np.random.default_rng(seed).normal(size=(n, d)).astype(kind)
    whole = in_lists(x) if in_one_column else in_columns(*x.T)
    bounds = [0, *sorted(min(cut, n) for cut in cuts), n]
    body = arrow_body(*(whole.slice(a, b - a) for a, b in itertools.pairwise(bounds)))
    same(decode(body, ARROW, LIMITS).x, x.astype(np.float64 if kind == "<f8" else np.float32))


@pytest.mark.parametrize("kind", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_integers_become_double_precision(kind: str) -> None:
    x = np.array([[0, 1], [2, 100]], kind)
    for batch in (in_lists(x), in_columns(*x.T)):
        same(decode(arrow_body(batch), ARROW, LIMITS).x, x.astype(np.float64))


def test_columns_of_several_kinds_are_double_precision() -> None:
    x = decode(arrow_body(in_columns(np.array([0.1], "f4"), [2], np.array([3], "f8"))), ARROW, LIMITS).x
    same(x, np.array([[float(np.float32(0.1)), 2.0, 3.0]]))


def test_one_batch_of_lists_is_not_copied() -> None:
    x = decode(ONE, ARROW, LIMITS).x
    assert np.shares_memory(x, np.frombuffer(ONE, np.uint8))
    assert not x.flags.writeable


def test_a_stream_without_its_end_mark_is_whole() -> None:
    same(decode(ONE[:-8], ARROW, LIMITS).x, F8)


def test_empty_batches_count_for_nothing() -> None:
    same(decode(arrow_body(in_lists(F8[:0]), in_lists(F8), in_lists(F8[:0])), ARROW, LIMITS).x, F8)


@FIXED
@given(st.data())
def test_damaged_streams_are_refused_by_the_tree_or_still_good(data: st.DataObject) -> None:
    whole = data.draw(st.sampled_from([ONE, TWO, *(case.body for case in BAD_ARROW if len(case.body) < 2_000)]))
    body = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        at, width = data.draw(st.integers(0, len(body) - 1)), data.draw(st.sampled_from([1, 4, 8]))
        at -= at % width
        value = data.draw(st.sampled_from([0, 1, 2, 255, 2**31 - 1, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1]))
        body[at : at + width] = (value % 256**width).to_bytes(width, "little")
    try:
        x = decode(bytes(body), ARROW, LIMITS).x
    except (InputError, RequestError):
        return
    assert np.isfinite(x).all()


def test_without_pyarrow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UnsupportedMediaTypeError, match=r"pip install 'shoal\[arrow\]'"):
        decode(ONE, ARROW, LIMITS)
    assert decode(npy_body(F8), NPY, LIMITS).n_points == 3
