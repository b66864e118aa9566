"""Every body that must be refused, by the error that refuses it and the row that it names."""

import gzip

import msgspec
import numpy as np
import pytest
from wire_bodies import (
    JSON,
    LIMITS,
    MSGPACK,
    NDJSON,
    NPY,
    Bad,
    json_body,
    msgpack_body,
    ndjson_body,
    npy_body,
    npy_with_header,
    refuse,
    title,
    with_value,
    zipped,
)

from shoal.errors import NotFiniteError, NotNumericError, ShapeError
from shoal_service.errors import (
    BodyTooLargeError,
    LimitError,
    MalformedBodyError,
    RecordFieldError,
    UnsupportedMediaTypeError,
)
from shoal_service.wire import decode

F4 = np.arange(6, dtype="<f4").reshape(3, 2)
F8 = np.arange(6, dtype="<f8").reshape(3, 2)
HEADER = "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 2), }\n"


BAD_JSON = [
    Bad("no rows", JSON, json_body([]), ShapeError),
    Bad("a row without numbers", JSON, json_body([[]]), ShapeError, 0),
    Bad("one point without its brackets", JSON, json_body([1, 2]), ShapeError, 0),
    Bad("ragged, a number short", JSON, json_body([[1, 2], [3]]), ShapeError, 1, "row 1 holds 1 number,"),
    Bad("ragged, a number over", JSON, json_body([[1, 2], [3, 4], [5, 6, 7]]), ShapeError, 2),
    Bad("ragged before a bad value", JSON, json_body([[1, 2], [3], [True, 4]]), ShapeError, 1),
    Bad("a bad value before ragged", JSON, json_body([[1, 2], [3, None], [4]]), NotNumericError, 1),
    Bad("a huge value before ragged", JSON, json_body([[1, 2], [3, 1e200], [4]]), NotFiniteError, 1),
    Bad("a boolean", JSON, json_body([[1, 2], [True, 2]]), NotNumericError, 1, "true"),
    Bad("a number as text", JSON, json_body([[1, 2], [3, 4], ["5", 6]]), NotNumericError, 2, '"5"'),
    Bad("null", JSON, json_body([[None, 2]]), NotNumericError, 0, "null"),
    Bad("a deeper array", JSON, json_body([[1, 2], [3, [4]]]), NotNumericError, 1, "array"),
    Bad("a sparse row", JSON, json_body([[1, 2], {"indices": [0], "values": [1]}]), ShapeError, 1, "object"),
    Bad("NaN", JSON, b'{"points": [[1, 2], [3, NaN]]}', NotFiniteError, 1, "nan in column 1"),
    Bad("Infinity", JSON, b'{"points": [[1, -Infinity]]}', NotFiniteError, 0, "-inf"),
    Bad("1e400", JSON, b'{"points": [[1, 2], [1e400, 4]]}', NotFiniteError, 1, "inf"),
    Bad("an integer of 5,000 digits", JSON, b'{"points": [[1], [' + b"7" * 5000 + b"]]}", NotFiniteError, 1),
    Bad("beyond 1e150", JSON, b'{"points": [[1, 2], [3, 4], [1e151, 4]]}', NotFiniteError, 2, "1e+151"),
    Bad("cut off", JSON, b'{"points": [[1, 2], [3', MalformedBodyError),
    Bad("something behind it", JSON, b'{"points": [[1]]} {}', MalformedBodyError),
    Bad("a bare array", JSON, b"[[1, 2]]", MalformedBodyError, None, "object"),
    Bad("another field", JSON, b'{"points": [[1]], "stream": "a"}', MalformedBodyError, None, "stream"),
    Bad("no field", JSON, b"{}", MalformedBodyError, None, "points"),
    Bad("a string for points", JSON, b'{"points": "all"}', MalformedBodyError),
    Bad("a leading zero", JSON, b'{"points": [[01]]}', MalformedBodyError),
    Bad("not UTF-8", JSON, b'{"points": [[1]], "\xff": 1}', MalformedBodyError),
    Bad("a byte order mark", JSON, b"\xef\xbb\xbf" + json_body([[1]]), MalformedBodyError, None, "byte order mark"),
    Bad("nested without end", JSON, b'{"points": ' + b"[" * 200_000, MalformedBodyError),
    Bad("another type's body", JSON, msgpack_body(F8), MalformedBodyError),
    Bad("empty", JSON, b"", MalformedBodyError, None, "empty"),
    Bad("too many rows", JSON, json_body([[1]] * 10_001), LimitError, None, "10001"),
    Bad("too many features", JSON, json_body([[1] * 601]), LimitError, None, "601"),
    Bad("more numbers than bytes can hold", JSON, b'{"points": [[' + b"0," * 300_000 + b"0]]}", LimitError),
]

BAD_NDJSON = [
    Bad("no rows", NDJSON, b"\n \n", ShapeError),
    Bad("a row without numbers", NDJSON, b"[]\n", ShapeError, 0),
    Bad("ragged", NDJSON, b"[1, 2]\n[3]\n", ShapeError, 1, "row 1 holds 1 number,"),
    Bad("ragged, blank lines between", NDJSON, b"\n[1, 2]\r\n\n[3]\n", ShapeError, 1, "row 1 holds 1 number,"),
    Bad("ragged before a line that is no JSON", NDJSON, b"[1, 2]\n[3]\n[4,", ShapeError, 1),
    Bad("no JSON before ragged", NDJSON, b"[1, 2]\n[4,\n[3]", MalformedBodyError, 1, "row 1 is not JSON"),
    Bad("a bad value before no JSON", NDJSON, b"[1, 2]\n[null, 4]\n[", NotNumericError, 1),
    Bad("a boolean", NDJSON, b"[1, 2]\n[true, 2]", NotNumericError, 1, "true"),
    Bad("a number as text", NDJSON, b'[1, 2]\n[3, 4]\n["5", 6]', NotNumericError, 2),
    Bad("a deeper array", NDJSON, b"[[1, 2], [3, 4]]", NotNumericError, 0, "array"),
    Bad("bare numbers", NDJSON, b"1\n2\n", ShapeError, 0),
    Bad("a JSON body", NDJSON, json_body([[1, 2]]), NotNumericError, 0, "an array in feature 'points'"),
    Bad("a sparse row among others", NDJSON, b'[1, 2]\n{"indices": [], "values": []}', ShapeError, 1, "object"),
    Bad("NaN", NDJSON, b"[1, 2]\n[3, NaN]", NotFiniteError, 1, "nan in column 1"),
    Bad("1e400", NDJSON, b"[1, 2]\n[1e400, 4]", NotFiniteError, 1, "inf"),
    Bad("beyond 1e150", NDJSON, b"[1, 2]\n[3, -1e151]", NotFiniteError, 1),
    Bad("two rows on a line", NDJSON, b"[1, 2]\n[3, 4] [5, 6]", MalformedBodyError, 1, "row 1"),
    Bad("a row on two lines", NDJSON, b"[1,\n2]\n", MalformedBodyError, 0),
    Bad("a byte order mark", NDJSON, b"\xef\xbb\xbf[1, 2]", MalformedBodyError, None, "byte order mark"),
    Bad("commas between", NDJSON, b"[1, 2],\n[3, 4]", MalformedBodyError, 0),
    Bad("not UTF-8", NDJSON, b"[1, 2]\n\xff", MalformedBodyError, 1),
    Bad("nested without end", NDJSON, b"[1]\n" + b"[" * 200_000, MalformedBodyError, 1),
    Bad("empty", NDJSON, b"", MalformedBodyError, None, "empty"),
    Bad("too many rows", NDJSON, b"[1]\n" * 10_001, LimitError, None, "10001"),
    Bad("too many features", NDJSON, ndjson_body([[1] * 601]), LimitError, None, "601"),
    Bad("more numbers than bytes can hold", NDJSON, b"[" + b"0," * 300_000 + b"0]", LimitError),
]

BAD_MSGPACK = [
    Bad("no points", MSGPACK, msgpack_body(F4, x=b""), ShapeError),
    Bad("no points of vast dimension", MSGPACK, msgpack_body(F4, x=b"", d=2**62), ShapeError),
    Bad("NaN", MSGPACK, msgpack_body(with_value(np.nan, "<f4")), NotFiniteError, 1, "nan"),
    Bad("infinity in f8", MSGPACK, msgpack_body(with_value(-np.inf, "<f8", at=2)), NotFiniteError, 2, "-inf"),
    Bad("1e39 cast to f4", MSGPACK, msgpack_body(with_value(1e39, "<f4")), NotFiniteError, 1, "3.4e38"),
    Bad("beyond 1e150", MSGPACK, msgpack_body(with_value(-2e150, "<f8")), NotFiniteError, 1, "-2e+150"),
    Bad("cut off", MSGPACK, msgpack_body(F4)[:-5], MalformedBodyError, None, "truncated"),
    Bad("x says it is longer", MSGPACK, b"\x82\xa1d\x02\xa1x\xc6\xff\xff\xff\xff1234", MalformedBodyError),
    Bad("d does not divide x", MSGPACK, msgpack_body(F4, d=5), MalformedBodyError, None, "d = 5"),
    Bad("t does not divide x", MSGPACK, msgpack_body(F4[:, :1], t="f8"), MalformedBodyError, None, "f8"),
    Bad("d is zero", MSGPACK, msgpack_body(F4, d=0), MalformedBodyError, None, "d is 0"),
    Bad("d is negative", MSGPACK, msgpack_body(F4, d=-2), MalformedBodyError),
    Bad("d is a float", MSGPACK, msgpack_body(F4, d=2.0), MalformedBodyError),
    Bad("d is a boolean", MSGPACK, msgpack_body(F4, d=True), MalformedBodyError),
    Bad("d is missing", MSGPACK, msgpack_body(F4, d=None), MalformedBodyError, None, "`d`"),
    Bad("x is missing", MSGPACK, msgpack_body(F4, x=None), MalformedBodyError, None, "`x`"),
    Bad("x is text", MSGPACK, msgpack_body(F4, x="12345678"), MalformedBodyError),
    Bad("x is a list", MSGPACK, msgpack_body(F4, x=[[1.0, 2.0]]), MalformedBodyError),
    Bad("unknown type", MSGPACK, msgpack_body(F4, t="f2"), MalformedBodyError),
    Bad("unknown field", MSGPACK, msgpack_body(F4, y=1), MalformedBodyError, None, "`y`"),
    Bad("key not UTF-8", MSGPACK, b"\x81\xa1\xff\x01", MalformedBodyError),
    Bad("nested lists", MSGPACK, msgspec.msgpack.encode({"points": [[1.0]]}), MalformedBodyError),
    Bad("nested without end", MSGPACK, b"\x81\xa1z" + b"\x91" * 200_000, MalformedBodyError),
    Bad("a map of four milliards", MSGPACK, b"\xdf\xff\xff\xff\xff", MalformedBodyError),
    Bad("something behind it", MSGPACK, msgpack_body(F4) + b"\x00", MalformedBodyError),
    Bad("too many features", MSGPACK, msgpack_body(np.zeros((1, 601), "<f4")), LimitError),
    Bad("too many rows", MSGPACK, msgpack_body(np.zeros((10_001, 1), "<f4")), LimitError),
]

BAD_NPY = [
    Bad("no rows", NPY, npy_body(np.empty((0, 2))), ShapeError),
    Bad("no features", NPY, npy_body(np.empty((2, 0))), ShapeError, 0),
    Bad("one-dimensional", NPY, npy_body(np.arange(3.0)), ShapeError, None, "(3,)"),
    Bad("no dimension", NPY, npy_body(np.array(3.0)), ShapeError, None, "()"),
    Bad("three-dimensional", NPY, npy_body(np.zeros((2, 2, 2))), ShapeError),
    Bad("objects", NPY, npy_body(np.array([[1.0, "a"]], dtype=object)), NotNumericError, None, "Python objects"),
    Bad("booleans", NPY, npy_body(np.ones((2, 2), bool)), NotNumericError, None, "b1"),
    Bad("complex", NPY, npy_body(np.ones((2, 2), complex)), NotNumericError),
    Bad("text", NPY, npy_body(np.array([["a", "b"]])), NotNumericError),
    Bad("dates", NPY, npy_body(np.zeros((2, 2), "M8[ns]")), NotNumericError),
    Bad("a structure", NPY, npy_body(np.zeros(2, [("a", "f8"), ("b", "f8")])), NotNumericError, None, "structured"),
    Bad("long double", NPY, npy_body(np.zeros((2, 2), np.longdouble)), NotNumericError),
    Bad("NaN", NPY, npy_body(with_value(np.nan, ">f8")), NotFiniteError, 1),
    Bad("NaN, by columns", NPY, npy_body(np.asfortranarray(with_value(np.nan, "<f8", at=2))), NotFiniteError, 2),
    Bad("1e39 cast to f4", NPY, npy_body(with_value(1e39, "<f4")), NotFiniteError, 1, "3.4e38"),
    Bad("beyond 1e150", NPY, npy_body(with_value(1e151, "<f8")), NotFiniteError, 1),
    Bad("cut off in the values", NPY, npy_body(F8)[:-1], MalformedBodyError, None, "47 bytes follow"),
    Bad("cut off in the header", NPY, npy_body(F8)[:60], MalformedBodyError),
    Bad("cut off in the preamble", NPY, npy_body(F8)[:9], MalformedBodyError),
    Bad("cut off in the version", NPY, npy_body(F8)[:7], MalformedBodyError),
    Bad("values behind the last", NPY, npy_body(F8) + b"\0", MalformedBodyError, None, "49 bytes follow"),
    Bad("header claims terabytes", NPY, npy_with_header(HEADER.replace("3, 2", "1000000000, 2")), MalformedBodyError),
    Bad("header claims no bytes", NPY, npy_with_header(HEADER.replace("3, 2", "0, 10"), b"1234"), MalformedBodyError),
    Bad("absurd digits", NPY, npy_with_header(HEADER.replace("3", "3" * 5000)), MalformedBodyError),
    Bad("negative shape", NPY, npy_with_header(HEADER.replace("3, 2", "-3, -2"), F8.tobytes()), MalformedBodyError),
    Bad("header over the limit", NPY, npy_with_header(HEADER + " " * 20_000), MalformedBodyError, None, "10000"),
    Bad("header of four gigabytes", NPY, b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}", MalformedBodyError),
    Bad("header with code in it", NPY, npy_with_header("{'descr': __import__('os')}"), MalformedBodyError),
    Bad("header of blanks", NPY, npy_with_header("{" + " " * 9_900), MalformedBodyError),
    Bad("a field twice", NPY, npy_with_header(HEADER.replace("'descr': '<f8'", "'shape': (3, 2)")), MalformedBodyError),
    Bad("future version", NPY, npy_body(F8).replace(b"\x01\x00", b"\x09\x00", 1), MalformedBodyError, None, "9.0"),
    Bad("a zip archive", NPY, b"PK\x03\x04" + bytes(100), MalformedBodyError),
    Bad("too many features", NPY, npy_body(np.zeros((1, 601))), LimitError),
    Bad("too many rows", NPY, npy_body(np.zeros((10_001, 1))), LimitError),
]

BAD_WHOLES = [
    Bad("no content type", None, json_body([[1]]), UnsupportedMediaTypeError),
    Bad("an unknown content type", "text/csv", b"1,2", UnsupportedMediaTypeError, None, "text/csv"),
    Bad("what curl sends by itself", "application/x-www-form-urlencoded", b"[[1]]", UnsupportedMediaTypeError),
    Bad("over the limit", JSON, json_body([[1.5] * 500] * 600), BodyTooLargeError, None, "1000000"),
]


BAD_BODIES = BAD_JSON + BAD_NDJSON + BAD_MSGPACK + BAD_NPY


@pytest.mark.parametrize("bad", BAD_BODIES + BAD_WHOLES, ids=title)
def test_bad_body_is_refused_by_its_own_error_and_alike_under_gzip(bad: Bad) -> None:
    refuse(bad, bad.body)
    if bad.body and bad not in BAD_WHOLES:
        refuse(bad, zipped(bad.body), content_encoding="gzip")


def test_gzip_that_grows_beyond_the_limit_is_refused_without_growing() -> None:
    bomb = gzip.compress(bytes(100_000_000), 9)
    assert len(bomb) < LIMITS.max_body_bytes
    with pytest.raises(BodyTooLargeError, match="after decompression"):
        decode(bomb, NPY, LIMITS, content_encoding="gzip")


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip", "gzip, br", "zstd"])
def test_other_content_encodings_are_refused(encoding: str) -> None:
    with pytest.raises(UnsupportedMediaTypeError):
        decode(zipped(json_body([[1]])), JSON, LIMITS, content_encoding=encoding)


def test_a_feature_that_is_named_point_is_told_how_to_be_sent() -> None:
    """The other feature was named as an unknown field of a record."""
    with pytest.raises(RecordFieldError, match=r'row 1 has 0\.3 as "point".* \{"point": \{"point": 0\.3') as refused:
        decode(b'{"mem": 1}\n{"point": 0.3, "mem": 1}', NDJSON, LIMITS)
    assert refused.value.row == 1


@pytest.mark.parametrize("rows", [2, 3])
@pytest.mark.parametrize("bare_first", [True, False])
def test_a_record_among_bare_objects_with_names_is_named_by_its_row(rows: int, bare_first: bool) -> None:
    bare, record = b'{"cpu":1}', b'{"point":{"cpu":1}}'
    first, last = (bare, record) if bare_first else (record, bare)
    body = b"\n".join([first] * (rows - 1) + [last])
    with pytest.raises(RecordFieldError, match=rf'row {rows - 1} is of .* "point"') as refused:
        decode(body, NDJSON, LIMITS)
    assert refused.value.row == rows - 1
