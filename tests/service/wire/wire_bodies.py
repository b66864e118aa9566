"""Bodies for the tests of the wire, made without the code that reads them, and how their refusals are checked."""

import gzip
import io
import itertools
import json
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pytest
from scipy.sparse import csr_array

from shoal.errors import InputError, ShoalError
from shoal_service.errors import RequestError
from shoal_service.wire import WireLimits, decode

LIMITS = WireLimits(max_body_bytes=1_000_000, max_rows=10_000, max_features=600)
JSON, MSGPACK, NPY = "application/json", "application/msgpack", "application/x-npy"
NDJSON, ARROW = "application/x-ndjson", "application/vnd.apache.arrow.stream"


def json_body(rows: Any) -> bytes:
    return json.dumps({"points": rows}).encode()


def ndjson_body(rows: Any) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def sparse_rows(matrix: csr_array) -> list[dict[str, Any]]:
    bounds = itertools.pairwise(matrix.indptr)
    return [{"indices": matrix.indices[a:b].tolist(), "values": matrix.data[a:b].tolist()} for a, b in bounds]


def csr_body(matrix: csr_array, **fields: Any) -> bytes:
    arrays = {"indptr": ("<i8", matrix.indptr), "indices": ("<i4", matrix.indices), "values": ("<f8", matrix.data)}
    whole = {"d": matrix.shape[1]} | {name: x.astype(kind).tobytes() for name, (kind, x) in arrays.items()} | fields
    return msgspec.msgpack.encode({name: value for name, value in whole.items() if value is not None})


def arrow_body(*batches: pa.RecordBatch, **options: Any) -> bytes:
    file = io.BytesIO()
    with pa.ipc.new_stream(file, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return file.getvalue()


def in_lists(x: np.ndarray) -> pa.RecordBatch:
    return pa.record_batch([pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), x.shape[1])], ["x"])


def in_columns(*columns: Any) -> pa.RecordBatch:
    return pa.record_batch([pa.array(column) for column in columns], [f"c{i}" for i in range(len(columns))])


def msgpack_body(table: np.ndarray, **fields: Any) -> bytes:
    whole = {"d": table.shape[1], "x": table.tobytes(), "t": f"f{table.itemsize}", **fields}
    return msgspec.msgpack.encode({name: value for name, value in whole.items() if value is not None})


def npy_body(x: np.ndarray, *, version: tuple[int, int] | None = None) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, x, version, allow_pickle=True)
    return file.getvalue()


def npy_with_header(text: str, data: bytes = b"", *, version: int = 1) -> bytes:
    length = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + text.encode("latin1") + data


def zipped(body: bytes) -> bytes:
    return gzip.compress(body, mtime=0)


class Bad(NamedTuple):
    symptom: str
    media: str | None
    body: bytes
    error: type[ShoalError]
    row: int | None = None
    says: str = ""


def title(bad: Bad) -> str:
    return f"{bad.media}: {bad.symptom}"


def refuse(bad: Bad, body: bytes, **how: Any) -> None:
    with pytest.raises(bad.error) as caught:
        decode(body, bad.media, LIMITS, **how)
    assert type(caught.value) is bad.error
    assert isinstance(caught.value, InputError | RequestError)
    assert caught.value.row == bad.row
    assert bad.says in str(caught.value)
    assert len(str(caught.value)) < 600
    assert "\n" not in str(caught.value)


def with_value(value: float, kind: str, *, at: int = 1) -> np.ndarray:
    x = np.ones((3, 2), kind)
    with np.errstate(over="ignore"):
        x[at, 1] = value
    return x


def same(x: Any, expected: np.ndarray) -> None:
    assert x.dtype == expected.dtype
    assert x.dtype.isnative
    assert x.flags.c_contiguous
    assert x.flags.aligned
    assert x.shape == expected.shape
    assert x.tobytes() == np.ascontiguousarray(expected).tobytes()
