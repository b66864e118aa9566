"""The log's payload: what was sent comes back, as a view where it can."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from wire_bodies import LIMITS, MSGPACK, msgpack_body

from shoal_service.errors import MalformedBodyError
from shoal_service.wire import Points, RecordFields, Texts, decode, fields_from_log, from_log, to_log


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (3, 2), (1000, 16), (2, 300)])
def test_round_trip(kind: type, shape: tuple[int, int]) -> None:
    x = np.random.default_rng(1).normal(size=shape).astype(kind)
    back = from_log(to_log(Points(x)))
    assert back.dtype == np.float64
    assert back.flags.c_contiguous
    assert back.flags.aligned
    np.testing.assert_array_equal(back, x)


def test_double_precision_is_read_without_a_copy() -> None:
    payload = to_log(Points(np.ones((5, 3))))
    back = from_log(payload)
    assert np.shares_memory(back, np.frombuffer(payload, np.uint8))
    assert not back.flags.writeable


def test_single_precision_is_kept_as_it_was_sent() -> None:
    x = np.ones((5, 3), np.float32)
    assert len(to_log(Points(x))) == 24 + x.nbytes


def test_a_payload_is_a_body_of_the_wire() -> None:
    x = np.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(decode(to_log(Points(x)), MSGPACK, LIMITS).x, x)
    np.testing.assert_array_equal(from_log(msgpack_body(x)), x)


def test_the_payload_is_canonical() -> None:
    assert to_log(Points(np.array([[1.0]]))).hex() == "83a164cf0000000000000001a174a26638a178c600000008000000000000f03f"


@pytest.mark.parametrize("payload", [b"", b"\x80", to_log(Points(np.ones((2, 2))))[:-1]])
def test_what_is_no_payload_is_refused(payload: bytes) -> None:
    with pytest.raises(MalformedBodyError):
        from_log(payload)


FIELDS = RecordFields(
    1234.5,
    Texts.of([b"a", b"", "ключ".encode()]),
    np.array([1.5, np.nan, -2.0]),
    np.array([False, False, True]),
    Texts.of([b"", b'{"a":1}', b""]),
)


@pytest.mark.parametrize("x", [np.arange(6.0).reshape(3, 2), np.ones((3, 5), np.float32), sparse.csr_array(np.eye(3))])
@pytest.mark.parametrize("fields", [FIELDS, RecordFields(0.0, None, None, None, None)])
def test_record_fields_come_back_beside_the_points(x: Any, fields: RecordFields) -> None:
    payload = to_log(Points(x, fields))
    points = from_log(payload)
    if isinstance(x, np.ndarray):
        np.testing.assert_array_equal(points, x)
        if x.dtype == np.float64:
            assert points.ctypes.data % 8 == 0
            assert np.shares_memory(points, np.frombuffer(payload, np.uint8))
    else:
        np.testing.assert_array_equal(points.toarray(), x.toarray())
    back = fields_from_log(payload)
    assert back.arrived == fields.arrived
    for found, sent in ((back.keys, fields.keys), (back.payloads, fields.payloads)):
        assert (found is None) is (sent is None)
        assert list(found or ()) == list(sent or ())
    np.testing.assert_equal(back.times, fields.times)
    np.testing.assert_equal(back.time_is_text, fields.time_is_text)


def test_a_batch_without_record_fields_has_none() -> None:
    assert fields_from_log(to_log(Points(np.ones((2, 2))))) is None


def test_record_fields_that_are_cut_short_or_of_another_version_are_refused() -> None:
    payload = to_log(Points(np.ones((3, 2)), FIELDS))
    for cut in (1, 8, 15, 40, len(payload) - 1):
        with pytest.raises(MalformedBodyError):
            fields_from_log(payload[:cut])
    with pytest.raises(MalformedBodyError, match="another version"):
        from_log(payload[:7] + b"\x02" + payload[8:])
