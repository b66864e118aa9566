"""Bodies for the tests of the wire, made without the code that reads them."""

import gzip
import io
import json
from typing import Any

import msgspec
import numpy as np

from shoal_service.wire import WireLimits

LIMITS = WireLimits(max_body_bytes=1_000_000, max_rows=10_000, max_features=600)
JSON, MSGPACK, NPY = "application/json", "application/msgpack", "application/x-npy"


def json_body(rows: Any) -> bytes:
    return json.dumps({"points": rows}).encode()


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
