"""Parquet files, with the extra `arrow`: columns of numbers, or one column of lists, one row group at a time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.errors import counted
from shoal_service.cli.exits import CommandError
from shoal_service.cli.readers.table import bad_number, choose_columns


def open_parquet(
    path: Path | None, name: str, columns: str | None, chunk_rows: int
) -> tuple[Iterator[npt.NDArray[Any]], int]:
    """Checked chunks of the chosen columns, and the number of rows."""
    if path is None:
        raise CommandError(
            f"Parquet cannot be read from {name}, because its list of contents is at its end; give the path of a file"
        )
    pa = _pyarrow()
    try:
        file = pa.parquet.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise CommandError(f"{name} is not a usable Parquet file: {error}") from error
    schema = file.schema_arrow
    picked = choose_columns(columns, schema.names, len(schema.names), name)
    fields = [schema.field(i) for i in (range(len(schema.names)) if picked is None else picked)]
    _check_types(pa, fields, name)
    return _chunks(pa, file, [field.name for field in fields], chunk_rows, name), file.metadata.num_rows


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise CommandError("Parquet needs pyarrow; run pip install 'shoal[arrow]', or use npy, csv or ndjson") from None
    return pyarrow


def _check_types(pa: Any, fields: list[Any], name: str) -> None:
    """Check the columns: numbers, one feature each; or a single column of lists of numbers."""
    lists = [field for field in fields if _is_list(pa, field.type)]
    if lists and len(fields) > 1:
        raise CommandError(
            f"{name} has a column of lists, {lists[0].name!r}, and others; choose one kind with --columns"
        )
    for field in fields:
        kind = field.type.value_type if lists else field.type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise CommandError(
                f"{name}, column {field.name!r} holds {field.type}; choose columns of numbers with --columns"
            )


def _is_list(pa: Any, kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _chunks(pa: Any, file: Any, names: list[str], chunk_rows: int, name: str) -> Iterator[npt.NDArray[Any]]:
    done, width = 0, None
    try:
        for batch in file.iter_batches(max(chunk_rows, 1000), columns=list(dict.fromkeys(names))):
            if not batch.num_rows:
                continue
            chunk = _table(pa, [batch.column(column) for column in names], done, name)
            width = width or chunk.shape[1]
            if chunk.shape[1] != width:
                raise CommandError(
                    f"{name}, row {done} (from 0): {counted(chunk.shape[1], 'number')}, the rows before have {width}"
                )
            if (bad := bad_number(chunk)) is not None:
                raise CommandError(
                    f"{name}, row {done + bad[0]} (from 0): {bad[1]} among the numbers; fix or drop the row"
                )
            done += len(chunk)
            yield chunk
    except (pa.ArrowException, OSError) as error:
        raise CommandError(f"{name} is damaged: {str(error).splitlines()[0]}") from error


def _table(pa: Any, columns: list[Any], done: int, name: str) -> npt.NDArray[Any]:
    """Columns of one batch as a table (n, D): float32 if all have single precision, else float64."""
    for column in columns:
        _refuse_nulls(column, done, name)
    if not _is_list(pa, columns[0].type):
        arrays = [column.to_numpy(zero_copy_only=False) for column in columns]
        return np.stack([_as_float(array) for array in arrays], axis=1)
    lists = columns[0]
    lengths = np.asarray(lists.value_lengths())
    if (lengths != lengths[0]).any():
        row = int((lengths != lengths[0]).argmax())
        numbers = counted(int(lengths[row]), "number")
        raise CommandError(f"{name}, row {done + row} (from 0): {numbers}, the rows before have {lengths[0]}")
    values = lists.flatten()
    if values.null_count:
        row = int(np.asarray(values.is_null()).argmax()) // int(lengths[0])
        raise CommandError(f"{name}, row {done + row} (from 0): empty; fix or drop the row")
    return _as_float(values.to_numpy(zero_copy_only=False)).reshape(len(lists), int(lengths[0]))


def _refuse_nulls(column: Any, done: int, name: str) -> None:
    if column.null_count:
        row = done + int(np.asarray(column.is_null()).argmax())
        raise CommandError(f"{name}, row {row} (from 0): empty; fix or drop the row, or choose --columns without it")


def _as_float(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    single = values.dtype.kind == "f" and values.dtype.itemsize <= 4
    return values.astype(np.float32 if single else np.float64, copy=False)
