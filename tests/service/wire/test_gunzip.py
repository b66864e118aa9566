"""The bound of gunzip, and the shapes that gzip comes in."""

import gzip
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_service.errors import BodyTooLargeError, MalformedBodyError
from shoal_service.wire.formats.gunzip import gunzip

NOISE = np.random.default_rng(0).bytes(300_000)


@settings(derandomize=True, deadline=None, database=None, max_examples=60)
@given(st.lists(st.binary(max_size=200), min_size=1, max_size=5), st.integers(0, 9), st.integers(0, 3))
def test_members_and_padding(parts: list[bytes], level: int, padding: int) -> None:
    body = b"".join(gzip.compress(part, level) for part in parts) + bytes(padding)
    assert gunzip(body, 1_000) == b"".join(parts)


@pytest.mark.parametrize("data", [NOISE, bytes(300_000), NOISE + bytes(65_536), b"ab" * 65_536], ids=len)
@pytest.mark.parametrize("level", [0, 1, 9])
def test_bodies_longer_than_a_step(data: bytes, level: int) -> None:
    assert gunzip(gzip.compress(data, level), len(data)) == data
    with pytest.raises(BodyTooLargeError):
        gunzip(gzip.compress(data, level), len(data) - 1)


@pytest.mark.parametrize("kept", [0, 1, 5, 10, 100, 150_000, -9, -8, -1])
def test_cut_short(kept: int) -> None:
    with pytest.raises(MalformedBodyError):
        gunzip(gzip.compress(NOISE)[:kept], 10**6)


def test_wrong_checksum() -> None:
    body = bytearray(gzip.compress(b"points"))
    body[-6] ^= 1
    with pytest.raises(MalformedBodyError, match="damaged"):
        gunzip(bytes(body), 100)


@pytest.mark.parametrize("rest", [b"x", b"\0\0x", gzip.compress(b"b", mtime=0)[:-1]])
def test_rubbish_behind_a_member(rest: bytes) -> None:
    with pytest.raises(MalformedBodyError):
        gunzip(gzip.compress(b"a") + rest, 100)


def test_bare_zlib_is_no_gzip() -> None:
    with pytest.raises(MalformedBodyError):
        gunzip(zlib.compress(b"a"), 100)


def test_members_without_end_are_refused() -> None:
    with pytest.raises(MalformedBodyError, match="members"):
        gunzip(gzip.compress(b"") * 5_000, 100)


def test_a_bomb_takes_no_memory() -> None:
    bomb = gzip.compress(bytes(50_000_000), 9)
    tracemalloc.start()
    with pytest.raises(BodyTooLargeError):
        gunzip(bomb, 100_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000
