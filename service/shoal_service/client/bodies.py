"""Batches as request bodies, in the format that the caller chose."""

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
    """Bytes with their content type."""

    content: bytes
    content_type: str


def body_of(batch: Batch, kind: Format) -> Body:
    """Write a batch in a format. Every format keeps all bits of every number. Raises BadPointsError."""
    return _WRITERS[kind](batch.x)


def checked_format(kind: Any) -> Format:
    """Return a known format. Raises BadPointsError for an unknown one, and if its library is not installed."""
    if kind not in get_args(Format):
        raise BadPointsError(f"format is {kind!r}; use one of {', '.join(get_args(Format))}")
    if kind == "arrow":
        _pyarrow()
    return kind  # type: ignore[no-any-return]


def _msgpack(x: Any) -> Body:
    """The smallest and fastest format: {"d": D, "t": "f4" or "f8", "x": values}, or the arrays of compressed rows."""
    if is_sparse(x):
        arrays = {"indptr": ("<i8", x.indptr), "indices": ("<i4", x.indices), "values": ("<f8", x.data)}
        fields: dict[str, Any] = {n: np.ascontiguousarray(a, t).data.cast("B") for n, (t, a) in arrays.items()}
    else:
        kind = "f4" if x.dtype == np.float32 else "f8"
        fields = {"t": kind, "x": np.ascontiguousarray(x, dtype=f"<{kind}").data.cast("B")}
    return Body(msgspec.msgpack.encode({"d": x.shape[1], **fields}), "application/msgpack")


def _ndjson(x: Any) -> Body:
    """One row per line, readable for people."""
    if is_sparse(x):
        bounds = itertools.pairwise(x.indptr)
        rows = [{"indices": x.indices[a:b].tolist(), "values": x.data[a:b].tolist()} for a, b in bounds]
        return Body(msgspec.json.Encoder().encode_lines(rows), "application/x-ndjson")
    return Body(msgspec.json.Encoder().encode_lines(x.tolist()), "application/x-ndjson")


def _arrow(x: Any) -> Body:
    """One column of fixed-size lists."""
    if is_sparse(x):
        raise BadPointsError("points are a sparse matrix, which Arrow cannot hold; use format msgpack or ndjson")
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
        raise BadPointsError(
            "format 'arrow' needs pyarrow; install it with pip install 'shoal[arrow]', or use msgpack"
        ) from None
    return pyarrow


_WRITERS: dict[Format, Callable[[Any], Body]] = {"msgpack": _msgpack, "ndjson": _ndjson, "arrow": _arrow}
