"""Blocks of npy files, mapped into memory."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from shoal.errors import InputError, ShapeError
from shoal.offline.dataset import Dataset, File, block_rows, check_width


class NpyBlock(NamedTuple):
    """Rows start..stop of a npy file."""

    path: str
    start: int
    stop: int

    @property
    def n_rows(self) -> int:
        """Rows of the block."""
        return self.stop - self.start

    def chunks(self, rows: int) -> Iterator[Any]:
        """See `Block`."""
        table = _mapped(self.path)
        for first in range(self.start, self.stop, rows):
            yield table[first : min(first + rows, self.stop)]


def open_npy(paths: list[str]) -> Dataset:
    """The data set of npy files. Raises InputError, ShapeError."""
    files, width = [], 0
    for path in paths:
        table = _mapped(path)
        width = width or table.shape[1]
        check_width(table.shape[1], width, path)
        n, step = len(table), block_rows(width)
        files.append(File(path, path, tuple(NpyBlock(path, i, min(i + step, n)) for i in range(0, n, step))))
    return Dataset(tuple(files), width, None)


def _mapped(path: str) -> Any:
    try:
        table = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path} is not a usable npy file: {error}") from error
    if table.dtype.kind not in "fiu" or table.ndim != 2 or table.shape[1] == 0:
        raise ShapeError(
            f"{path} holds {table.dtype} of shape {table.shape}; points must be a table (N, D) of real numbers"
        )
    return table
