"""Parquet and Arrow IPC files, with the extra `arrow`: columns of numbers, or one column of lists, batch by batch."""

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from shoal.errors import counted
from shoal.points.arrays import IntArray
from shoal.points.frames import index_columns
from shoal_service.cli.exits import CommandError
from shoal_service.cli.readers.bad_rows import BadRowError, BadRows, RowPlace
from shoal_service.cli.readers.chunk import Chunk, Fields, checked_chunk
from shoal_service.cli.readers.table import ACCEPT_MISSING, checked_text, features_and_fields
from shoal_service.errors import RecordFieldError
from shoal_service.wire.formats import fields_of_batch, without_dictionary
from shoal_service.wire.record_columns import RecordColumns

CHUNK_ROWS, CHUNK_BYTES = 8_192, 4 << 20
"""Rows that are read at a time, or fewer of as many bytes. Each chunk costs some Python for every column."""
READ_BYTES = 1 << 18
"""Bytes of a column of Parquet that are read at a time."""
_REMEDY = f"fix or drop the row, or choose --columns without it; {ACCEPT_MISSING}"


def open_parquet(
    path: Path | None, columns: str | None, chunk_rows: int, bad: BadRows, records: RecordColumns | None
) -> tuple[Iterator[Chunk], int]:
    """Checked chunks of the chosen columns, and the number of rows."""
    if path is None:
        raise CommandError(
            f"Parquet cannot be read from {bad.file}, because its list of contents is at its end; save it to a file "
            "without gzip, and give the path of that"
        )
    pa = load_pyarrow("Parquet")
    try:
        file = parquet_file(pa, path)
    except (pa.ArrowException, OSError) as error:
        raise CommandError(f"{bad.file} is not a usable Parquet file: {error}") from error
    reader = ColumnReader(pa, file.schema_arrow, columns, records, bad)
    batches = parquet_batches(file, reader.rows_at_a_time(chunk_rows), reader.used)
    return reader.chunks(batches), file.metadata.num_rows


def parquet_file(pa: Any, path: Path) -> Any:
    """Open a Parquet file to be read in pieces. By default, whole row groups would be read before their first batch."""
    return pa.parquet.ParquetFile(path, buffer_size=READ_BYTES, pre_buffer=False)


def parquet_batches(file: Any, rows: int, columns: list[str], groups: list[int] | None = None) -> Iterator[Any]:
    """Batches of at most `rows` rows, of the chosen columns and row groups.

    No threads: to decode a batch of one column takes less than to wake one.
    """
    return cast(Iterator[Any], file.iter_batches(rows, row_groups=groups, columns=columns, use_threads=False))


def open_arrow(
    stream: Any, seekable: bool, columns: str | None, chunk_rows: int, bad: BadRows, records: RecordColumns | None
) -> Iterator[Chunk]:
    """Checked chunks of the chosen columns of an Arrow IPC file (also Feather), or of a stream."""
    pa = load_pyarrow("Arrow")
    try:
        if stream.peek(6)[:6] == b"ARROW1":
            if not seekable:
                raise CommandError(
                    f"an Arrow file cannot be read from {bad.file}, because its list of contents is at its end; save "
                    "it to a file without gzip and give the path of that, or write an Arrow stream"
                )
            file = pa.ipc.open_file(stream)
            batches: Iterator[Any] = (file.get_batch(i) for i in range(file.num_record_batches))
        else:
            file = pa.ipc.open_stream(stream)
            batches = iter(file)
    except (pa.ArrowException, OSError) as error:
        raise CommandError(f"{bad.file} is not a usable Arrow file: {str(error).splitlines()[0]}") from error
    reader = ColumnReader(pa, file.schema, columns, records, bad)
    step = reader.rows_at_a_time(chunk_rows)
    wanted = frozenset(reader.used)
    used = [i for i, name in enumerate(file.schema.names) if name in wanted]
    return reader.chunks(b.slice(i, step).select(used) for b in batches for i in range(0, b.num_rows, step))


def load_pyarrow(kind: str) -> Any:
    """Return the library. CommandError when it is not installed."""
    try:
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError:
        raise CommandError(f"{kind} needs pyarrow; run pip install 'shoal[arrow]', or use npy, csv or ndjson") from None
    return pyarrow


class ColumnReader:
    """The chosen columns of one file."""

    def __init__(self, pa: Any, schema: Any, columns: str | None, records: RecordColumns | None, bad: BadRows) -> None:
        self._pa, self._bad = pa, bad
        names = schema.names
        index = index_columns(schema)
        features, at = features_and_fields(names, len(names), columns, records or RecordColumns(), bad.file, index)
        self._names = [names[i] for i in features]
        self._turns = _turns(names, features)
        single = (None if i is None else names[i] for i in (at.key, at.time, at.weight))
        key, time, weight = single
        self._records = RecordColumns(key, time, tuple(names[i] for _, i in at.payload), weight)
        self.used = list(dict.fromkeys((*self._names, *self._records.named)))
        self._texts = self._columns_of_texts([schema.field(i) for i in features])
        self._check_types([schema.field(i) for i in features])
        self._feature_names = None if self._is_list(schema.field(features[0]).type) else self._names
        self._width: int | None = None

    def _check_types(self, fields: list[Any]) -> None:
        """Check the features: numbers, one column each; or a single column of lists of numbers."""
        lists = [field for field in fields if self._is_list(field.type)]
        if lists and len(fields) > 1:
            raise CommandError(
                f"{self._bad.file} has a column of lists, {lists[0].name!r}, and others; choose one kind with --columns"
            )
        for field in fields:
            kind = field.type.value_type if lists or self._pa.types.is_dictionary(field.type) else field.type
            types = self._pa.types
            number = types.is_integer(kind) or types.is_floating(kind) or (types.is_decimal(kind) and not lists)
            if not number and field.name not in self._texts:
                raise CommandError(
                    f"{self._bad.file}, column {field.name!r} holds {field.type}; choose columns of numbers with "
                    "--columns, or name those that are no features (--key-column, --payload-columns); texts need a "
                    "family of categories for their column"
                )

    def _columns_of_texts(self, fields: list[Any]) -> frozenset[str]:
        """The features that hold texts of categories."""
        texts = [place for place, field in enumerate(fields) if self._is_text(field.type)]
        if not texts:
            return frozenset()
        among = self._bad.categories.among([field.name for field in fields], len(fields))
        return frozenset(fields[place].name for place in texts if place in among)

    def _is_text(self, kind: Any) -> bool:
        kind = kind.value_type if self._pa.types.is_dictionary(kind) else kind
        return bool(self._pa.types.is_string(kind) or self._pa.types.is_large_string(kind))

    def rows_at_a_time(self, chunk_rows: int) -> int:
        """Rows of a chunk: `chunk_rows`, or more where that is quicker and takes little memory. Lists may be long."""
        small = 1000 if self._feature_names is None else CHUNK_BYTES // (8 * len(self.used))
        return max(chunk_rows, min(CHUNK_ROWS, small))

    def _is_list(self, kind: Any) -> bool:
        types = self._pa.types
        return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))

    def chunks(self, batches: Iterator[Any]) -> Iterator[Chunk]:
        """Checked chunks of these batches."""
        done = 0
        try:
            for batch in batches:
                if batch.num_rows:
                    yield self.chunk(batch, done)
                done += batch.num_rows
        except (self._pa.ArrowException, OSError) as error:
            raise CommandError(f"{self._bad.file} is damaged: {str(error).splitlines()[0]}") from error
        except RecordFieldError as error:  # of a whole column
            raise CommandError(f"{self._bad.file}: {error}") from error

    def chunk(self, batch: Any, done: int) -> Chunk:
        """Checked rows of a batch: float32 if all columns have single precision, else float64. `done`: rows before."""
        columns = self._features(batch)
        listed = self._is_list(columns[0].type)
        faults = self._ragged(columns[0]) if listed else self._nulls(columns) | self._bad_texts(columns)
        for i, fault in sorted(faults.items()):
            self._bad.add(RowPlace("row", done + i), fault, batch.slice(i, 1).to_pylist()[0])
        rows = np.arange(batch.num_rows)
        if faults:
            rows = np.setdiff1d(rows, list(faults))
            batch = batch.filter(self._pa.array(np.isin(np.arange(batch.num_rows), rows)))
            columns = self._features(batch)
        if listed:
            values = _floats(columns[0].flatten())
            x = values.reshape(len(rows), self._width or 0)
        else:
            x = np.stack(
                [self._values(name, column) for name, column in zip(self._names, columns, strict=True)], axis=1
            )
        fields = Fields(*fields_of_batch(self._pa, batch, self._records)) if self._records else None
        chunk = checked_chunk(x, "row", done + rows, self._bad, fields=fields, labels=self._label)
        return chunk._replace(names=self._feature_names)

    def _features(self, batch: Any) -> list[Any]:
        places = (batch.schema.get_all_field_indices(n)[turn] for n, turn in zip(self._names, self._turns, strict=True))
        columns = (batch.column(place) for place in places)
        plain = [without_dictionary(self._pa, column) for column in columns]
        decimal, double = self._pa.types.is_decimal, self._pa.float64()
        return [column.cast(double) if decimal(column.type) else column for column in plain]

    def _values(self, name: str, column: Any) -> npt.NDArray[Any]:
        """A column as floats, or as texts without spaces around them."""
        if name not in self._texts:
            return _floats(column)
        missing = math.nan  # accepted where the stream has `missing="marginal"`
        return np.array([missing if text is None else text.strip() for text in column.to_pylist()], dtype=object)

    def _bad_texts(self, columns: list[Any]) -> dict[int, BadRowError]:
        """The rows with a text that cannot name a category."""
        faults: dict[int, BadRowError] = {}
        for name, column in zip(self._names, columns, strict=True):
            for i, text in enumerate(column.to_pylist() if name in self._texts else ()):
                if text is None and self._bad.takes_holes:
                    continue
                try:
                    checked_text(text or "", f"column {name!r}")
                except BadRowError as fault:
                    faults.setdefault(i, fault)
        return faults

    def _label(self, feature: int) -> str:
        return f"column {self._names[feature]!r}" if feature < len(self._names) > 1 else f"element {feature}"

    def _nulls(self, columns: list[Any]) -> dict[int, BadRowError]:
        """The rows in which a column is empty."""
        faults: dict[int, BadRowError] = {}
        for name, column in zip(self._names, columns, strict=True):
            for i in _true_at(column.is_null()) if column.null_count and not self._bad.takes_holes else ():
                faults.setdefault(
                    int(i), BadRowError("empty", _REMEDY, "" if len(columns) == 1 else f"column {name!r}")
                )
        return faults

    def _ragged(self, lists: Any) -> dict[int, BadRowError]:
        """The rows whose list is empty, holds an empty element, or has another length than the lists before."""
        lengths = lists.value_lengths()
        known = [length for length in lengths.to_pylist() if length is not None]
        if self._width is None and known:
            self._width = known[0]
        faults = {int(i): BadRowError("empty", _REMEDY) for i in _true_at(lists.is_null())}
        for i, length in enumerate(lengths.to_pylist()):
            if i not in faults and length != self._width:
                faults[i] = BadRowError(f"{counted(length, 'number')}, the rows before have {self._width}")
        values = lists.flatten()
        if values.null_count and not self._bad.takes_holes:
            of_row = np.repeat(np.arange(len(lists)), [length or 0 for length in lengths.to_pylist()])
            for i in np.unique(of_row[_true_at(values.is_null())]).tolist():
                faults.setdefault(i, BadRowError("empty", _REMEDY))
        return faults


def _turns(names: list[str], features: list[int]) -> list[int]:
    """How many columns of the same name are before each feature. A batch holds all columns of a name."""
    seen: Counter[str] = Counter()
    turns = []
    for name in names:
        turns.append(seen[name])
        seen[name] += 1
    return [turns[i] for i in features]


def _true_at(mask: Any) -> IntArray:
    return np.flatnonzero(np.asarray(mask.to_numpy(zero_copy_only=False)))


def _floats(column: Any) -> npt.NDArray[Any]:
    """A column of numbers as floats, NaN for a null. `to_numpy` imports pandas, which takes longer than most files."""
    values = column.to_numpy(zero_copy_only=False) if column.null_count else np.from_dlpack(column)
    single = values.dtype.kind == "f" and values.dtype.itemsize <= 4
    return values.astype(np.float32 if single else np.float64, copy=False)
