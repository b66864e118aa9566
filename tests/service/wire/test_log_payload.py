"""The log's payload: what was sent comes back, as a view where it can."""

import numpy as np
import pytest
from wire_bodies import LIMITS, MSGPACK, msgpack_body

from shoal_service.errors import MalformedBodyError
from shoal_service.wire import Points, decode, from_log, to_log


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
