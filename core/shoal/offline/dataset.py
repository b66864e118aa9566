"""A data set on disk as blocks of rows: npy files, mapped into memory, and whatever `pyarrow.dataset` reads.

Blocks follow from the data alone, never from the workers, so that sums over blocks are the same for any number of them.
A block is small to send to a worker, which reads its rows in chunks.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from shoal.errors import InputError, NoPointsError, SettingError, ShapeError, did_you_mean
from shoal.points.arrays import Array
from shoal.runtime.files import files_of, folder_in_common, is_file_name

BLOCK_ROWS = 100_000
"""Least rows of a block, except of the last one of a file."""
_BLOCK_ELEMENTS = 1 << 22
"""Elements of a larger block of few features: 16 MiB in single precision."""
_CHUNK_ELEMENTS = 1 << 20
"""Elements of a chunk: 8 MiB in double precision."""
_ARROW_FORMATS = {"parquet": "parquet", "pq": "parquet", "arrow": "ipc", "feather": "ipc"}
"""Formats of `pyarrow.dataset` by the end of a file's name."""


class Block(Protocol):
    """Some rows of one file, in order."""

    @property
    def n_rows(self) -> int:
        """Rows of the block."""

    def chunks(self, rows: int) -> Iterator[Any]:
        """Tables (n, D) of numbers, at most `rows` rows each. Raises InputError where they cannot be read."""


class File(NamedTuple):
    """A file of a data set."""

    name: str
    """Its name within the folder that all files have in common."""
    path: str
    blocks: tuple[Block, ...]

    @property
    def n_rows(self) -> int:
        """Rows of the file."""
        return sum(block.n_rows for block in self.blocks)


class Dataset(NamedTuple):
    """Files of rows with the same features."""

    files: tuple[File, ...]
    n_features: int
    names: tuple[str, ...] | None
    """Names of the features; None where the files have none."""

    @property
    def blocks(self) -> tuple[Block, ...]:
        """All blocks, in order."""
        return tuple(block for file in self.files for block in file.blocks)

    @property
    def n_rows(self) -> int:
        """N."""
        return sum(file.n_rows for file in self.files)

    def place(self, block: int, row: int) -> str:
        """Place of a row of a block, for messages: file and row, from 0."""
        for file in self.files:
            if block < len(file.blocks):
                return f"{file.path}, row {sum(b.n_rows for b in file.blocks[:block]) + row}"
            block -= len(file.blocks)
        raise IndexError(block)


def chunks_of(block: Block, n_features: int) -> Iterator[Array]:
    """The rows of a block as float64 (n, D), in C order, a few at a time."""
    for chunk in block.chunks(max(1, _CHUNK_ELEMENTS // n_features)):
        yield np.ascontiguousarray(chunk, dtype=np.float64)


def block_rows(n_features: int) -> int:
    """Rows of a block of so many features."""
    return max(BLOCK_ROWS, _BLOCK_ELEMENTS // n_features)


def is_dataset(source: Any) -> bool:
    """Whether a source names files, or is a data set: not an array, a table or a data frame."""
    if isinstance(source, Dataset):
        return True
    if isinstance(source, list | tuple):
        return len(source) > 0 and all(map(is_file_name, source))
    return is_file_name(source) or _is_arrow(source)


def open_dataset(source: Any, columns: Sequence[str] | None = None) -> Dataset:
    """The data set of a file, a folder, a glob, a list of these, or a `pyarrow.dataset.Dataset`.

    Files end in npy, parquet, pq, arrow or feather, and all are read alike. A folder stands for all such files in it
    and below. Files are in the order of their names. `columns` names the features of files with named columns; None:
    all columns. A single column of lists of one length holds all features. Only heads of files are read.

    Raises InputError for files that cannot be read or do not agree, NoPointsError without rows, SettingError for
    columns.
    """
    if isinstance(source, Dataset):
        return source
    found = _arrow_dataset(source, columns) if _is_arrow(source) else _dataset_of_files(source, columns)
    if found.n_rows == 0:
        raise NoPointsError(f"{source} has no rows; give files that have some")
    return found


def _dataset_of_files(source: Any, columns: Sequence[str] | None) -> Dataset:
    sources = [source] if is_file_name(source) else list(source)
    paths = files_of(sources, ("npy", *_ARROW_FORMATS))
    kinds = {path.rpartition(".")[2].lower() for path in paths}
    if kinds == {"npy"}:
        if columns is not None:
            raise SettingError(f"columns are chosen by name, {', '.join(columns)}, but npy files have no names")
        from shoal.offline.npy_rows import open_npy

        return _named(open_npy(paths))
    formats = {_ARROW_FORMATS.get(kind) for kind in kinds}
    if len(formats) > 1 or None in formats:
        endings = ", ".join(sorted(kinds))
        raise InputError(f"the files have the endings {endings}; give files of one format: npy, Parquet or Arrow")
    arrow = _pyarrow()
    try:
        return _named(_arrow_dataset(arrow.dataset(paths, format=formats.pop()), columns))
    except (OSError, arrow.pa.ArrowException) as error:
        raise InputError(f"{paths[0]} is not a usable file: {str(error).splitlines()[0]}") from error


def _named(found: Dataset) -> Dataset:
    """The data set with its files named within their folder."""
    names = folder_in_common([file.path for file in found.files])
    return found._replace(files=tuple(file._replace(name=name) for file, name in zip(found.files, names, strict=True)))


def _arrow_dataset(source: Any, columns: Sequence[str] | None) -> Dataset:
    from shoal.offline.arrow_rows import open_arrow

    return open_arrow(source, columns)


def _is_arrow(source: Any) -> bool:
    """Whether it is a `pyarrow.dataset.Dataset`, without a load of pyarrow."""
    return any(kind.__module__ == "pyarrow._dataset" and kind.__name__ == "Dataset" for kind in type(source).__mro__)


def _pyarrow() -> Any:
    from shoal.offline.arrow_rows import pyarrow_dataset

    return pyarrow_dataset()


def chosen_columns(columns: Sequence[str] | None, names: Sequence[str]) -> list[str]:
    """The names of the features among those of a file. Raises SettingError."""
    if columns is None:
        return list(names)
    for name in columns:
        if name not in names:
            raise SettingError(
                f"there is no column {name!r}; {did_you_mean(name, names)}the files have {', '.join(names)}"
            )
    if not columns:
        raise SettingError("columns is empty; name at least one")
    return list(columns)


def check_width(width: int, first: int, path: str) -> None:
    """Raise ShapeError for a file with another number of features than the first one."""
    if width != first:
        raise ShapeError(f"{path} has {width} features, the files before {first}; give files with the same features")
