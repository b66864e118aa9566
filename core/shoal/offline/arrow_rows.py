"""Blocks of a `pyarrow.dataset`, with the extra `arrow`: row groups of Parquet, and whole files of other formats."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from shoal.errors import InputError, SettingError, ShapeError
from shoal.offline.dataset import Dataset, File, block_rows, check_width, chosen_columns


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
    """The modules of pyarrow that are used."""

    pa: Any
    dataset: Any


def pyarrow_dataset() -> _Arrow:
    """pyarrow and its function that makes a data set. Raises SettingError where it is not installed."""
    try:
        import pyarrow as pa
        import pyarrow.dataset
    except ImportError:
        raise SettingError(
            "Parquet and Arrow files need pyarrow; run pip install 'shoal[arrow]', or save the points as npy"
        ) from None
    return _Arrow(pa, pyarrow.dataset.dataset)


def open_arrow(source: Any, columns: Sequence[str] | None) -> Dataset:
    """The data set of a `pyarrow.dataset.Dataset`. Raises InputError, SettingError, ShapeError."""
    arrow = pyarrow_dataset()
    names = chosen_columns(columns, source.schema.names)
    kinds = [source.schema.field(name).type for name in names]
    lists = [_is_list(arrow.pa, kind) for kind in kinds]
    if any(lists) and len(names) > 1:
        listed = names[lists.index(True)]
        raise SettingError(f"column {listed!r} holds lists, beside other columns; choose it alone, or leave it out")
    for name, kind in zip(names, kinds, strict=True):
        held = kind.value_type if lists[0] else kind
        if not (arrow.pa.types.is_integer(held) or arrow.pa.types.is_floating(held)):
            raise SettingError(f"column {name!r} holds {kind}; choose columns of numbers")
    files, width = [], 0 if lists[0] else len(names)
    for fragment in _fragments(source):
        path = getattr(fragment, "path", None) or str(fragment)
        if lists[0]:
            own = _length(fragment, source.schema, names[0])
            width = width or own
            if own:
                check_width(own, width, path)
        parts = _parts(fragment, block_rows(max(width, 1)))
        blocks = tuple(ArrowBlock(part, source.schema, tuple(names), width, n, path) for part, n in parts if n)
        files.append(File(path, path, blocks))
    return Dataset(tuple(files), width, None if lists[0] else tuple(names))


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


def _length(fragment: Any, schema: Any, name: str) -> int:
    """Length of the lists of a column, from its first row; 0 without rows."""
    kind = schema.field(name).type
    if hasattr(kind, "list_size"):
        return int(kind.list_size)
    first = fragment.head(1, columns=[name]).column(0).to_pylist()
    return len(first[0] or ()) if first else 0


def _table(arrow: _Arrow, batch: Any, block: ArrowBlock) -> Any:
    """A batch as a table (n, D); an empty value is NaN, which the checks of points refuse."""
    columns = [batch.column(i) for i in range(batch.num_columns)]
    if not _is_list(arrow.pa, columns[0].type):
        return np.stack([column.to_numpy(zero_copy_only=False) for column in columns], axis=1)
    values = columns[0].flatten().to_numpy(zero_copy_only=False)
    lengths = columns[0].value_lengths().to_numpy(zero_copy_only=False)
    if not np.array_equal(lengths, np.full(len(lengths), block.n_features)):
        raise ShapeError(
            f"{block.path}, column {block.columns[0]!r} has rows without {block.n_features} numbers; fix or drop them"
        )
    return values.reshape(len(lengths), block.n_features)


def _is_list(pa: Any, kind: Any) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))
