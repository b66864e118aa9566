"""MessagePack bodies: `{"d": D, "x": bytes, "t": "f4" | "f8"}`, x being little-endian, row after row."""

from typing import Literal

import msgspec
import numpy as np

from shoal_service.errors import MalformedBodyError
from shoal_service.wire.points import Body, Points, WireLimits, as_table, check_shape, check_values


class MsgpackBody(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of a body; the log holds its batches in the same form."""

    d: int
    x: memoryview
    t: Literal["f4", "f8"] = "f4"


_DECODER = msgspec.msgpack.Decoder(MsgpackBody)
_EXPECTED = 'send {"d": features, "x": little-endian bytes, "t": "f4" or "f8"}'


def decode_msgpack(body: Body, limits: WireLimits) -> Points:
    """The points of a MessagePack body: a view of it where its bytes are aligned, else a copy.

    MalformedBodyError (truncated, unknown fields, x no multiple of the row's size), ShapeError (no points),
    NotFiniteError (names the row), LimitError.
    """
    table = read_msgpack(body)
    check_shape(*table.shape, limits)
    x = as_table(table)
    check_values(x)
    return Points(x)


def read_msgpack(body: Body | memoryview) -> np.ndarray[tuple[int, int], np.dtype[np.floating]]:
    """The table (N, D) that a body holds, as a view of it: little-endian, perhaps unaligned, values unchecked."""
    try:
        fields = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedBodyError(f"the body is not points in MessagePack: {str(error)[:200]}; {_EXPECTED}") from None
    dtype = np.dtype("<" + fields.t)
    if fields.d < 1:
        raise MalformedBodyError(f"d is {fields.d}; send the number of features, at least 1")
    n_rows, left_over = divmod(len(fields.x), fields.d * dtype.itemsize)
    if left_over:
        raise MalformedBodyError(
            f"x holds {len(fields.x)} bytes, which is no multiple of d = {fields.d} numbers of {dtype.itemsize} bytes"
            f" ({fields.t}); check d and t"
        )
    if n_rows == 0:
        return np.empty((0, 1), dtype)  # whatever d claims
    return np.frombuffer(fields.x, dtype).reshape(n_rows, fields.d)
