"""Rows of points as named arrays of a snapshot, and back: a table as it is, compressed rows as their three parts."""

from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.mixture.work_check import need
from shoal.points.arrays import Array
from shoal.points.domains import Domain
from shoal.points.rows import Points, SparseRows

_PARTS = (".indptr", ".indices", ".values")


def named_rows(name: str, x: Points) -> dict[str, npt.NDArray[Any]]:
    """Rows x (n, D) under names that begin with `name`."""
    if not isinstance(x, SparseRows):
        return {name: x}
    parts = (x.indptr.astype(np.int64), x.indices.astype(np.int64), np.asarray(x.data))
    return {name + part: array for part, array in zip(_PARTS, parts, strict=True)}


def taken_rows(name: str, arrays: dict[str, npt.NDArray[Any]], domain: Domain, n_features: int) -> Points:
    """Inverse of `named_rows`: the rows, taken out of `arrays`.

    Raises KeyError where they are missing, ValueError where they are no rows in canonical form.
    """
    if not domain.sparse:
        table: Array = arrays.pop(name)
        return table
    indptr, indices, values = (arrays.pop(name + part) for part in _PARTS)
    need(indptr.dtype == indices.dtype == np.int64 and values.dtype == np.float64, f"{name} has other dtypes")
    need(indptr.ndim == indices.ndim == values.ndim == 1 and indptr.size > 0, f"{name} has other shapes")
    need(bool(indptr[0] == 0 and indptr[-1] == indices.size == values.size), f"{name} has rows that do not fit")
    need(bool((np.diff(indptr) >= 0).all()), f"{name} has rows that run backwards")
    need(bool(((indices >= 0) & (indices < n_features)).all()), f"{name} has a column that is none")
    ascends = np.diff(indices) > 0
    starts = indptr[1:-1]
    ascends[starts[(starts > 0) & (starts < indices.size)] - 1] = True  # from one row to the next there is no order
    need(bool(ascends.all()), f"{name} has columns out of order")
    need(bool(np.all(values)), f"{name} stores zeros")
    return SparseRows((values, indices.astype(np.int32), indptr), shape=(indptr.size - 1, n_features))
