"""Checked points, the limits on them, and the checks that all formats share."""

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from shoal.errors import NotFiniteError, NotNumericError, ShapeError
from shoal_service.errors import LimitError
from shoal_service.wire.record_fields import MAX_PAYLOAD_BYTES, RecordFields

if TYPE_CHECKING:  # the decoding child loads this module, and must not load pydantic or SciPy
    from scipy.sparse import csr_array

    from shoal_service.settings import Settings

Body: TypeAlias = bytes | bytearray
Table: TypeAlias = npt.NDArray[np.float32] | npt.NDArray[np.float64]
Sparse: TypeAlias = "csr_array[np.float64, tuple[int, int]]"
"""(N, D), column indices ascending within each row; values finite, |x| <= 1e150, zeros allowed."""

TextColumns: TypeAlias = tuple[tuple[int, tuple[str, ...]], ...]
"""Columns of texts with their distinct texts, in the order in which they come."""

MAX_MAGNITUDE = 1e150
"""Largest accepted |x|. The square of a larger number overflows. The library has the same limit."""


class Points(NamedTuple):
    """A checked batch. Its values are not checked again."""

    x: "Table | Sparse"
    """(N, D), N >= 1, D >= 1, native byte order, finite, |x| <= 1e150. It may be a read-only view of the body.

    A table is in C order, and float32 if float32 was sent. Sparse rows stay sparse, in float64."""
    fields: RecordFields | None = None
    """Keys, times and payloads of the points. None where no point has any."""
    names: tuple[str, ...] | None = None
    """Names of the columns, as they were sent. None where the body holds none."""
    texts: "TextColumns | None" = None
    """The texts of the columns that hold some. In `x` a text is its place here. None where the body holds none."""

    @property
    def is_sparse(self) -> bool:
        """Whether `x` is a matrix in compressed rows."""
        return not isinstance(self.x, np.ndarray)

    @property
    def n_points(self) -> int:
        """N."""
        return int(self.x.shape[0])

    @property
    def n_features(self) -> int:
        """D."""
        return int(self.x.shape[1])


class WireLimits(msgspec.Struct, frozen=True):
    """Limits on the content of one body."""

    max_body_bytes: int
    """Before and after decompression."""
    max_rows: int
    max_features: int
    max_payload_bytes: int = MAX_PAYLOAD_BYTES
    """Of a record."""
    holes: bool = False
    """Whether NaN and null stand for missing values of a point."""
    texts: bool = False
    """Whether columns may hold texts."""

    @classmethod
    def of(cls, settings: "Settings") -> "WireLimits":
        """The limits in the settings of the service."""
        return cls(
            int(settings.max_body_bytes), settings.max_rows, settings.max_features, int(settings.max_payload_bytes)
        )

    @property
    def max_values(self) -> int:
        """Largest number of values: that of a float32 body of the largest size. A JSON body may be shorter for the same
        numbers (`0,0,0`), and could otherwise grow to sixteen times its size."""
        return self.max_body_bytes // 4


def check_shape(n_rows: int, n_features: int, limits: WireLimits) -> None:
    """Check the shape of a table. Raises ShapeError if it is empty, LimitError for too many rows or features."""
    if n_rows == 0:
        raise ShapeError("the body holds no points; send at least one row")
    if n_features == 0:
        raise ShapeError("row 0 holds no numbers; send at least one feature per row", row=0)
    if n_rows > limits.max_rows:
        raise LimitError(f"the body holds {n_rows} rows, the limit is {limits.max_rows}; send smaller batches")
    if n_features > limits.max_features:
        raise LimitError(
            f"rows have {n_features} features, the limit is {limits.max_features} (setting max_features); send fewer"
        )


def as_table(raw: npt.NDArray[Any]) -> Table:
    """Convert real numbers (N, D) to float32 (from half or single precision) or float64, aligned and in C order.

    Copies only if needed. Raises NotNumericError for booleans, complex numbers, text, dates and so on.
    """
    if raw.dtype.kind not in "fiu" or raw.dtype.itemsize > 8:
        raise NotNumericError(f"points have dtype {raw.dtype}; send real numbers as f4, f8 or integers")
    single = raw.dtype.kind == "f" and raw.dtype.itemsize <= 4
    with np.errstate(invalid="ignore"):  # a signalling NaN, which check_values refuses by its row
        return np.require(raw, np.float32 if single else np.float64, ["C", "ALIGNED"])


def check_values(x: Table, *, holes: bool = False) -> None:
    """Check x (N, D). Raises NotFiniteError with the first row that holds NaN, infinity or |x| > 1e150.

    With `holes`, NaN is a missing value, and only a row of nothing else is refused.
    """
    if is_usable(x):
        return
    with np.errstate(invalid="ignore"):
        bad = ~(np.abs(x) <= np.float64(MAX_MAGNITUDE))  # as a Python float it would become an infinite float32
    if holes:
        missing = np.isnan(x)
        bad &= ~missing
        empty = missing.all(axis=1)
        if not bad.any() and not empty.any():
            return
        if empty.any() and not bad[: int(empty.argmax())].any():
            row = int(empty.argmax())
            raise NotFiniteError(f"row {row} holds no value at all; send a row with a value, or leave it out", row=row)
    row = int(bad.any(axis=1).argmax())
    column = int(bad[row].argmax())
    raise not_finite(row, column, float(x[row, column]), single=x.dtype == np.float32)


def is_usable(values: npt.NDArray[np.floating[Any]]) -> bool:
    """Whether all values are finite and at most 1e150 in magnitude."""
    if values.size == 0:
        return True
    largest, smallest = (
        values.item(values.argmax()),
        values.item(values.argmin()),
    )  # without a temporary array; NaN if there is one
    return max(float(largest), -float(smallest)) <= MAX_MAGNITUDE


def place_of(column: int | str) -> str:
    """A column by its number, or a feature by its name, for a message."""
    return f"column {column}" if isinstance(column, int) else f"feature {column[:60]!r}"


def not_finite(row: int, column: int | str, value: float, *, single: bool = False) -> NotFiniteError:
    """Make the error for one value."""
    why, place = f"row {row} holds {value!r} in {place_of(column)}", column if isinstance(column, int) else None
    if single and np.isinf(value):
        return NotFiniteError(f"{why}, because float32 holds no number above 3.4e38; send f8", row=row, column=place)
    return NotFiniteError(f"{why}; send finite numbers of magnitude at most 1e150", row=row, column=place)
