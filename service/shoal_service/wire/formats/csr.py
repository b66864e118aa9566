"""Compressed sparse rows: the three arrays of a matrix, and the MessagePack map in which they are sent and logged.

    {"d": D, "indptr": 8-byte integers, "indices": 4-byte integers, "values": 8-byte floats}, all little-endian

Row i stores `values[indptr[i]:indptr[i + 1]]` in the columns `indices[indptr[i]:indptr[i + 1]]`. Every array begins at
a multiple of eight, so that it is read without a copy. For that, some lengths are written in longer forms than needed:

    offset  0        de 0004  d9 06 "indptr"   c6   length in four bytes, then N + 1 integers
           16 + a    db 00000006 "values"      c6   length in four bytes, then as many numbers as are stored
           32 + b    a1 "d" cf                      D as an unsigned 64-bit integer
           43 + b    a7 "indices"              c6   length in four bytes, then as many integers
"""

import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.errors import ShapeError
from shoal_service.errors import LimitError, MalformedBodyError
from shoal_service.wire.points import (
    MAX_MAGNITUDE,
    Sparse,
    WireLimits,
    check_shape,
    is_usable,
    not_finite,
)

EXPECTED = '{"d": features, "indptr": i8 bytes, "indices": i4 bytes, "values": f8 bytes}, each little-endian'

_MAX_BYTES = 2**32 - 1
_INDPTR = struct.Struct(">3s8ssI")
_VALUES = struct.Struct(">11ssI")
_D_INDICES = struct.Struct(">3sQ8ssI")


class Csr(NamedTuple):
    """The arrays of N rows over `n_features` columns."""

    indptr: npt.NDArray[np.int64]
    """(N + 1,), from 0 to the number of stored values, never decreasing."""
    indices: npt.NDArray[Any]
    values: npt.NDArray[np.float64]
    n_features: int

    @property
    def n_rows(self) -> int:
        """N."""
        return len(self.indptr) - 1

    def row_of(self, at: int) -> int:
        """Row of the value that is stored at position `at`."""
        return int(np.searchsorted(self.indptr, at, side="right")) - 1

    def first_misplaced(self) -> int | None:
        """Position of the first value whose column is not a feature, or not above the column before it in its row.
        None if all rows are in order.
        """
        bad = (self.indices < 0) | (self.indices >= self.n_features)
        rises = np.diff(self.indices) > 0
        starts = self.indptr[(self.indptr > 0) & (self.indptr < len(self.indices))]
        rises[starts - 1] = True  # from one row to the next there is no order
        bad[1:] |= ~rises
        return int(bad.argmax()) if bad.any() else None

    def matrix(self) -> Sparse:
        """The matrix as SciPy stores it, with 32-bit indices. The rows must be in order."""
        from scipy.sparse import csr_array  # takes a sixth of a second to load

        arrays = (self.values, self.indices.astype(np.int32, copy=False), self.indptr.astype(np.int32))
        matrix: Sparse = csr_array(arrays, shape=(self.n_rows, self.n_features))
        matrix.has_canonical_format = True
        return matrix


def csr_from(d: int, indptr: memoryview, indices: memoryview, values: memoryview) -> Csr:
    """View these bytes as arrays. Checks that the rows follow each other and fit the values, but not columns or values.

    Raises MalformedBodyError.
    """
    if not 1 <= d < 2**31:
        raise MalformedBodyError(f"d is {d}; send the number of features, at least 1")
    try:
        csr = Csr(np.frombuffer(indptr, "<i8"), np.frombuffer(indices, "<i4"), np.frombuffer(values, "<f8"), d)
    except ValueError:
        raise MalformedBodyError(f"the bytes of an array are not a whole number of elements; send {EXPECTED}") from None
    n_stored = len(csr.values)
    whole = len(csr.indptr) and csr.indptr[0] == 0 and csr.indptr[-1] == n_stored == len(csr.indices)
    if not whole or (np.diff(csr.indptr) < 0).any():
        raise MalformedBodyError(f"indptr does not divide {n_stored} values and their columns into rows; check indptr")
    return csr


def check_csr(csr: Csr, limits: WireLimits) -> None:
    """Check rows. Raises ShapeError (none, a column that is no feature or out of order), NotFiniteError, LimitError."""
    check_shape(csr.n_rows, csr.n_features, limits)
    misplaced, unusable = csr.first_misplaced(), _first_unusable(csr.values)
    if misplaced is not None and (unusable is None or csr.row_of(misplaced) <= csr.row_of(unusable)):
        row = csr.row_of(misplaced)
        raise ShapeError(
            f"row {row} has column {csr.indices[misplaced]} at a wrong place; send columns from 0 to "
            f"{csr.n_features - 1}, in ascending order within the row, each at most once",
            row=row,
        )
    if unusable is not None:
        raise not_finite(csr.row_of(unusable), int(csr.indices[unusable]), float(csr.values[unusable]))


def write_csr(matrix: Sparse) -> bytes:
    """Write a matrix whose rows are in order as a map. Raises LimitError if it is too large."""
    indptr = matrix.indptr.astype("<i8")
    values = np.ascontiguousarray(matrix.data, "<f8")
    indices = np.ascontiguousarray(matrix.indices, "<i4")
    if values.nbytes + indptr.nbytes > _MAX_BYTES:
        raise LimitError(
            f"the batch stores {values.size} numbers in {matrix.shape[0]} rows, too much for one log entry; "
            "send smaller batches"
        )
    return b"".join(
        (
            _INDPTR.pack(b"\xde\x00\x04", b"\xd9\x06indptr", b"\xc6", indptr.nbytes),
            indptr.data,
            _VALUES.pack(b"\xdb\x00\x00\x00\x06values", b"\xc6", values.nbytes),
            values.data,
            _D_INDICES.pack(b"\xa1d\xcf", matrix.shape[1], b"\xa7indices", b"\xc6", indices.nbytes),
            indices.data,
        )
    )


def _first_unusable(values: npt.NDArray[np.float64]) -> int | None:
    return None if is_usable(values) else int((~(np.abs(values) <= MAX_MAGNITUDE)).argmax())
