"""Bytes of a header and named arrays: versioned, checksummed, deterministic, without pickle.

    magic 8 | version u32 | length of body u64 | SHA-256 of (version, length, body) | body         little-endian
    body = length of header u32 | header, canonical JSON | the arrays' bytes, C order, end to end

The header lists the arrays: name, dtype (one of `_DTYPES`), shape. The bytes before the body have the same layout in
every version, so that an old reader can tell a newer file from a damaged one.
"""

import hashlib
import json
import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.errors import SnapshotDamagedError, SnapshotVersionError

MAGIC = b"\x93SHOAL\r\n"
FORMAT_VERSION = 2
"""Format number, raised with every change that older readers would misread. Version 2 added the statistics at two
offsets, the monitor and the schedule of refinements."""

_PREAMBLE = struct.Struct("<8sIQ32s")
_SIZES = struct.Struct("<IQ")
_HEADER_LENGTH = struct.Struct("<I")
_DTYPES = {"<f8": np.dtype("<f8"), "<i8": np.dtype("<i8")}
_MOST_AXES = 8


def pack_arrays(header: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """The bytes of a JSON-able header and float64 or int64 arrays of any shape. Equal arguments give equal bytes."""
    listed, blocks = [], []
    for name, array in arrays.items():
        kind = "<f8" if array.dtype == np.float64 else "<i8"
        if kind == "<i8" and array.dtype != np.int64:
            raise AssertionError(f"array {name!r} has dtype {array.dtype}")
        listed.append([name, kind, list(array.shape)])
        blocks.append(np.ascontiguousarray(array, dtype=_DTYPES[kind]).tobytes())
    text = json.dumps({**header, "arrays": listed}, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    body = b"".join([_HEADER_LENGTH.pack(len(text)), text, *blocks])
    return _PREAMBLE.pack(MAGIC, FORMAT_VERSION, len(body), _digest(FORMAT_VERSION, body)) + body


def unpack_arrays(blob: bytes | memoryview) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Inverse of `pack_arrays`; the arrays are writable copies.

    Raises SnapshotDamagedError for bytes that are truncated, altered, or something else, and SnapshotVersionError for
    an intact file of a newer version.
    """
    body = _checked_body(memoryview(blob).cast("B"))
    if len(body) < _HEADER_LENGTH.size:
        raise SnapshotDamagedError("snapshot has no header; it was not written by shoal")
    (length,) = _HEADER_LENGTH.unpack_from(body)
    start = _HEADER_LENGTH.size + length
    try:
        header = json.loads(bytes(body[_HEADER_LENGTH.size : start]))
        listed = [_listed(entry) for entry in header.pop("arrays")]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise SnapshotDamagedError(
            f"snapshot's header cannot be read ({error}); it was not written by shoal"
        ) from error
    arrays = {}
    for name, dtype, shape in listed:
        end = start + math.prod(shape) * dtype.itemsize
        if end > len(body) or name in arrays:
            raise SnapshotDamagedError(
                f"snapshot's array {name!r} is repeated or runs past the end; it was not written by shoal"
            )
        native = np.frombuffer(body[start:end], dtype=dtype).reshape(shape)
        arrays[name] = native.astype(dtype.newbyteorder("="), copy=True)
        start = end
    if start != len(body):
        raise SnapshotDamagedError(
            f"snapshot has {len(body) - start} bytes that no array claims; it was not written by shoal"
        )
    return header, arrays


def version_of(blob: bytes) -> int:
    """The format version of bytes that `unpack_arrays` accepted."""
    return int(_PREAMBLE.unpack_from(blob)[1])


def _digest(version: int, body: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(_SIZES.pack(version, len(body)))
    digest.update(body)
    return digest.digest()


def _checked_body(blob: memoryview) -> memoryview:
    if len(blob) < _PREAMBLE.size or bytes(blob[: len(MAGIC)]) != MAGIC:
        raise SnapshotDamagedError(f"these {len(blob):,} bytes are not a shoal snapshot; send one as it was saved")
    _, version, length, digest = _PREAMBLE.unpack_from(blob)
    body = blob[_PREAMBLE.size :]
    if len(body) != length:
        raise SnapshotDamagedError(
            f"snapshot holds {len(body):,} bytes of {length:,}; it is truncated or altered, send it whole"
        )
    if _digest(version, body) != digest:
        raise SnapshotDamagedError("snapshot's checksum does not match; it is damaged, send an intact copy")
    if version > FORMAT_VERSION:
        raise SnapshotVersionError(
            f"snapshot has format {version}, this shoal reads up to {FORMAT_VERSION}; upgrade shoal"
        )
    return body


def _listed(entry: Any) -> tuple[str, np.dtype[Any], tuple[int, ...]]:
    name, kind, shape = entry
    if not isinstance(name, str) or kind not in _DTYPES:
        raise ValueError(f"array {name!r} of dtype {kind!r}")
    if len(shape) > _MOST_AXES or not all(type(size) is int and 0 <= size < 1 << 48 for size in shape):
        raise ValueError(f"array {name!r} of shape {shape!r}")
    return name, _DTYPES[kind], tuple(shape)
