"""Batches as request bodies, in the format that the caller chose."""

import io
import itertools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import msgspec
import numpy as np

from shoal.errors import did_you_mean
from shoal_service.client.errors import BadPointsError
from shoal_service.client.points import Batch, is_sparse

Format: TypeAlias = Literal["msgpack", "ndjson", "arrow"]


class Body(NamedTuple):
    """Bytes with their content type."""

    content: bytes
    content_type: str


def body_of(batch: Batch, kind: Format) -> Body:
    """Write a batch in a format. Every format keeps all bits of every number. Raises BadPointsError."""
    return _WRITERS[kind](batch)


def checked_format(kind: Any) -> Format:
    """Return a known format. Raises BadPointsError for an unknown one, and if its library is not installed."""
    if kind not in get_args(Format):
        raise BadPointsError(
            f"format is {kind!r}; {did_you_mean(kind, get_args(Format))}use one of {', '.join(get_args(Format))}"
        )
    if kind == "arrow":
        _pyarrow()
    return kind  # type: ignore[no-any-return]


def _msgpack(batch: Batch) -> Body:
    """The smallest and fastest format: {"d": D, "t": "f4" or "f8", "x": values}, or the arrays of compressed rows."""
    x = batch.x
    if is_sparse(x):
        arrays = {"indptr": ("<i8", x.indptr), "indices": ("<i4", x.indices), "values": ("<f8", x.data)}
        fields: dict[str, Any] = {n: np.ascontiguousarray(a, t).data.cast("B") for n, (t, a) in arrays.items()}
    else:
        kind = "f4" if x.dtype == np.float32 else "f8"
        fields = {"t": kind, "x": np.ascontiguousarray(x, dtype=f"<{kind}").data.cast("B")}
    if batch.names is not None:
        fields["f"] = batch.names
    if batch.texts:
        fields["c"] = batch.texts
    if batch.fields is not None:
        lists = zip(("k", "tm", "p", "w"), batch.fields, strict=True)
        fields |= {name: values for name, values in lists if values is not None}
    return Body(_encoded(msgspec.msgpack.encode, {"d": x.shape[1], **fields}, batch), "application/msgpack")


def _ndjson(batch: Batch) -> Body:
    """One row per line, readable for people."""
    x = batch.x
    if is_sparse(x):
        bounds = itertools.pairwise(x.indptr)
        rows = [{"indices": x.indices[a:b].tolist(), "values": x.data[a:b].tolist()} for a, b in bounds]
    else:
        rows = batch.table().tolist()
    if batch.names is not None and not is_sparse(x):
        rows = [{"point": dict(zip(batch.names, row, strict=True))} for row in rows]
    if batch.fields is not None:
        names = ("key", "time", "payload", "weight")
        lists = [(name, values) for name, values in zip(names, batch.fields, strict=True) if values is not None]
        for name, values in lists:
            _check_json(name, values, batch)
        points = rows if batch.names is None or is_sparse(x) else [row["point"] for row in rows]
        rows = [{"point": row} | {name: values[i] for name, values in lists} for i, row in enumerate(points)]
    return Body(_encoded(msgspec.json.Encoder().encode_lines, rows, batch), "application/x-ndjson")


def _check_json(name: str, values: list[Any], batch: Batch) -> None:
    """Raise BadPointsError for a value that the encoder of JSON would write as another one, such as NaN as null.

    In MessagePack such values arrive as they are, and the service refuses them.
    """
    from shoal_service.wire.record_fields import not_in_json

    plain = msgspec.msgpack.decode(_encoded(msgspec.msgpack.encode, values, batch))
    for row, value in enumerate(plain, batch.first_row):
        if (what := not_in_json(value)) is not None:
            raise BadPointsError(
                f"row {row} has a {name} with {what}, which JSON cannot hold; send None or text", row=row
            )


def _encoded(encode: Callable[[Any], bytes], value: Any, batch: Batch) -> bytes:
    try:
        return encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:  # numbers are encoded always
        raise BadPointsError(
            f"keys, times, payloads or weights from row {batch.first_row} on cannot be sent: {error}; send plain values"
        ) from None


def _arrow(batch: Batch) -> Body:
    """One column of fixed-size lists, or one for each named feature."""
    x = batch.x
    if batch.fields is not None:
        raise BadPointsError("format 'arrow' does not carry keys, times, payloads or weights; use msgpack or ndjson")
    if is_sparse(x):
        raise BadPointsError("points are a sparse matrix, which Arrow cannot hold; use format msgpack or ndjson")
    pa = _pyarrow()
    if batch.texts and batch.names is None:
        raise BadPointsError(
            "points have texts and their columns no names, as Arrow needs; use format msgpack or ndjson"
        )
    if batch.names is not None:
        columns = [pa.array(np.ascontiguousarray(column)) for column in x.T]
        for column, words in batch.texts:
            missing = np.isnan(x[:, column])
            places = pa.array(np.where(missing, 0, x[:, column]).astype(np.int32), mask=missing)
            columns[column] = pa.DictionaryArray.from_arrays(places, list(words))
        table = pa.record_batch(columns, list(batch.names))
    else:
        lists = pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(x).ravel()), x.shape[1])
        table = pa.record_batch([lists], ["x"])
    file = io.BytesIO()
    with pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_batch(table)
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


_WRITERS: dict[Format, Callable[[Batch], Body]] = {"msgpack": _msgpack, "ndjson": _ndjson, "arrow": _arrow}
