"""`.npy` bodies (format versions 1.0 to 3.0), read without pickle, without `eval`, and without trust in the header.

The header is a Python literal, which NumPy's own reader evaluates. Here a pattern reads its three fields, so that
nothing in it can run, recurse or use much memory. The size in the header is compared with the size of the body.
"""

import re
import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.errors import NotNumericError, ShapeError
from shoal_service.errors import MalformedBodyError
from shoal_service.wire.points import Body, Points, WireLimits, as_table, check_shape, check_values

_MAGIC = b"\x93NUMPY"
_MAX_HEADER_BYTES = 10_000
"""The limit of NumPy's own reader. A plain table needs 128."""

# possessive quantifiers (*+) never backtrack, so a hostile header costs no more than its length
_FIELD = r"""'(?:descr|fortran_order|shape)'\s*+:\s*+(?:'[^']*+'|True|False|\([0-9L,\s]*+\))"""
_HEADER = re.compile(rf"\{{\s*+{_FIELD}(?:\s*+,\s*+{_FIELD}){{2}}\s*+,?+\s*+\}}\s*+")
_DESCR = re.compile(r"'descr'\s*+:\s*+'([<>|=]?[A-Za-z][0-9]{0,9})[^']*+'")
_ORDER = re.compile(r"'fortran_order'\s*+:\s*+(True|False)")
_SHAPE = re.compile(r"'shape'\s*+:\s*+\(([0-9L,\s]*+)\)")
_LENGTH = re.compile(r"\s*+([0-9]{1,18})L?\s*+")
_NUMBERS = re.compile(r"[<>|=]?[fiu][1248]")


class _Header(NamedTuple):
    dtype: np.dtype[Any]
    fortran_order: bool
    shape: tuple[int, ...]
    data_at: int
    """Position of the first value in the body."""


def decode_npy(body: Body, limits: WireLimits) -> Points:
    """Read the points of a .npy body: a view of it for little-endian f4 or f8 in C order, else a converted copy.

    Raises MalformedBodyError (not .npy, cut short, a size that is not that of the body), NotNumericError (booleans,
    objects, text, complex numbers, structures), ShapeError (not two-dimensional, empty), NotFiniteError (with the row)
    and LimitError.
    """
    header = _read_header(body)
    if len(header.shape) != 2:
        raise ShapeError(f"the array has shape {header.shape}; send a table (N, D), one row per point")
    n_rows, n_features = header.shape
    claimed, given = n_rows * n_features * header.dtype.itemsize, len(body) - header.data_at
    if claimed != given:
        raise MalformedBodyError(
            f"the header says shape {header.shape} of {header.dtype.str}, which is {claimed} bytes, but {given} "
            "bytes follow; send the whole file"
        )
    check_shape(n_rows, n_features, limits)
    flat: npt.NDArray[Any] = np.frombuffer(body, header.dtype, offset=header.data_at)
    x = as_table(flat.reshape(n_features, n_rows).T if header.fortran_order else flat.reshape(n_rows, n_features))
    check_values(x, holes=limits.holes)
    return Points(x)


def _read_header(body: Body) -> _Header:
    text, data_at = _header_text(body)
    if "'descr': [" in text:
        raise NotNumericError("the array has a structured dtype; send a plain table of numbers")
    found = [pattern.search(text) for pattern in (_DESCR, _ORDER, _SHAPE)] if _HEADER.fullmatch(text) else [None]
    if not all(found):
        raise MalformedBodyError("the .npy header is not that of a plain array; write it with numpy.save")
    descr, order, shape = (match[1] for match in found if match)
    return _Header(_number_type(descr), order == "True", _lengths(shape), data_at)


def _header_text(body: Body) -> tuple[str, int]:
    """Read the text of the header, and the position where it ends."""
    if body[:6] != _MAGIC:
        raise MalformedBodyError("the body does not begin like a .npy file; write it with numpy.save")
    version = bytes(body[6:8])
    if version not in (b"\x01\x00", b"\x02\x00", b"\x03\x00"):
        raise MalformedBodyError(
            f"the .npy format version is {'.'.join(map(str, version)) or 'cut off'}; send 1.0 to 3.0"
        )
    length_format = "<H" if version[0] == 1 else "<I"
    text_at = 8 + struct.calcsize(length_format)
    if len(body) < text_at:
        raise MalformedBodyError("the .npy body ends before its header; send the whole file")
    (length,) = struct.unpack_from(length_format, body, 8)
    if length > _MAX_HEADER_BYTES:
        raise MalformedBodyError(
            f"the .npy header has {length} bytes, the limit is {_MAX_HEADER_BYTES}; write it with numpy.save"
        )
    if len(body) < text_at + length:
        raise MalformedBodyError("the .npy body ends within its header; send the whole file")
    return bytes(body[text_at : text_at + length]).decode("utf-8", "replace"), text_at + length


def _number_type(descr: str) -> np.dtype[Any]:
    if descr.lstrip("<>|=") == "O":
        raise NotNumericError("the array holds Python objects, which are not read for safety; send f4, f8 or integers")
    if not _NUMBERS.fullmatch(descr) or descr[-2:] == "f1":
        raise NotNumericError(f"the array has dtype {descr!r}; send real numbers: f4, f8 or integers")
    return np.dtype(descr)


def _lengths(text: str) -> tuple[int, ...]:
    """Read the lengths of the axes: `60000, 16` or `3,` or nothing."""
    parts = text.split(",")
    matches = [_LENGTH.fullmatch(part) for part in (parts if parts[-1].strip() else parts[:-1])]
    if not all(matches):
        raise MalformedBodyError(f"the .npy header has shape ({text[:60]}); write it with numpy.save")
    return tuple(int(m[1]) for m in matches if m)
