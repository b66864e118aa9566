"""A data set on disk as blocks of rows.

Blocks follow from the data alone, never from the workers, so that sums over blocks are the same for any number of them.
A block is small to send to a worker, which reads its rows in chunks.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from shoal.errors import SettingError, ShapeError, did_you_mean
from shoal.points.arrays import Array

BLOCK_ROWS = 100_000
"""Least rows of a block, except of the last one of a file."""
_BLOCK_ELEMENTS = 1 << 22
"""Elements of a larger block of few features: 16 MiB in single precision."""
_CHUNK_ELEMENTS = 1 << 20
"""Elements of a chunk: 8 MiB in double precision."""


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
