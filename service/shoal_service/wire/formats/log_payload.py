"""Points as the log stores them: a MessagePack body as on the wire, in a layout that is read without a copy.

    offset  0   83            a map of three
            1   a1 "d" cf     D as an unsigned 64-bit integer, in full length
           12   a1 "t" a2     "f4" or "f8"
           17   a1 "x" c6     length in four bytes, then the values, little-endian, row after row
           24   ...

D is written in its longest form, so that the values begin at a multiple of eight. Unaligned arrays are slower, and have
another type in compiled code. Sparse rows stay sparse, in the map that `csr` describes.

A batch with record fields has a head before the points, and the fields after them. The byte c1 begins no MessagePack.

    offset  0   c1 "fields" 01   the version of this layout
            8   length of the points, u8, big-endian
           16   the points as above, then the fields as `record_fields` packs them
"""

import struct

import numpy as np
import numpy.typing as npt

from shoal_service.errors import LimitError, MalformedBodyError
from shoal_service.wire.formats.csr import Csr, write_csr
from shoal_service.wire.formats.msgpack_body import read_msgpack
from shoal_service.wire.points import Body, Points, Sparse
from shoal_service.wire.record_fields import (
    RecordFields,
    pack_fields,
    packed_times,
    packed_weights,
    unpack_fields,
)

_HEAD = struct.Struct(">4sQ3s2s3sI")
_MAX_BYTES = 2**32 - 1


_FIELDS_HEAD = struct.Struct(">8sQ")
_FIELDS_MAGIC = b"\xc1fields\x01"


def to_log(points: Points) -> bytes:
    """Write the payload of a batch. float32 stays float32: the log keeps what was sent.

    Copies the values once, or twice with record fields. Without them the bytes are those of earlier versions.
    """
    plain = _points_to_log(points)
    if points.fields is None:
        return plain
    return b"".join((_FIELDS_HEAD.pack(_FIELDS_MAGIC, len(plain)), plain, pack_fields(points.fields)))


def _points_to_log(points: Points) -> bytes:
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
    points = read_msgpack(_parts(payload)[0])
    return points.matrix() if isinstance(points, Csr) else np.require(points, np.float64, ["C", "ALIGNED"])


def fields_from_log(payload: Body | memoryview) -> RecordFields | None:
    """Read the record fields of a payload. None where it holds none. Raises MalformedBodyError."""
    fields = _parts(payload)[1]
    return None if fields is None else unpack_fields(fields)


def weights_from_log(payload: Body | memoryview) -> npt.NDArray[np.float64] | None:
    """Read the weights of a payload. None where each point counts once. Raises MalformedBodyError."""
    fields = _parts(payload)[1]
    return None if fields is None else packed_weights(fields)


def times_from_log(payload: Body | memoryview) -> tuple[npt.NDArray[np.float64] | None, float | None] | None:
    """Read the times of a payload and when it was accepted, as `packed_times`. None where it holds no fields.

    Raises MalformedBodyError.
    """
    fields = _parts(payload)[1]
    return None if fields is None else packed_times(fields)


def _parts(payload: Body | memoryview) -> tuple[Body | memoryview, memoryview | None]:
    """The points of a payload, and its fields."""
    view = memoryview(payload)
    if view[:1] != _FIELDS_MAGIC[:1]:
        return payload, None
    magic, length = _FIELDS_HEAD.unpack_from(view) if len(view) >= _FIELDS_HEAD.size else (b"", 0)
    end = _FIELDS_HEAD.size + length
    if magic != _FIELDS_MAGIC or end > len(view):
        raise MalformedBodyError("a batch of the log has record fields of another version, or is cut short")
    return view[_FIELDS_HEAD.size : end], view[end:]
