"""Blocks of a `pyarrow.dataset`, with the extra `arrow`: row groups of Parquet, and whole files of other formats."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from shoal.errors import InputError, SettingError, ShapeError
from shoal.offline.dataset import Dataset, File, block_rows, check_width, chosen_columns
from shoal.points.frames import index_columns


class ArrowBlock(NamedTuple):
    """Rows of a fragment of a data set: row groups of a Parquet file, or a whole file."""

    fragment: Any
    schema: Any
    columns: tuple[str, ...]
    n_features: int
    n_rows: int
    path: str

    def chunks(self, rows: int) -> Iterator[Any]:
        """See `Block`."""
        arrow = pyarrow_dataset()
        batches = self.fragment.to_batches(
            self.schema, columns=list(self.columns), batch_size=rows, batch_readahead=1, use_threads=False
        )
        try:
            for batch in batches:
                if batch.num_rows:
                    yield _table(arrow, batch, self)
        except (OSError, arrow.pa.ArrowException) as error:
            raise InputError(f"{self.path} cannot be read: {str(error).splitlines()[0]}") from error


class _Arrow(NamedTuple):
    """What is used of pyarrow."""

    pa: Any
    dataset: Any
    partition_keys: Any


def pyarrow_dataset() -> _Arrow:
    """pyarrow, and functions of its data sets. Raises SettingError where it is not installed."""
    try:
        import pyarrow as pa
        import pyarrow.dataset
    except ImportError:
        raise SettingError(
            "Parquet and Arrow files need pyarrow; run pip install 'shoal[arrow]', or save the points as npy"
        ) from None
    return _Arrow(pa, pyarrow.dataset.dataset, pyarrow.dataset.get_partition_keys)


def open_arrow_files(paths: list[str], kind: str, columns: Sequence[str] | None) -> Dataset:
    """The data set of files of one format of pyarrow. Its columns are those of the first file with rows.

    Raises InputError, SettingError, ShapeError.
    """
    arrow = pyarrow_dataset()
    with _named_in_errors(arrow, paths[0]):
        source = arrow.dataset(paths, format=kind)
    for fragment in source.get_fragments():
        with _named_in_errors(arrow, fragment.path):
            if fragment.count_rows():
                return open_arrow(source.replace_schema(fragment.physical_schema), columns)
    return open_arrow(source, columns)


def open_arrow(source: Any, columns: Sequence[str] | None) -> Dataset:
    """The data set of a `pyarrow.dataset.Dataset`. Raises InputError, SettingError, ShapeError."""
    arrow = pyarrow_dataset()
    names = chosen_columns(columns, source.schema.names)
    if columns is None:
        index = index_columns(source.schema)
        names = [name for name in names if name not in index] or names
    kinds = [source.schema.field(name).type for name in names]
    lists = [_is_list(arrow.pa, kind) for kind in kinds]
    if any(lists) and len(names) > 1:
        listed = names[lists.index(True)]
        raise SettingError(f"column {listed!r} holds lists, beside other columns; choose it alone, or leave it out")
    files, width = [], 0 if any(lists) else len(names)
    for place, fragment in enumerate(_fragments(source)):
        path = getattr(fragment, "path", None) or f"rows-{place}"  # rows in memory have none
        with _named_in_errors(arrow, path):
            if not fragment.count_rows():
                files.append(File(path, path, ()))
                continue
            schema = _schema_of(arrow, source.schema, fragment, names, path)
            if any(lists):
                own = _length(fragment, schema, names[0], path)
                width = width or own
                check_width(own, width, path)
            parts = _parts(fragment, block_rows(width))
        blocks = tuple(ArrowBlock(part, schema, tuple(names), width, n, path) for part, n in parts if n)
        files.append(File(path, path, blocks))
    return Dataset(tuple(files), width, None if any(lists) else tuple(names))


@contextmanager
def _named_in_errors(arrow: _Arrow, path: str) -> Iterator[None]:
    """Raise InputError with the name of the file in the place of an error of pyarrow."""
    try:
        yield
    except (OSError, arrow.pa.ArrowException) as error:
        raise InputError(f"{path} is not a usable file: {str(error).splitlines()[0]}") from error


def _schema_of(arrow: _Arrow, whole: Any, fragment: Any, names: list[str], path: str) -> Any:
    """The columns of a file, with its own types of numbers: the type of another file could round its values.

    Raises InputError for a column that it lacks, SettingError for one that holds no numbers.
    """
    own, fields = fragment.physical_schema, []
    for name in names:
        field = whole.field(name)
        if name not in own.names:
            if name not in arrow.partition_keys(fragment.partition_expression):
                raise InputError(
                    f"{path} has no column {name!r}, as other files have; add it, or choose columns of all files"
                )
        elif not _is_read_as_others(arrow.pa, own.field(name).type):
            field = own.field(name)
        if arrow.pa.types.is_dictionary(field.type):
            field = field.with_type(field.type.value_type)
        if not _is_points(arrow.pa, field.type, _is_list(arrow.pa, field.type)):
            raise SettingError(f"column {name!r} holds {field.type} in {path}; choose columns of numbers")
        fields.append(field)
    return arrow.pa.schema(fields)


def _parts(fragment: Any, least: int) -> list[tuple[Any, int]]:
    """Parts of a fragment, of `least` rows or somewhat more, and their rows."""
    if not hasattr(fragment, "row_groups"):
        return [(fragment, fragment.count_rows())]
    parts: list[tuple[Any, int]] = []
    own: list[int] = []
    rows = 0
    for group in fragment.row_groups:
        own.append(group.id)
        rows += group.num_rows
        if rows >= least:
            parts.append((fragment.subset(row_group_ids=own), rows))
            own, rows = [], 0
    if own:
        parts.append((fragment.subset(row_group_ids=own), rows))
    return parts


def _fragments(source: Any) -> list[Any]:
    try:
        return list(source.get_fragments())
    except ValueError as error:  # pyarrow does not give those of a filtered data set
        raise SettingError(f"the pyarrow data set cannot be divided: {error} Write the rows to files first") from error


def _length(fragment: Any, schema: Any, name: str, path: str) -> int:
    """Length of the lists of a column, from its first row. Raises ShapeError for an empty list."""
    kind = schema.field(name).type
    if hasattr(kind, "list_size"):
        found = int(kind.list_size)
    else:
        found = len(fragment.head(1, columns=[name]).column(0).to_pylist()[0] or ())
    if not found:
        raise ShapeError(f"{path}, column {name!r} begins with a row without numbers; fix or drop it")
    return found


def _table(arrow: _Arrow, batch: Any, block: ArrowBlock) -> Any:
    """A batch as a table (n, D); an empty value is NaN, which the checks of points refuse."""
    columns = [_without_decimals(arrow.pa, batch.column(i)) for i in range(batch.num_columns)]
    if not _is_list(arrow.pa, columns[0].type):
        return np.stack([column.to_numpy(zero_copy_only=False) for column in columns], axis=1)
    values = columns[0].flatten().to_numpy(zero_copy_only=False)
    lengths = columns[0].value_lengths().to_numpy(zero_copy_only=False)
    if not np.array_equal(lengths, np.full(len(lengths), block.n_features)):
        raise ShapeError(
            f"{block.path}, column {block.columns[0]!r} has rows without {block.n_features} numbers; fix or drop them"
        )
    return values.reshape(len(lengths), block.n_features)


def _without_decimals(pa: Any, column: Any) -> Any:
    """A column with floats in the place of decimals, as which databases export many numbers."""
    return column.cast(pa.float64()) if pa.types.is_decimal(column.type) else column


def _is_read_as_others(pa: Any, kind: Any) -> bool:
    """Whether a column is read with the type of the same column in other files: it is empty, or a dictionary."""
    return bool(pa.types.is_null(kind) or pa.types.is_dictionary(kind))


def _is_points(pa: Any, kind: Any, lists: bool) -> bool:
    """Whether a type is of numbers, or, with `lists`, of lists of numbers."""
    if _is_list(pa, kind) != lists:
        return False
    element = kind.value_type if lists else kind
    return bool(pa.types.is_integer(element) or pa.types.is_floating(element) or pa.types.is_decimal(kind))


def _is_list(pa: Any, kind: Any) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))
