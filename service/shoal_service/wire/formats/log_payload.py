"""Points as the log stores them: a MessagePack body as on the wire, in a layout that is read without a copy.

    offset  0   83            a map of three
            1   a1 "d" cf     D as an unsigned 64-bit integer, in full length
           12   a1 "t" a2     "f4" or "f8"
           17   a1 "x" c6     length in four bytes, then the values, little-endian, row after row
           24   ...

D is written in its longest form, so that the values begin at a multiple of eight. Unaligned arrays are slower, and have
another type in compiled code. Sparse rows stay sparse, in the map that `csr` describes.
"""

import struct

import numpy as np
import numpy.typing as npt

from shoal_service.errors import LimitError
from shoal_service.wire.formats.csr import Csr, write_csr
from shoal_service.wire.formats.msgpack_body import read_msgpack
from shoal_service.wire.points import Body, Points, Sparse

_HEAD = struct.Struct(">4sQ3s2s3sI")
_MAX_BYTES = 2**32 - 1


def to_log(points: Points) -> bytes:
    """Write the payload of a batch, with one copy of the values. float32 stays float32: the log keeps what was sent."""
    if not isinstance(points.x, np.ndarray):
        return write_csr(points.x)
    single = points.x.dtype == np.float32
    x = np.ascontiguousarray(points.x, "<f4" if single else "<f8")
    if x.nbytes > _MAX_BYTES:
        raise LimitError(
            f"the batch holds {x.nbytes} bytes of numbers, the limit is {_MAX_BYTES}; send smaller batches"
        )
    kind = b"f4" if single else b"f8"
    head = _HEAD.pack(b"\x83\xa1d\xcf", points.n_features, b"\xa1t\xa2", kind, b"\xa1x\xc6", x.nbytes)
    return b"".join((head, x.data))


def from_log(payload: Body | memoryview) -> "npt.NDArray[np.float64] | Sparse":
    """Read the points (N, D) of a payload as float64: a read-only view if it holds f8, else a converted copy.

    Points that were sent as sparse rows stay sparse. Values are not checked again. Raises MalformedBodyError.
    """
    points = read_msgpack(payload)
    return points.matrix() if isinstance(points, Csr) else np.require(points, np.float64, ["C", "ALIGNED"])
