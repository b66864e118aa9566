"""What the service and its decoding child say to each other over a pair of pipes.

A frame is the length of a head (four bytes), the head in MessagePack, then the raw bytes that the head announces. Only
plain data crosses: bodies one way, numbers or a refusal the other.
"""

import struct
from typing import IO, TypeVar

import msgspec
import numpy as np

from shoal.errors import InputError
from shoal_service.errors import RequestError
from shoal_service.wire.log_payload import from_log, to_log
from shoal_service.wire.points import Body, Points, Table, WireLimits

_LENGTH = struct.Struct("<I")


class Ask(msgspec.Struct, frozen=True):
    """A body to decode; its bytes follow."""

    content_type: str | None
    content_encoding: str | None
    limits: WireLimits
    n_bytes: int
    n_features: int | None = None


class Fault(msgspec.Struct, frozen=True):
    """An error of the tree, on its way to the other process; `kind` None is an error that nobody foresaw."""

    kind: str | None
    message: str
    row: int | None = None


class Answer(msgspec.Struct, frozen=True):
    """The shape and type of the points, whose bytes follow, or a fault, after which nothing does.

    Sparse points follow as the log has them, in `sparse_bytes` bytes.
    """

    shape: tuple[int, int] = (0, 0)
    dtype: str = "<f8"
    sparse_bytes: int | None = None
    fault: Fault | None = None


Head = TypeVar("Head", Ask, Answer)


def send(pipe: IO[bytes], head: Ask | Answer, payload: Body | memoryview = b"") -> None:
    """Write one frame. OSError when the other side is gone."""
    encoded = msgspec.msgpack.encode(head)
    _write_all(pipe, _LENGTH.pack(len(encoded)) + encoded)
    _write_all(pipe, payload)


def receive(pipe: IO[bytes], kind: type[Head]) -> Head:
    """Read the head of the next frame. EOFError when the other side has closed."""
    (length,) = _LENGTH.unpack(read_exactly(pipe, _LENGTH.size))
    return msgspec.msgpack.decode(read_exactly(pipe, length), type=kind)


def read_exactly(pipe: IO[bytes], n_bytes: int) -> bytearray:
    """The next `n_bytes` of the pipe; EOFError when it ends before."""
    data = bytearray(n_bytes)
    _fill(pipe, memoryview(data))
    return data


def send_points(pipe: IO[bytes], points: Points) -> None:
    """Write the answer that holds these points."""
    x = points.x
    if isinstance(x, np.ndarray):
        send(pipe, Answer(shape=(x.shape[0], x.shape[1]), dtype=x.dtype.str), x.data.cast("B"))
    else:
        payload = to_log(points)
        send(pipe, Answer(sparse_bytes=len(payload)), payload)


def read_points(pipe: IO[bytes], answer: Answer) -> Points:
    """The points that follow an answer."""
    if answer.sparse_bytes is not None:
        return Points(from_log(read_exactly(pipe, answer.sparse_bytes)))
    table: Table = np.empty(answer.shape, answer.dtype)
    _fill(pipe, table.data.cast("B"))
    return Points(table)


def fault_of(error: Exception) -> Fault:
    """What to send for an error of the trees that this room raises."""
    return Fault(type(error).__name__, str(error), getattr(error, "row", None))


def error_of(fault: Fault) -> Exception:
    """The error that was raised on the other side, of the same type; RuntimeError for one that nobody foresaw."""
    kind = _kinds().get(fault.kind or "")
    return kind(fault.message, row=fault.row) if kind else RuntimeError(f"decoding failed: {fault.message}")


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
