"""Texts in the columns of a body: places among the texts of their column, in every process that decodes."""

import contextlib
import json
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from wire_bodies import ARROW, JSON, LIMITS, MSGPACK, NDJSON, arrow_body

from shoal.errors import NotFiniteError, NotNumericError, ShapeError, ShoalError
from shoal_service.errors import MalformedBodyError
from shoal_service.wire import Texts, decode, errors_naming_features, parse_points_query
from shoal_service.wire.decoder.frames import DecodeRequest
from shoal_service.wire.decoder.process import DecoderProcess

TEXTS = msgspec.structs.replace(LIMITS, texts=True)
ROWS = [[1.5, "b", 0], [2.5, "a", 1], [3.5, "b", 2]]
FOUND = ((1, ("b", "a")),)
PLACES = np.array([[1.5, 0.0, 0.0], [2.5, 1.0, 1.0], [3.5, 0.0, 2.0]])
BODIES = {
    "json": (json.dumps({"points": ROWS, "keys": ["x", None, "z"]}).encode(), JSON),
    "ndjson": ("\n".join(map(json.dumps, ROWS)).encode(), NDJSON),
    "msgpack": (msgspec.msgpack.encode({"d": 3, "t": "f8", "x": PLACES.tobytes(), "c": [[1, ["b", "a"]]]}), MSGPACK),
    "records": ("\n".join(json.dumps({"point": row, "key": "k"}) for row in ROWS).encode(), NDJSON),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_text_is_its_place_in_this_process_and_in_a_child(name: str) -> None:
    body, media = BODIES[name]
    child = DecoderProcess()
    try:
        found = [decode(body, media, TEXTS), child.decode(body, DecodeRequest(media, None, TEXTS, len(body)))]
    finally:
        child.end()
        child.discard()
    for points in found:
        np.testing.assert_array_equal(points.x, [[1.5, 0.0, 0.0], [2.5, 1.0, 1.0], [3.5, 0.0, 2.0]])
        assert points.texts == FOUND
    with pytest.raises(NotNumericError, match='row 0 holds "b" in column 1, which is not a number'):
        decode(body, media, LIMITS)


@pytest.mark.parametrize(
    ("rows", "error", "words"),
    [
        ([[1.0, "a"], [2.0, 3.0]], NotNumericError, "row 1 holds 3.0 in column 1, which holds texts too"),
        ([[1.0, "a"], ["x", "b"]], NotNumericError, 'row 1 holds "x" in column 0, which holds numbers too'),
        ([[1.0, "a"], [2.0, ""]], NotNumericError, "row 1 holds a text of 0 characters in column 1"),
        ([[1.0, "a"], [2.0, None]], NotNumericError, "row 1 holds null in column 1"),
        ([[1.0, "a"], [2.0, True]], NotNumericError, "row 1 holds true in column 1"),
        ([[1.0, "a"], ["b"]], ShapeError, "row 1 holds 1 number, the rows before hold 2"),
    ],
)
def test_the_first_bad_row_is_named(rows: list[list[object]], error: type[Exception], words: str) -> None:
    for body, media in (
        (json.dumps({"points": rows}).encode(), JSON),
        ("\n".join(map(json.dumps, rows)).encode(), NDJSON),
    ):
        with pytest.raises(error, match=words):
            decode(body, media, TEXTS)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ([[3, ["b", "a"]]], "c has the entry"),
        ([[1, ["b", "b"]]], "c has the entry"),
        ([[1, ["b", ""]]], "c has the entry"),
        ([[1, ["b", "x" * 201]]], "c has the entry"),
        ([[1, []]], "c has the entry"),
        ([[1, ["b", "a"]], [1, ["b", "a"]]], "c has the entry"),
        ([[1, ["b"]]], "row 1 holds 1.0 in column 1, which is the place of none of its 1 texts"),
        ([[0, ["b", "a", "c"]]], "row 0 holds 1.5 in column 0"),
        ([[-1, ["b", "a"]]], "c has the entry"),
        ({"1": ["b", "a"]}, "does not hold points in MessagePack"),
    ],
)
def test_places_and_texts_of_messagepack_that_do_not_fit_are_refused(texts: Any, words: str) -> None:
    body = msgspec.msgpack.encode({"d": 3, "t": "f8", "x": PLACES.tobytes(), "c": texts})
    with pytest.raises(MalformedBodyError, match=words):
        decode(body, MSGPACK, TEXTS)


@pytest.mark.parametrize(
    ("body", "media", "words"),
    [
        ('{"points": [{"b": 1e200, "a": 1}]}', JSON, "row 0 holds 1e.200 in feature 'b'"),
        ('{"b": 1, "a": 1}\n{"a": 1e200, "b": 2}', NDJSON, "row 1 holds 1e.200 in feature 'a'"),
        ('{"point": {"b": 1e200, "a": 1}, "key": "k"}', NDJSON, "row 0 holds 1e.200 in feature 'b'"),
        (
            '{"points": [{"b": "x", "a": 1}, {"b": 3, "a": 1}]}',
            JSON,
            "row 1 holds 3.0 in feature 'b', which",
        ),
        ('{"points": [[1, 2], [3, null]]}', JSON, "row 1 holds null in feature 'b'"),
        ('{"points": [["column 1", true]]}', JSON, "row 0 holds true in feature 'b'"),
        ('{"points": [[1, {"column 1": 2}]]}', JSON, "in feature 'b', which is not a number"),
    ],
)
def test_a_bad_value_is_told_by_the_names_in_its_body_or_else_by_those_of_its_stream(
    body: str, media: str, words: str
) -> None:
    """Bodies name features in another order than their stream, and texts may look like the place of a value."""
    with pytest.raises((NotFiniteError, NotNumericError), match=words), errors_naming_features(("a", "b")):
        decode(body.encode(), media, TEXTS)
    with (
        pytest.raises(NotNumericError, match="row 0 holds \"column 1\" in feature 'b'"),
        errors_naming_features(("a", "b")),
    ):
        decode(b'{"points": [[1, "column 1"]]}', JSON, LIMITS)


def test_sparse_rows_of_messagepack_have_no_texts() -> None:
    arrays = {"indptr": np.array([0, 1]), "indices": np.array([0], np.int32), "values": np.ones(1)}
    body = {"d": 3, **{name: array.tobytes() for name, array in arrays.items()}, "c": [[0, ["a", "b"]]]}
    with pytest.raises(MalformedBodyError, match="sparse rows"):
        decode(msgspec.msgpack.encode(body), MSGPACK, TEXTS)


def test_dictionaries_of_texts_are_texts_and_each_batch_may_have_its_own() -> None:
    def batch(region: list[str | None], cpu: list[float]) -> Any:
        return pa.record_batch([pa.array(region).dictionary_encode(), pa.array(cpu)], ["region", "cpu"])

    first, second = batch(["b", "a", "b"], [1.0, 2.0, 3.0]), batch(["c", "b"], [4.0, 5.0])
    points = decode(arrow_body(first, second), ARROW, TEXTS)
    np.testing.assert_array_equal(points.x[:, 0], [0.0, 1.0, 0.0, 2.0, 0.0])
    np.testing.assert_array_equal(points.x[:, 1], [1.0, 2.0, 3.0, 4.0, 5.0])
    assert points.texts == ((0, ("b", "a", "c")),)
    with pytest.raises(NotNumericError, match="row 4 holds null in feature 'region'"):
        decode(arrow_body(first, batch(["a", None], [1.0, 2.0])), ARROW, TEXTS)
    with pytest.raises(NotNumericError, match="'region' holds dictionary"):
        decode(arrow_body(first), ARROW, LIMITS)
    with pytest.raises(MalformedBodyError, match="compressed"):
        decode(arrow_body(batch([f"word {i}" for i in range(500)], [1.0] * 500), compression="zstd"), ARROW, TEXTS)


def test_what_a_broken_stream_with_dictionaries_holds_is_refused_or_points() -> None:
    body = arrow_body(pa.record_batch([pa.array(["b", "a", "b"]).dictionary_encode()], ["region"]))
    for place in range(0, len(body), 3):
        broken = bytearray(body)
        broken[place] ^= 0x5A
        for damaged in (bytes(broken), body[:place]):
            with contextlib.suppress(ShoalError):
                decode(damaged, ARROW, TEXTS)


def test_what_is_no_number_in_a_query_is_a_text() -> None:
    points = parse_points_query(["1.5, eu west,0", "2,Zürich,-1e3", "3,eu west,2"], TEXTS, max_points=3)
    np.testing.assert_array_equal(points.x, [[1.5, 0.0, 0.0], [2.0, 1.0, -1000.0], [3.0, 0.0, 2.0]])
    assert points.texts == ((1, ("eu west", "Zürich")),)
    for values, words in ((["1,a", "2,3"], "row 1 holds 3.0 in column 1"), (["1,"], "a text of 0 characters")):
        with pytest.raises(NotNumericError, match=words):
            parse_points_query(values, TEXTS, max_points=3)
    with pytest.raises(NotFiniteError):
        parse_points_query(["1,nan"], TEXTS, max_points=3)


def test_without_texts_the_numbers_are_as_ever() -> None:
    points = decode(b'{"points": [[1, 2], [3, 4]]}', JSON, TEXTS)
    assert points.texts is None
    np.testing.assert_array_equal(points.x, [[1.0, 2.0], [3.0, 4.0]])


@pytest.mark.parametrize("of_one_length", [False, True])
def test_the_places_of_a_string_are_those_that_hold_it(of_one_length: bool) -> None:
    rng = np.random.default_rng(4)
    texts = [bytes(rng.integers(97, 99, size=3 if of_one_length else rng.integers(5)).tolist()) for _ in range(200)]
    held = Texts.of(texts)
    part = held.part(20, 150)
    for text in {*texts, b"abx", b"a longer one than any"}:
        assert held.places_of(text) == [i for i, other in enumerate(texts) if other == text]
        assert part.places_of(text) == [i for i, other in enumerate(texts[20:150]) if other == text]
        assert list(part.finder(1000)(text)) == list(part.finder(1)(text)) == part.places_of(text)
    assert Texts.empty(3).places_of(b"") == [0, 1, 2]
