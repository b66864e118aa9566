"""Compressed rows as kernels read them."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.points.arrays import Array, IntArray
from shoal.points.rows import Points, SparseRows


class CountRows(NamedTuple):
    """Compressed rows as kernels read them; made by `kernel_rows`."""

    indptr: IntArray  # (N + 1,)
    indices: npt.NDArray[np.int32]  # (nonzeros,)
    values: Array  # (nonzeros,) >= 1
    shape: tuple[int, int]  # N, D: as an array's


def kernel_rows(x: Points) -> CountRows:
    """Points (N, D) as kernels read them: read-only, of one type, so that a kernel compiles once."""
    rows = SparseRows.of(x)
    fields = [
        np.require(rows.indptr, np.int64, ["C", "A"]).view(),
        np.require(rows.indices, np.int32, ["C", "A"]).view(),
        np.require(rows.data, np.float64, ["C", "A"]).view(),
    ]
    for field in fields:
        field.flags.writeable = False
    return CountRows(fields[0], fields[1], fields[2], (int(rows.shape[0]), int(rows.shape[1])))
