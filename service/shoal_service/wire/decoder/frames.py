"""Protocol between the service and its decoding child, over two pipes.

A frame is the length of a head (four bytes), the head in MessagePack, and the raw bytes that the head announces. Bodies
go one way. Points or errors come back. Both are plain data.
"""

import struct
from typing import IO, TypeVar

import msgspec
import numpy as np

from shoal.errors import InputError
from shoal_service.errors import RequestError
from shoal_service.wire.formats.log_payload import fields_from_log, from_log, to_log
from shoal_service.wire.points import Body, Points, Table, TextColumns, WireLimits
from shoal_service.wire.record_columns import RecordColumns

_LENGTH = struct.Struct("<I")


class DecodeRequest(msgspec.Struct, frozen=True):
    """Request to decode a body, whose bytes follow."""

    content_type: str | None
    content_encoding: str | None
    limits: WireLimits
    n_bytes: int
    n_features: int | None = None
    columns: RecordColumns | None = None


class Fault(msgspec.Struct, frozen=True):
    """An error on its way to the other process. `kind`: the class in the error trees; None for an unexpected error."""

    kind: str | None
    message: str
    row: int | None = None
    column: int | None = None


class Answer(msgspec.Struct, frozen=True):
    """Shape and type of the points, whose bytes follow; or a fault, and nothing follows.

    Sparse points, and points with record fields, follow in the format of the log, in `log_bytes` bytes.
    """

    shape: tuple[int, int] = (0, 0)
    dtype: str = "<f8"
    log_bytes: int | None = None
    names: tuple[str, ...] | None = None
    texts: TextColumns | None = None
    fault: Fault | None = None


Head = TypeVar("Head", DecodeRequest, Answer)


def send(pipe: IO[bytes], head: DecodeRequest | Answer, payload: Body | memoryview = b"") -> None:
    """Write one frame. Raises OSError if the other process has ended."""
    encoded = msgspec.msgpack.encode(head)
    _write_all(pipe, _LENGTH.pack(len(encoded)) + encoded)
    _write_all(pipe, payload)


def receive(pipe: IO[bytes], kind: type[Head]) -> Head:
    """Read the head of the next frame. Raises EOFError if the other process has closed the pipe."""
    (length,) = _LENGTH.unpack(read_exactly(pipe, _LENGTH.size))
    return msgspec.msgpack.decode(read_exactly(pipe, length), type=kind)


def read_exactly(pipe: IO[bytes], n_bytes: int) -> bytearray:
    """Read the next `n_bytes` of the pipe. Raises EOFError if it ends earlier."""
    data = bytearray(n_bytes)
    _fill(pipe, memoryview(data))
    return data


def send_points(pipe: IO[bytes], points: Points) -> None:
    """Write an answer with these points."""
    x = points.x
    if isinstance(x, np.ndarray) and points.fields is None:
        shape = (x.shape[0], x.shape[1])
        head = Answer(shape=shape, dtype=x.dtype.str, names=points.names, texts=points.texts)
        send(pipe, head, x.data.cast("B"))
    else:
        payload = to_log(points)
        send(pipe, Answer(log_bytes=len(payload), names=points.names, texts=points.texts), payload)


def read_points(pipe: IO[bytes], answer: Answer) -> Points:
    """Read the points that follow an answer."""
    if answer.log_bytes is not None:
        payload = read_exactly(pipe, answer.log_bytes)
        return Points(from_log(payload), fields_from_log(payload), answer.names, answer.texts)
    table: Table = np.empty(answer.shape, answer.dtype)
    _fill(pipe, table.data.cast("B"))
    return Points(table, names=answer.names, texts=answer.texts)


def fault_of(error: Exception) -> Fault:
    """Make the fault to send for an error."""
    return Fault(type(error).__name__, str(error), getattr(error, "row", None), getattr(error, "column", None))


def error_of(fault: Fault) -> Exception:
    """Make the error that the other process raised, of the same class; RuntimeError for an unexpected one."""
    kind = _kinds().get(fault.kind or "")
    if kind is None:
        return RuntimeError(f"decoding failed: {fault.message}")
    error = kind(fault.message, row=fault.row)
    if isinstance(error, InputError):
        error.column = fault.column
    return error


def _kinds() -> dict[str, type[InputError] | type[RequestError]]:
    return {kind.__name__: kind for root in (InputError, RequestError) for kind in (root, *root.__subclasses__())}


def _fill(pipe: IO[bytes], view: memoryview) -> None:
    filled = 0
    while filled < len(view):
        n = pipe.readinto(view[filled:])  # type: ignore[attr-defined]  # an unbuffered pipe has it, typing.IO has not
        if not n:
            raise EOFError("the pipe ended in the middle of a frame" if filled else "the pipe ended")
        filled += n


def _write_all(pipe: IO[bytes], data: Body | memoryview) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[pipe.write(rest) :]
