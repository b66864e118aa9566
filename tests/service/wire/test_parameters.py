"""Query strings, names and headers."""

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from wire_bodies import LIMITS

from shoal.errors import InputError, NotFiniteError, NotNumericError, ShapeError
from shoal_service.errors import HostNotAllowedError, LimitError, ParameterError, RequestError, StreamNameError
from shoal_service.wire import (
    check_host,
    check_idempotency_key,
    check_stream_name,
    decode_cursor,
    encode_cursor,
    parse_points_query,
    request_digest,
)

FIXED = settings(derandomize=True, deadline=None, database=None)


def test_points_in_a_query() -> None:
    x = parse_points_query(["1.2,3.4", "-5, .5", "1e3,+7."], LIMITS, max_points=3).x
    np.testing.assert_array_equal(x, [[1.2, 3.4], [-5, 0.5], [1000, 7]])
    assert x.dtype == np.float64


@pytest.mark.parametrize(
    ("values", "error", "row"),
    [
        ([], ParameterError, None),
        (["1"] * 4, LimitError, None),
        ([",".join("1" * 601)], LimitError, None),
        (["1,2", "3"], ShapeError, 1),
        (["1,2", "3,"], NotNumericError, 1),
        ([""], NotNumericError, 0),
        (["1", "true"], NotNumericError, 1),
        (["1", "'2'"], NotNumericError, 1),
        (["1_000"], NotNumericError, 0),
        (["0x10"], NotNumericError, 0),
        (["\u0663"], NotNumericError, 0),
        (["1e 5"], NotNumericError, 0),
        (["1,\t2"], NotNumericError, 0),
        (["1,\n2"], NotNumericError, 0),
        (["1],[2"], NotNumericError, 0),
        (["[1]"], NotNumericError, 0),
        (["1", "nan"], NotFiniteError, 1),
        (["1", "2", "-Infinity"], NotFiniteError, 2),
        (["1e400"], NotFiniteError, 0),
        (["1", "1e151"], NotFiniteError, 1),
    ],
)
def test_bad_points_in_a_query(values: list[str], error: type[InputError | RequestError], row: int | None) -> None:
    with pytest.raises(error) as caught:
        parse_points_query(values, LIMITS, max_points=3)
    assert caught.value.row == row


def test_missing_values_in_a_query() -> None:
    holes = replace(LIMITS, holes=True)
    x = parse_points_query(["1,,3", "nan, 2,NULL", ",,-1"], holes, max_points=3).x
    np.testing.assert_array_equal(x, [[1, np.nan, 3], [np.nan, 2, np.nan], [np.nan, np.nan, -1]])
    for text, error in [(",,", NotFiniteError), ("1,inf,2", NotFiniteError), ("1,none,2", NotNumericError)]:
        with pytest.raises(error) as caught:
            parse_points_query(["1,,3", text], holes, max_points=3)
        assert caught.value.row == 1
    with pytest.raises(NotNumericError):
        parse_points_query(["1,,3"], LIMITS, max_points=3)


@FIXED
@given(st.lists(st.text(max_size=20), max_size=4))
def test_any_text_in_a_query_is_taken_or_refused_by_the_tree(values: list[str]) -> None:
    with contextlib.suppress(InputError, RequestError):
        assert np.isfinite(parse_points_query(values, LIMITS, max_points=3).x).all()


@FIXED
@given(
    st.lists(st.floats(-1e150, 1e150), min_size=1, max_size=5), st.sampled_from(["{!r}", "{:.40g}", "{:e}", "+{!r}"])
)
def test_numbers_of_a_query_are_those_that_python_reads(values: list[float], form: str) -> None:
    texts = [form.format(abs(value) if "+" in form else value) for value in values]
    x = parse_points_query([",".join(texts)], LIMITS, max_points=3).x
    np.testing.assert_array_equal(x, [[float(text) for text in texts]])


@pytest.mark.parametrize("name", ["default", "a", "0", "a-b_c", "a" * 64])
def test_stream_names(name: str) -> None:
    assert check_stream_name(name) == name


@pytest.mark.parametrize("name", ["", "A", "-a", "_a", "a b", "a/b", "..", "a" * 65, "é", "a\n", "\u0661"])
def test_bad_stream_names(name: str) -> None:
    with pytest.raises(StreamNameError):
        check_stream_name(name)


@pytest.mark.parametrize("key", ["a", "b" * 128, "a b", "7f1b8c6e-3f0e-4d7a-9c55-2b8f6f0f6a11"])
def test_idempotency_keys(key: str) -> None:
    assert check_idempotency_key(key) == key


@pytest.mark.parametrize("key", ["", "b" * 129, " a", "a ", "a\n", "é", "\x7f"])
def test_bad_idempotency_keys(key: str) -> None:
    with pytest.raises(ParameterError):
        check_idempotency_key(key)


def test_the_digest_tells_requests_apart() -> None:
    asked = [
        (b"ab", "c", "d"),
        (b"ab", "cd", ""),
        (b"ab", "", "cd"),
        (b"abc", "", "d"),
        (b"", "c", "dab"),
        (b"a", "b", "cd"),
    ]
    assert len({request_digest(*request) for request in asked}) == len(asked)
    assert request_digest(b"ab", None, None) == request_digest(bytearray(b"ab"), "", "")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000", "[::1]", "localhost."])
def test_hosts(host: str) -> None:
    check_host(host, {"localhost", "127.0.0.1", "[::1]"})


@pytest.mark.parametrize(
    "host", [None, "", ":8000", "evil.example", "localhost.evil.example", "[::2]:8000", "localhost@evil"]
)
def test_other_hosts(host: str | None) -> None:
    with pytest.raises(HostNotAllowedError):
        check_host(host, {"localhost", "127.0.0.1", "[::1]"})
    check_host(host, {"*"})


@FIXED
@given(st.floats(0, allow_infinity=False, allow_nan=False), st.integers(0, 2**53 - 1))
def test_cursors_come_back_exactly(mass: float, component: int) -> None:
    text = encode_cursor(mass, component)
    assert text.replace("-", "").replace("_", "").isalnum()
    assert decode_cursor(text) == (mass, component)


@pytest.mark.parametrize(
    "text", ["", "a", "AAAA", "é", "=", encode_cursor(-1.0, 0), encode_cursor(np.nan, 0), encode_cursor(1.0, -1)]
)
def test_other_text_is_no_cursor(text: str) -> None:
    with pytest.raises(ParameterError, match="cursor"):
        decode_cursor(text)
