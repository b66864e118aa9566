"""Arrow IPC streams: one column of fixed-size lists of numbers, or only columns of numbers, one per feature. Their
names are those of the features.

The stream is read message by message: the schema is checked before any batch is read. Compressed batches are refused,
because only the sender knows how large their buffers would become.
"""

import struct
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shoal.errors import NotNumericError, ShapeError
from shoal_service.errors import LimitError, MalformedBodyError, UnsupportedMediaTypeError
from shoal_service.wire.feature_names import errors_naming_features
from shoal_service.wire.formats.arrow_fields import fields_of_batch, is_text, joined, values_of, without_dictionary
from shoal_service.wire.formats.text_rows import places_of
from shoal_service.wire.points import Body, Points, Table, TextColumns, WireLimits, check_shape, check_values
from shoal_service.wire.record_columns import RecordColumns
from shoal_service.wire.record_fields import checked_fields

Batch: TypeAlias = Any
"""A `pyarrow.RecordBatch`. pyarrow is loaded with the first such body, and has no types."""

_EXPECTED = "send one column of fixed-size lists of numbers, or only columns of numbers"


def decode_arrow(body: Body, limits: WireLimits, columns: RecordColumns | None = None) -> Points:
    """Read the points of an Arrow IPC stream: float32 if all numbers have half or single precision, else float64.

    `columns` hold fields of records, and are no features. The result is a view of the body if that is one batch of
    lists of f4 or f8. Raises UnsupportedMediaTypeError if pyarrow is not installed, MalformedBodyError (not a stream,
    cut short, compressed), NotNumericError (a column without numbers; a null, with its row), ShapeError (no rows, no
    columns, a list and other columns), NotFiniteError, RecordFieldError, ParameterError (a column that does not exist),
    and LimitError.
    """
    pa = _pyarrow()
    try:
        schema, messages = _messages(pa, body)
        names = schema.names
        if columns:
            columns.check_in(names)
        features = [i for i, name in enumerate(names) if not columns or name not in columns.named]
        width, dtype = _shape_of(pa, [schema.field(i) for i in features], limits.texts)
        if any(pa.types.is_dictionary(field.type) for field in schema):
            batches = _batches_with_dictionaries(pa, body, messages)
        else:
            batches = [_batch(pa, message, schema) for message in messages]
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, struct.error) as error:
        words = str(error).splitlines() or [type(error).__name__]
        raise MalformedBodyError(
            f"the body is not an Arrow IPC stream: {words[0][:200]}; send one whole stream"
        ) from None
    n_rows = sum(batch.num_rows for batch in batches)
    check_shape(n_rows, width, limits)
    if n_rows * width > limits.max_values:
        raise LimitError(
            f"the body holds {n_rows * width} numbers, the limit is {limits.max_values}; send smaller batches"
        )
    batches = [_without_dictionaries(pa, batch, features) for batch in batches if batch.num_rows]
    names = _feature_names(pa, [schema.field(i) for i in features])
    with errors_naming_features(names):
        batches, texts = _without_texts(pa, batches, features, limits.holes) if limits.texts else (batches, None)
        x = _table([batch.select(features) for batch in batches] if columns else batches, width, dtype, limits.holes)
    if not columns:
        return Points(x, names=names, texts=texts)
    fields = joined([fields_of_batch(pa, batch, columns) for batch in batches])
    return Points(x, checked_fields(n_rows, *fields, max_payload_bytes=limits.max_payload_bytes), names, texts)


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError:
        raise UnsupportedMediaTypeError(
            "this service cannot read Arrow, because pyarrow is not installed; install it with pip install "
            "'shoal[arrow]', or send application/msgpack or application/x-npy"
        ) from None
    return pyarrow


def _messages(pa: Any, body: Body) -> tuple[Any, list[Any]]:
    """Read the schema and the messages of the batches. Nothing may follow the end of the stream."""
    source = pa.BufferReader(pa.py_buffer(body))
    reader = pa.ipc.MessageReader.open_stream(source)
    messages = []
    try:
        while True:
            messages.append(reader.read_next_message())
    except StopIteration:
        pass
    if source.tell() != len(body):
        raise MalformedBodyError(
            f"{len(body) - source.tell()} bytes follow the end of the Arrow stream; send one stream per body"
        )
    if not messages or messages[0].type != "schema":
        raise MalformedBodyError("the body is not an Arrow IPC stream: it does not begin with a schema")
    return pa.ipc.read_schema(messages[0]), messages[1:]


def _shape_of(pa: Any, fields: Sequence[Any], texts: bool) -> tuple[int, npt.DTypeLike]:
    """Find the number of features and the precision that all numbers fit in. Refuse columns without numbers, but those
    of texts where `texts` may be."""
    kinds = [field.type for field in fields]
    if not kinds:
        raise ShapeError(f"the Arrow stream has no columns of features; {_EXPECTED}")
    lists = [kind for kind in kinds if pa.types.is_fixed_size_list(kind)]
    if lists and len(kinds) > 1:
        raise ShapeError(f"the Arrow stream has a column of lists and {len(kinds) - 1} other(s); {_EXPECTED}")
    for field in fields:
        kind = field.type.value_type if lists or pa.types.is_dictionary(field.type) else field.type
        text = texts and not lists and is_text(pa, kind)
        if not (text or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise NotNumericError(f"column {field.name[:40]!r} holds {str(field.type)[:60]}; {_EXPECTED}")
    numbers = [kind.value_type if lists or pa.types.is_dictionary(kind) else kind for kind in kinds]
    single = all(pa.types.is_floating(kind) and kind.bit_width <= 32 for kind in numbers)
    return lists[0].list_size if lists else len(kinds), np.float32 if single else np.float64


def _without_dictionaries(pa: Any, batch: Batch, features: Sequence[int]) -> Batch:
    """A batch with numbers in the place of dictionaries of numbers."""
    for i in features:
        field = batch.schema.field(i)
        column = without_dictionary(pa, batch.column(i))
        if column.type != field.type:
            batch = batch.set_column(i, field.name, column)
    return batch


def _without_texts(
    pa: Any, batches: list[Batch], features: Sequence[int], holes: bool
) -> tuple[list[Batch], TextColumns | None]:
    """The batches with numbers in the place of texts, and the texts by the place of their column among the features."""
    found = []
    for place, i in enumerate(features):
        field = batches[0].schema.field(i)
        if not is_text(pa, field.type.value_type if pa.types.is_dictionary(field.type) else field.type):
            continue
        values = [value for batch in batches for value in values_of(pa, batch.column(i))]
        numbers, texts = places_of(values, place, holes=holes)
        found.append((place, texts))
        ends = np.cumsum([0, *(batch.num_rows for batch in batches)])
        batches = [
            batch.set_column(i, field.name, pa.array(numbers[start:end], pa.float64()))
            for batch, start, end in zip(batches, ends[:-1], ends[1:], strict=True)
        ]
    return batches, tuple(found) or None


def _feature_names(pa: Any, fields: Sequence[Any]) -> tuple[str, ...] | None:
    """Names of columns of numbers. A column of lists names no feature."""
    lists = pa.types.is_fixed_size_list(fields[0].type)
    return None if lists else tuple(field.name for field in fields)


def _batch(pa: Any, message: Any, schema: Any) -> Batch:
    """Read the batch of a message, and check its lengths against its buffers."""
    _check_message(message, ("record batch",))
    batch = pa.ipc.read_record_batch(message, schema)
    batch.validate(full=True)
    return batch


def _batches_with_dictionaries(pa: Any, body: Body, messages: Sequence[Any]) -> list[Batch]:
    """Read all batches of a stream with columns that are places in dictionaries, which are messages of their own."""
    for message in messages:
        _check_message(message, ("record batch", "dictionary"))
    batches = list(pa.ipc.open_stream(pa.py_buffer(body)))
    for batch in batches:
        batch.validate(full=True)
    return batches


def _check_message(message: Any, kinds: Sequence[str]) -> None:
    if message.type not in kinds:
        raise MalformedBodyError(f"the Arrow stream holds a {message.type} between its batches; {_EXPECTED}")
    if _is_compressed(message.metadata, in_dictionary=message.type == "dictionary"):
        raise MalformedBodyError(
            "the Arrow stream has compressed buffers; write it without compression (Content-Encoding: gzip is accepted)"
        )


def _is_compressed(metadata: Any, *, in_dictionary: bool) -> bool:
    """Whether the record batch of a message names a codec. In the layout of FlatBuffers, a table begins with the
    distance back to its list of fields. That list holds the place of each field in the table, 0 for an absent field.
    """
    data = memoryview(metadata)
    header = _field(data, struct.unpack_from("<I", data, 0)[0], 2)  # of Message: version, kind, header
    if header and in_dictionary:
        header = _field(data, header + struct.unpack_from("<I", data, header)[0], 1)  # of DictionaryBatch: id, data
    if not header:
        raise MalformedBodyError("the Arrow stream has a message without a header")
    record_batch = header + struct.unpack_from("<I", data, header)[0]
    return _field(data, record_batch, 3) != 0  # of RecordBatch: length, nodes, buffers, compression


def _field(data: memoryview, table: int, number: int) -> int:
    """Position of the value of a field of a table, or 0."""
    fields = table - struct.unpack_from("<i", data, table)[0]
    if fields < 0 or 4 + 2 * number >= struct.unpack_from("<H", data, fields)[0]:
        return 0
    at: int = struct.unpack_from("<H", data, fields + 4 + 2 * number)[0]
    return table + at if at else 0


def _table(batches: Sequence[Batch], width: int, dtype: npt.DTypeLike, holes: bool) -> Table:
    """Join batches that are not empty to one checked table. With `holes`, a null is a missing value, as NaN is."""
    pieces = [_columns(batch, width) for batch in batches]
    if len(pieces) == 1 and pieces[0].dtype == dtype:
        x: Table = np.require(pieces[0], dtype, ["C", "ALIGNED"])
    else:
        x = np.empty((sum(map(len, pieces)), width), dtype)
        np.concatenate(pieces, out=x, casting="unsafe")
    missing = _nulls(batches, width)
    if missing is None:
        check_values(x, holes=holes)
        return x
    if holes:
        x = np.where(missing, np.asarray(np.nan, x.dtype), x)
        check_values(x, holes=True)
        return x
    row = int(missing.any(axis=1).argmax())
    check_values(x[:row])
    column = int(missing[row].argmax())
    raise NotNumericError(
        f"row {row} holds a null in column {column}; send a number, omit the row, or create the stream with "
        "missing=marginal",
        row=row,
        column=column,
    )


def _columns(batch: Batch, width: int) -> npt.NDArray[Any]:
    """Values of a batch (n, D) in the type in which they were sent; any value for a null."""
    if batch.num_columns == 1 and hasattr(batch.column(0).type, "list_size"):
        lists = batch.column(0)
        return np.asarray(_plain(lists.values).reshape(-1, width)[lists.offset : lists.offset + len(lists)])
    return np.stack([_plain(column) for column in batch.columns], axis=1)


def _plain(array: Any) -> npt.NDArray[Any]:
    """Values of an array of numbers as a NumPy array, nulls included."""
    dtype = np.dtype(array.type.to_pandas_dtype())
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)


def _nulls(batches: Sequence[Batch], width: int) -> npt.NDArray[np.bool_] | None:
    """Which values (N, D) of all batches are null. None where none is."""
    masks = [_null_mask(batch, width) for batch in batches]
    if all(mask is None for mask in masks):
        return None
    sizes = [(batch.num_rows, width) for batch in batches]
    return np.concatenate([np.zeros(n, np.bool_) if m is None else m for m, n in zip(masks, sizes, strict=True)])


def _null_mask(batch: Batch, width: int) -> npt.NDArray[np.bool_] | None:
    lists = batch.column(0) if batch.num_columns == 1 and hasattr(batch.column(0).type, "list_size") else None
    if lists is None:
        if not any(column.null_count for column in batch.columns):
            return None
        return np.stack([column.is_null().to_numpy(zero_copy_only=False) for column in batch.columns], axis=1)
    if not lists.null_count and not lists.values.null_count:
        return None
    values = lists.values.is_null().to_numpy(zero_copy_only=False).reshape(-1, width)
    whole = lists.is_null().to_numpy(zero_copy_only=False)
    mask: npt.NDArray[np.bool_] = values[lists.offset : lists.offset + len(lists)] | whole[:, None]
    return mask
