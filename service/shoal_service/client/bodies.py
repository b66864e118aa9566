"""A batch as the body of a request, in the format that the caller chose."""

import io
import itertools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import msgspec
import numpy as np

from shoal_service.client.errors import BadPointsError
from shoal_service.client.points import Batch, is_sparse

Format: TypeAlias = Literal["msgpack", "ndjson", "arrow"]


class Body(NamedTuple):
    """Bytes, and what they say they are."""

    content: bytes
    content_type: str


def body_of(batch: Batch, kind: Format) -> Body:
    """The batch in a format; each keeps every number to the bit. BadPointsError for what it cannot hold."""
    return _WRITERS[kind](batch.x)


def checked_format(kind: Any) -> Format:
    """The same; BadPointsError for a format that is not known, or whose library is not installed."""
    if kind not in get_args(Format):
        raise BadPointsError(f"format is {kind!r}; give one of {', '.join(get_args(Format))}")
    if kind == "arrow":
        _pyarrow()
    return kind  # type: ignore[no-any-return]


def _msgpack(x: Any) -> Body:
    """The fewest bytes and the least work: {"d": D, "t": "f4" or "f8", "x": values}, or compressed rows in arrays."""
    if is_sparse(x):
        arrays = {"indptr": ("<i8", x.indptr), "indices": ("<i4", x.indices), "values": ("<f8", x.data)}
        fields: dict[str, Any] = {n: np.ascontiguousarray(a, t).data.cast("B") for n, (t, a) in arrays.items()}
    else:
        kind = "f4" if x.dtype == np.float32 else "f8"
        fields = {"t": kind, "x": np.ascontiguousarray(x, dtype=f"<{kind}").data.cast("B")}
    return Body(msgspec.msgpack.encode({"d": x.shape[1], **fields}), "application/msgpack")


def _ndjson(x: Any) -> Body:
    """A row a line; for whoever wants to read what is sent."""
    if is_sparse(x):
        bounds = itertools.pairwise(x.indptr)
        rows = [{"indices": x.indices[a:b].tolist(), "values": x.data[a:b].tolist()} for a, b in bounds]
        return Body(msgspec.json.Encoder().encode_lines(rows), "application/x-ndjson")
    return Body(msgspec.json.Encoder().encode_lines(x.tolist()), "application/x-ndjson")


def _arrow(x: Any) -> Body:
    """One column of fixed-size lists."""
    if is_sparse(x):
        raise BadPointsError("points are a sparse matrix, which Arrow has no column for; send it as msgpack or ndjson")
    pa = _pyarrow()
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(x).ravel()), x.shape[1])
    batch = pa.record_batch([lists], ["x"])
    file = io.BytesIO()
    with pa.ipc.new_stream(file, batch.schema) as stream:
        stream.write_batch(batch)
    return Body(file.getvalue(), "application/vnd.apache.arrow.stream")


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError:
        raise BadPointsError("format 'arrow' needs pyarrow; pip install 'shoal[arrow]', or use msgpack") from None
    return pyarrow


_WRITERS: dict[Format, Callable[[Any], Body]] = {"msgpack": _msgpack, "ndjson": _ndjson, "arrow": _arrow}
