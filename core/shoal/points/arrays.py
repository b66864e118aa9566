"""Array aliases, and the check that points pass when they enter the library."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shoal.errors import NotFiniteError, NotNumericError, ShapeError, counted

Array: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]
SingleArray: TypeAlias = npt.NDArray[np.float32]
BoolArray: TypeAlias = npt.NDArray[np.bool_]

MAX_MAGNITUDE = np.float64(1e150)
"""Largest |x| accepted: beyond it a square overflows."""

LARGEST_COORDINATE = 1e100
"""Standardised coordinates of larger magnitude are taken as this one, learning and asking alike: no sum of squares
overflows within 1e100 points."""


def as_points(points: Any, n_features: int | None = None) -> Array:
    """Check points and give them as a C-ordered float64 array (N, D).

    Accepts anything NumPy can read as a two-dimensional table of real numbers; integers are converted.
    Never copies an array that is already float64, C-ordered and two-dimensional.

    Raises ShapeError (not two-dimensional, no columns, or not `n_features` of them), NotNumericError (booleans,
    strings, objects, complex numbers) and NotFiniteError (NaN, infinite, or |x| > 1e150); each names the first bad row.
    """
    try:
        raw = np.asarray(unmasked(points))
    except ValueError as error:
        raise ShapeError(f"points do not form a table: {error}; send rows of equal length") from error
    if raw.dtype.kind not in "fiu":
        raise NotNumericError(f"points have dtype {raw.dtype}; send real numbers (float or integer)")
    if raw.ndim != 2:
        raise ShapeError(f"points have shape {raw.shape}; send a table (N, D), one row a point")
    if raw.shape[1] == 0:
        raise ShapeError(f"points have shape {raw.shape}, which has no features; send at least one column")
    if n_features is not None and raw.shape[1] != n_features:
        raise ShapeError(
            f"points have {counted(raw.shape[1], 'feature')}, {n_features} expected; send the columns used before"
        )
    x = np.ascontiguousarray(raw, dtype=np.float64)
    check_finite(x)
    return x


def unmasked(points: Any) -> Any:
    """A masked array of NumPy as an array with a missing value, NaN or None, in each masked place; anything else as it
    is. NumPy itself would read the numbers behind the mask."""
    if not isinstance(points, np.ma.MaskedArray):
        return points
    if not np.ma.is_masked(points):
        return points.data
    numeric = points.dtype.kind in "fiu"
    given = points.data.astype(np.float64 if numeric else object)
    given[np.ma.getmaskarray(points)] = np.nan if numeric else None
    return given


def check_finite(x: npt.NDArray[np.floating[Any]]) -> None:
    """Raise NotFiniteError naming the first row of x (N, D) that holds NaN, an infinity or |x| > 1e150."""
    if largest_magnitude(x) <= MAX_MAGNITUDE:
        return
    with np.errstate(invalid="ignore"):
        bad = ~(np.abs(x) <= MAX_MAGNITUDE)
    row = int(np.argmax(bad.any(axis=1)))
    column = int(np.argmax(bad[row]))
    raise NotFiniteError(
        f"row {row} holds {float(x[row, column])!r} in column {column}; send finite numbers of magnitude at most 1e150",
        row=row,
        column=column,
    )


def largest_magnitude(x: npt.NDArray[np.floating[Any]]) -> float:
    """max |x|, NaN where there is one, 0 of nothing; without a temporary, and of few numbers in a third of the time of
    `x.max`."""
    if x.size == 0:
        return 0.0
    if not x.flags.c_contiguous:  # of which `argmax` would make a copy
        with np.errstate(invalid="ignore"):  # a signalling NaN
            return max(float(x.max()), -float(x.min()))
    return max(float(x.item(x.argmax())), -float(x.item(x.argmin())))


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same array, marked read-only, so that a stray write to something published fails at once."""
    array.flags.writeable = False
    return array
