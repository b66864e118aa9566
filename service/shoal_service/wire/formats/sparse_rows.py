"""Sparse rows in JSON and NDJSON: `{"indices": [0, 7], "values": [2, 1]}`. All other features are zero.

The rows do not contain the number of features. The stream knows it.
"""

from collections.abc import Iterable, Sequence
from itertools import chain

import msgspec
import numpy as np

from shoal.errors import NotNumericError, ShapeError
from shoal_service.wire.formats.csr import Csr
from shoal_service.wire.formats.text_rows import check_number, shown
from shoal_service.wire.points import Sparse, WireLimits, check_shape, is_usable

EXPECTED = '{"indices": [0, 7], "values": [2.0, 1.0]}'


class SparseRow(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """One row: `values[i]` is feature `indices[i]`, counted from 0, in any order, each at most once."""

    indices: list[int]
    values: list[float]


def sparse_of(rows: Sequence[SparseRow], n_features: int | None, limits: WireLimits) -> Sparse:
    """Make the matrix (N, n_features) of `rows`, in float64.

    Raises ShapeError (no rows, `n_features` unknown, a wrong or repeated index, lists of different lengths),
    NotFiniteError and LimitError. The errors name the first bad row.
    """
    width = known_width(n_features)
    check_shape(len(rows), width, limits)
    lengths = np.fromiter((len(row.indices) for row in rows), np.int64, len(rows))
    if any(len(row.indices) != len(row.values) for row in rows):
        refuse_first_bad_sparse_row(map(msgspec.to_builtins, rows), width)
    n_stored = int(lengths.sum())
    try:
        indices = np.fromiter(chain.from_iterable(row.indices for row in rows), np.int64, n_stored)
    except OverflowError:  # beyond 64 bits
        indices = np.full(n_stored, -1)
    values = np.fromiter(chain.from_iterable(row.values for row in rows), np.float64, n_stored)
    csr = Csr(np.concatenate(([0], np.cumsum(lengths))), indices, values, width)
    if csr.first_misplaced() is not None:
        order = np.lexsort((indices, np.repeat(np.arange(len(rows)), lengths)))
        csr = csr._replace(indices=indices[order], values=values[order])
    if csr.first_misplaced() is not None or not is_usable(values):
        refuse_first_bad_sparse_row(map(msgspec.to_builtins, rows), width)
    return csr.matrix()


def known_width(n_features: int | None) -> int:
    """The number of features. Raises ShapeError if it is not known."""
    if n_features is None:
        raise ShapeError(
            "sparse rows do not contain the number of features, and the stream does not exist; create it first, with "
            'PUT and {"n_features": ..., "family": ...}'
        )
    return n_features


def refuse_first_bad_sparse_row(rows: Iterable[object], n_features: int) -> None:
    """Raise the error for the first row that is not a sparse row, or holds a bad index or value."""
    for i, row in enumerate(rows):
        if not isinstance(row, dict) or set(row) != {"indices", "values"}:
            what = f"an object of {sorted(row)[:5]}" if isinstance(row, dict) else shown(row)
            raise ShapeError(f"row {i} is {what[:80]}; send sparse rows like {EXPECTED}", row=i)
        indices, values = row["indices"], row["values"]
        if not isinstance(indices, list) or not isinstance(values, list) or len(indices) != len(values):
            raise ShapeError(
                f"row {i} does not have two arrays of equal length; send sparse rows like {EXPECTED}", row=i
            )
        _check_row(i, indices, values, n_features)


def _check_row(i: int, indices: list[object], values: list[object], n_features: int) -> None:
    seen = set()
    for index, value in zip(indices, values, strict=True):
        if isinstance(index, bool) or not isinstance(index, int):
            raise NotNumericError(
                f"row {i} has the index {shown(index)}, which is not a whole number; send numbers of features", row=i
            )
        if not 0 <= index < n_features:
            raise ShapeError(
                f"row {i} has the index {shown(index)}, the features are 0 to {n_features - 1}; "
                "send the features with which the stream was created",
                row=i,
            )
        if index in seen:
            raise ShapeError(
                f"row {i} has the index {index} twice; send each feature once, with the sum of its values", row=i
            )
        seen.add(index)
        check_number(i, index, value)
