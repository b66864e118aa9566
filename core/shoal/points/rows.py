"""Points that are mostly zero: rows in compressed form that pass where a table of points passes."""

from typing import Any, TypeAlias

import numpy as np
from scipy.sparse import csr_array, issparse

from shoal.points.arrays import LARGEST_COORDINATE, Array, IntArray, largest_magnitude

__all__ = [
    "Points",
    "SparseRows",
    "issparse",
    "row_elements",
    "rows_bytes",
    "stacked",
    "stacked_starts",
    "standardised",
    "standardising_changes",
]


class SparseRows(csr_array):
    """Compressed rows (N, D) of float64 in canonical form: columns ascend within a row, none twice, no stored zeros.

    A `scipy.sparse.csr_array` that knows its length and whose slices do, so that code which cuts points into blocks
    need not know which kind it has. Made by `of`.
    """

    def __len__(self) -> int:
        """N."""
        return int(self.shape[0])

    @classmethod
    def of(cls, x: Any) -> "SparseRows":
        """Any sparse matrix or table (N, D) of finite numbers; shares memory where `x` is in canonical form already."""
        if isinstance(x, cls):
            return x
        rows = cls(x, dtype=np.float64)
        if not rows.has_canonical_format:
            rows = rows.copy()
            rows.sum_duplicates()
        if not np.all(rows.data):
            rows = rows.copy()
            rows.eliminate_zeros()
        return rows

    def with_values(self, values: Array) -> "SparseRows":
        """The rows with other values (E,) of their E elements; the places of the elements are shared."""
        return SparseRows((values, self.indices, self.indptr), shape=self.shape)


Points: TypeAlias = Array | SparseRows
"""Rows (N, D): a table, or compressed where the family's domain says so."""


def row_elements(x: Points) -> int:
    """Numbers that a row takes, at least one: of compressed rows the average, which is what blocks are sized by."""
    if isinstance(x, SparseRows):
        return 1 + int(x.nnz) // max(1, len(x))
    return max(1, int(x.shape[1]))


def rows_bytes(x: Points) -> int:
    """Bytes that rows take."""
    if isinstance(x, SparseRows):
        return int(x.data.nbytes + x.indices.nbytes + x.indptr.nbytes)
    return int(x.nbytes)


def stacked(parts: list[Points]) -> Points:
    """Rows of the same kind and width, one part below the other; at least one part."""
    if not isinstance(parts[0], SparseRows):
        return np.concatenate([np.asarray(part) for part in parts])
    blocks = [part for part in parts if isinstance(part, SparseRows)]
    arrays = (
        np.concatenate([block.data for block in blocks]),
        np.concatenate([block.indices for block in blocks]),
        stacked_starts([block.indptr for block in blocks]),
    )
    return SparseRows(arrays, shape=(sum(map(len, blocks)), blocks[0].shape[1]))


def stacked_starts(starts: list[Any]) -> IntArray:
    """Where rows start, and the last one ends (N + 1,), from the same of parts, whose integers may be of 32 bits: a
    sum of them need not fit into those."""
    before = np.cumsum([0, *(int(own[-1]) for own in starts)], dtype=np.int64)
    moved = [own[:-1].astype(np.int64) + offset for own, offset in zip(starts, before[:-1], strict=True)]
    return np.concatenate([*moved, before[-1:]])


def standardising_changes(location: Array, scale: Array) -> bool:
    """Whether (x - location) / scale is another number than x for some x."""
    return bool(location.any()) or not bool((scale == 1.0).all())


def standardised(x: Points, location: Array, scale: Array, *, changes: bool | None = None) -> Any:
    """(x - location) / scale for x (N, D), clipped to magnitude 1e100 so that squares stay finite.

    It is x itself where nothing changes, and for sparse rows, whose domains have no location. `changes`: what
    `standardising_changes` says of location and scale, if that is known.
    """
    if isinstance(x, SparseRows):
        return x
    if not (standardising_changes(location, scale) if changes is None else changes):
        z = x
    else:
        with np.errstate(over="ignore"):
            z = x - location
            z /= scale
    return z if largest_magnitude(z) <= LARGEST_COORDINATE else z.clip(-LARGEST_COORDINATE, LARGEST_COORDINATE)
