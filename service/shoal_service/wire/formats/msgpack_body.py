"""MessagePack bodies: `{"d": D, "x": bytes, "t": "f4" | "f8"}`, where x is little-endian, one row after another.

Sparse rows are `{"d": D, "indptr": bytes, "indices": bytes, "values": bytes}` (see `csr`). Beside either there may be
lists of the fields of records, one value or nil per point: `k` (keys), `tm` (times), `p` (payloads), `w` (weights);
and the names of the columns, `f`. Columns of categories may hold texts: `c` has each one's number and its distinct
texts, and `x` the place of a text among them.
"""

import math
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from shoal_service.errors import MalformedBodyError
from shoal_service.wire.feature_names import checked_names, errors_naming_features
from shoal_service.wire.formats.csr import EXPECTED as EXPECTED_SPARSE
from shoal_service.wire.formats.csr import Csr, check_csr, csr_from
from shoal_service.wire.formats.text_rows import checked_texts
from shoal_service.wire.points import Body, Points, WireLimits, as_table, check_shape, check_values
from shoal_service.wire.record_fields import RecordFields, checked_fields

Raw: TypeAlias = np.ndarray[tuple[int, int], np.dtype[np.floating[Any]]]


class MsgpackBody(msgspec.Struct, forbid_unknown_fields=True):
    """Fields of a dense or sparse body. The log stores batches in the same form."""

    d: int
    x: memoryview | UnsetType = UNSET
    t: Literal["f4", "f8"] = "f4"
    indptr: memoryview | UnsetType = UNSET
    indices: memoryview | UnsetType = UNSET
    values: memoryview | UnsetType = UNSET
    k: Any = None
    tm: Any = None
    p: Any = None
    w: Any = None
    f: Any = None
    c: list[tuple[int, list[str]]] | None = None


_DECODER = msgspec.msgpack.Decoder(MsgpackBody)
_EXPECTED = 'send {"d": features, "x": little-endian bytes, "t": "f4" or "f8"}'


def decode_msgpack(body: Body, limits: WireLimits) -> Points:
    """Read the points of a MessagePack body: a view of it if its bytes are aligned, else a copy.

    Raises MalformedBodyError (cut short, unknown fields, x not a whole number of rows, texts that are no list of them),
    ShapeError (no points, columns of a sparse row out of order), NotFiniteError (with the row), NotNumericError (texts
    where none may be) and LimitError.
    """
    fields = _fields_of(body)
    table = _table_of(fields)
    if isinstance(table, Csr):
        check_csr(table, limits)
        names = checked_names(fields.f, table.n_features)
        if fields.c is not None:
            raise MalformedBodyError("c holds texts, which sparse rows cannot have; send x")
        return Points(table.matrix(), _record_fields(fields, table.n_rows, limits), names)
    check_shape(*table.shape, limits)
    x = as_table(table)
    names = checked_names(fields.f, x.shape[1])
    with errors_naming_features(names):
        check_values(x, holes=limits.holes)
        texts = None if fields.c is None else checked_texts(fields.c, x, limits)
    return Points(x, _record_fields(fields, len(x), limits), names, texts)


def _record_fields(fields: MsgpackBody, n: int, limits: WireLimits) -> RecordFields | None:
    lists = (fields.k, _plain(fields.tm), fields.p, _plain(fields.w))
    return checked_fields(n, *lists, max_payload_bytes=limits.max_payload_bytes)


def _plain(column: Any) -> Any:
    """A column as a list: bytes are 8-byte floats, little-endian, NaN for none."""
    if not isinstance(column, bytes):
        return column
    try:
        return [None if math.isnan(value) else value for value in np.frombuffer(column, "<f8").tolist()]
    except ValueError:
        raise MalformedBodyError("tm or w are bytes, but not a whole number of 8-byte floats; check them") from None


def read_msgpack(body: Body | memoryview) -> Raw | Csr:
    """View the points (N, D) in a body: little-endian, possibly unaligned, with unchecked values."""
    return _table_of(_fields_of(body))


def _fields_of(body: Body | memoryview) -> MsgpackBody:
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedBodyError(
            f"the body does not hold points in MessagePack: {str(error)[:200]}; {_EXPECTED}"
        ) from None


def _table_of(fields: MsgpackBody) -> Raw | Csr:
    if fields.x is UNSET:
        return _sparse(fields)
    dtype = np.dtype("<" + fields.t)
    if fields.d < 1:
        raise MalformedBodyError(f"d is {fields.d}; send the number of features, at least 1")
    n_rows, left_over = divmod(len(fields.x), fields.d * dtype.itemsize)
    if left_over:
        raise MalformedBodyError(
            f"x holds {len(fields.x)} bytes, which is not a whole number of rows of d = {fields.d} numbers of "
            f"{dtype.itemsize} bytes ({fields.t}); check d and t"
        )
    if n_rows == 0:
        return np.empty((0, 1), dtype)  # for any d
    return np.frombuffer(fields.x, dtype).reshape(n_rows, fields.d)


def _sparse(fields: MsgpackBody) -> Csr:
    given = (fields.indptr, fields.indices, fields.values)
    if all(array is UNSET for array in given):
        raise MalformedBodyError(f"the body does not hold points in MessagePack: `x` is missing; {_EXPECTED}")
    if UNSET in given:
        raise MalformedBodyError(f"an array of the sparse rows is missing; send {EXPECTED_SPARSE}")
    return csr_from(fields.d, *given)  # type: ignore[arg-type]  # none is unset
