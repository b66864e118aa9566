"""Texts in the columns of a body: places among the texts of their column, in every process that decodes."""

import json

import msgspec
import numpy as np
import pytest
from wire_bodies import JSON, LIMITS, NDJSON

from shoal.errors import NotNumericError, ShapeError
from shoal_service.wire import decode
from shoal_service.wire.decoder.frames import DecodeRequest
from shoal_service.wire.decoder.process import DecoderProcess

TEXTS = msgspec.structs.replace(LIMITS, texts=True)
ROWS = [[1.5, "b", 0], [2.5, "a", 1], [3.5, "b", 2]]
FOUND = ((1, ("b", "a")),)
BODIES = {
    "json": (json.dumps({"points": ROWS, "keys": ["x", None, "z"]}).encode(), JSON),
    "ndjson": ("\n".join(map(json.dumps, ROWS)).encode(), NDJSON),
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


def test_without_texts_the_numbers_are_as_ever() -> None:
    points = decode(b'{"points": [[1, 2], [3, 4]]}', JSON, TEXTS)
    assert points.texts is None
    np.testing.assert_array_equal(points.x, [[1.0, 2.0], [3.0, 4.0]])
