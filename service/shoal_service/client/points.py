"""Points from many sources, as numbered and checked batches.

A source is a table (N, D), or an iterable of rows (D,), of tables (n, D), or of both. float32 stays float32, and all
other real numbers become float64, so nothing is rounded. A table may be any sparse matrix of SciPy. It stays sparse.
`Records` are tables whose points carry keys, times, payloads and weights. Columns of categories may hold texts, in data
frames, in arrays of objects or of texts, and in lists of rows. The first row of a source says which columns do.
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from shoal.errors import NotFiniteError, counted
from shoal.points.arrays import MAX_MAGNITUDE, check_finite, largest_magnitude, unmasked
from shoal_service.client.errors import BadPointsError
from shoal_service.client.record_points import FieldLists, Records, fields_of, joined_fields
from shoal_service.client.text_columns import TextColumns, columns_of_texts, holds_texts, texts_in_place, with_places

Table: TypeAlias = npt.NDArray[np.floating[Any]]


MAX_NAME = 200
"""Most characters of the name of a feature. The service has the same limit."""


class Batch(NamedTuple):
    """A table of points, with its position in the source."""

    first_row: int
    x: Any
    """(n, D), float32 or float64; or a `scipy.sparse.csr_array` of float64 with ascending columns."""
    fields: FieldLists | None = None
    names: tuple[str, ...] | None = None
    """Names of the columns, where the source has them."""
    texts: TextColumns = ()
    """The texts of the columns that hold some. In `x`, which is of float64 then, a text is its place here."""

    @property
    def n_points(self) -> int:
        """n."""
        return int(self.x.shape[0])

    def without(self, row: int) -> "Batch":
        """The batch without one of its points. `first_row` stays, so that it keeps its name."""
        others = np.delete(np.arange(self.n_points), row)
        left = self._replace(x=self.x[others], fields=self.fields and self.fields.without(row))
        if not self.texts:
            return left
        columns = frozenset(column for column, _ in self.texts)
        x, texts = with_places(left.table(), columns, self.first_row, self.names, holes=True)
        return left._replace(x=x, texts=texts)

    def table(self) -> Any:
        """The points as they are for people: `x`, with the texts where a column has some."""
        return texts_in_place(self.x, self.texts) if self.texts else self.x


class Source(NamedTuple):
    """A source of points."""

    items: Iterator[Any] | AsyncIterator[Any]
    n_points: int | None
    """Number of points, if it is known in advance."""


def open_source(points: Any) -> Source:
    """Open a source: a table is one item, another iterable gives its items. Raises BadPointsError."""
    if isinstance(points, Records):
        return Source(iter([points]), _rows_of(points.points))
    if is_sparse(points):
        return Source(iter([points] if points.shape[0] else []), points.shape[0])
    if hasattr(points, "__array__"):
        table = np.asarray(unmasked(points))
        if table.ndim != 2 and table.size:
            raise BadPointsError(
                f"points have shape {table.shape}; send a table (N, D), one row per point (x[None, :] for one point)"
            )
        return Source(iter([points if names_of(points) else table] if table.size else []), len(table))
    if hasattr(points, "__aiter__"):
        return Source(aiter(points), None)
    if isinstance(points, Iterable) and not isinstance(points, str | bytes | bytearray | dict):
        return Source(iter(points), None)
    raise BadPointsError(
        f"points have type {type(points).__name__}; send an array of shape (N, D), or an iterable of rows or arrays"
    )


def _rows_of(table: Any) -> int:
    if hasattr(table, "shape") and table.shape:
        return int(table.shape[0])
    if isinstance(table, list | tuple):
        return len(table)
    raise BadPointsError(
        f"points have type {type(table).__name__}; points with keys, times, payloads or weights must be a table "
        "(N, D), or an iterable of `Records`"
    )


class Batcher:
    """Divides the items of a source into batches of `batch_size` rows. Only the last may be shorter.

    It needs memory for one batch and one item. All rows must have the same length.
    """

    def __init__(self, batch_size: int, *, holes: bool = False) -> None:
        self._holes = holes
        if batch_size < 1:
            raise BadPointsError(f"batch_size is {batch_size}; use at least 1")
        self._batch_size = batch_size
        self._width: int | None = None
        self._names: tuple[str, ...] | None = None
        self._text_columns: frozenset[int] | None = None
        self._rows_taken = 0  # rows of the source so far
        self._held: list[tuple[Any, FieldLists | None]] = []
        self._n_held = 0

    def push(self, item: Any) -> Iterator[Batch]:
        """Add the next item of the source. Gives the batches that are full now."""
        table = self._in_order(self._table(item.points if isinstance(item, Records) else item), names_of(item))
        n_rows = table.shape[0]
        fields = fields_of(item, n_rows, self._rows_taken) if isinstance(item, Records) else None
        self._rows_taken += n_rows
        start = 0
        while n_rows - start >= self._batch_size - self._n_held:
            stop = start + self._batch_size - self._n_held
            self._hold(table[start:stop], fields and fields.rows(slice(start, stop)), copy=False)
            start = stop
            yield self._cut(rows_behind=n_rows - stop)
        self._hold(
            table[start:], fields and fields.rows(slice(start, None)), copy=True
        )  # kept after this call: a generator may fill the same array again

    def flush(self) -> Iterator[Batch]:
        """Give the last, shorter batch, if there is one."""
        if self._n_held:
            yield self._cut(rows_behind=0)

    def _hold(self, rows: Any, fields: FieldLists | None, *, copy: bool) -> None:
        if rows.shape[0]:  # converted batch by batch: the item may be a memory map larger than memory
            if self._text_columns is None or (self._holes and rows.dtype == object):  # values may be missing so far
                found = columns_of_texts(rows, holes=self._holes) if rows.dtype == object else frozenset()
                self._text_columns = found | (self._text_columns or frozenset())
            single = rows.dtype.kind == "f" and rows.dtype.itemsize == 4 and not is_sparse(rows)
            kind = object if rows.dtype == object else np.float32 if single else np.float64
            self._held.append((rows.astype(kind, copy=copy), fields))
            self._n_held += rows.shape[0]

    def _cut(self, rows_behind: int) -> Batch:
        first_row = self._rows_taken - rows_behind - self._n_held
        x = _joined([table for table, _ in self._held], first_row)
        fields = joined_fields([(fields, table.shape[0]) for table, fields in self._held])
        self._held, self._n_held = [], 0
        texts: TextColumns = ()
        if x.dtype == object or self._text_columns:
            x, texts = with_places(x, self._text_columns or frozenset(), first_row, self._names, holes=self._holes)
        check_rows(x, first_row, self._names, holes=self._holes)
        return Batch(first_row, x, fields, self._names, texts)

    def _in_order(self, table: Any, names: tuple[str, ...] | None) -> Any:
        """The table with its columns in the order of the first table, by their names."""
        if self._rows_taken == 0 and self._names is None:
            self._names = names
        if names is None or self._names is None or names == self._names:
            return table
        if set(names) != set(self._names):
            wrong = sorted(set(names) ^ set(self._names))[0]
            raise BadPointsError(
                f"the table from row {self._rows_taken} on has other columns than the first one ({wrong!r} is in one "
                "only); send the same columns",
                row=self._rows_taken,
            )
        return table[:, [names.index(name) for name in self._names]]

    def _table(self, item: Any) -> Any:
        """Convert an item to a table (n, D) of real numbers, or to compressed rows."""
        at = self._rows_taken
        raw = as_csr(item, at) if is_sparse(item) else _as_array(item, at)
        if raw.ndim not in (1, 2):
            what = f"one number, {raw.item()!r}" if raw.ndim == 0 else f"an array of shape {raw.shape}"
            raise BadPointsError(f"row {at} is {what}; a point is a row of numbers, a table has shape (N, D)", row=at)
        table = raw[None, :] if raw.ndim == 1 else raw
        if table.ndim == 2 and table.shape[0] == 0:
            return np.empty((0, self._width or 0))
        if self._width is None and table.shape[1]:
            self._width = table.shape[1]
        if table.shape[1] != self._width:
            expected = (
                f"the rows before have {self._width}; send rows of equal length" if self._width else "send at least one"
            )
            raise BadPointsError(f"row {at} has {counted(table.shape[1], 'feature')}, {expected}", row=at)
        return table


def names_of(points: Any) -> tuple[str, ...] | None:
    """Names of the columns of a data frame (pandas, polars, Arrow) or of `Records`. None where they name nothing."""
    if isinstance(points, Records) and points.feature_names is None:
        return names_of(points.points)
    if isinstance(points, Records):
        found: Any = points.feature_names
    else:
        found = getattr(points, "column_names", getattr(points, "columns", None))
    names: tuple[Any, ...] = () if found is None else tuple(found)
    texts = all(isinstance(name, str) and 0 < len(name) <= MAX_NAME for name in names)
    return names if texts and 0 < len(names) == len(set(names)) else None


def is_sparse(points: Any) -> bool:
    """Whether these points are a sparse matrix of SciPy. Does not load SciPy."""
    return hasattr(points, "tocsr") and hasattr(points, "nnz")


def as_csr(matrix: Any, row: int = 0) -> Any:
    """Convert a sparse matrix (n, D) of real numbers to compressed rows with ascending columns.

    Values that are stored twice are added, as in SciPy. Raises BadPointsError, which names `row`.
    """
    from scipy.sparse import csr_array

    if matrix.dtype.kind not in "fiu":
        raise BadPointsError(f"row {row} has dtype {matrix.dtype}; send real numbers (float or integer)", row=row)
    if matrix.ndim != 2:
        raise BadPointsError(f"points have shape {matrix.shape}; send a matrix (N, D), one row per point", row=row)
    rows = csr_array(matrix)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def _joined(held: list[Any], first_row: int) -> Any:
    """Join tables by rows. f4 and f8 give f8."""
    if len(held) == 1:
        return held[0]
    sparse = [is_sparse(table) for table in held]
    if not any(sparse):
        return np.concatenate(held)
    if not all(sparse):
        raise BadPointsError(f"the batch from row {first_row} on has both sparse and dense rows; send one kind only")
    from scipy.sparse import vstack

    return vstack(held, format="csr")


def check_rows(x: Any, first_row: int, names: tuple[str, ...] | None = None, *, holes: bool = False) -> None:
    """Check x (n, D). Raises BadPointsError for NaN, infinity and |x| > 1e150, with the row in the source and the
    column, by its name if there are `names`.

    With `holes`, NaN stands for a missing value.
    """
    numbers = x.data[:, None] if is_sparse(x) else x
    if largest_magnitude(numbers) <= MAX_MAGNITUDE:
        return
    try:
        check_finite(np.where(np.isnan(x), 0.0, x) if holes and not is_sparse(x) else numbers)
    except NotFiniteError as error:
        row = error.row or 0
        if is_sparse(x):
            row = int(np.searchsorted(x.indptr, row, side="right")) - 1
        shown = x[[row]].data if is_sparse(x) else x[row]
        values = np.array2string(shown, threshold=8, edgeitems=4, separator=", ")
        at, fine = first_row + row, np.abs(shown) <= MAX_MAGNITUDE
        place = int(np.argmin(fine | np.isnan(shown) if holes and not is_sparse(x) else fine))
        column = int(x[[row]].indices[place]) if is_sparse(x) else place
        where = f"column {column}" if names is None else f"feature {names[column]!r}"
        raise BadPointsError(
            f"row {at} holds a number that is not finite or above 1e150 in magnitude in {where}: {values}; fix or drop "
            "the row",
            row=at,
        ) from error


def _as_array(item: Any, row: int) -> npt.NDArray[Any]:
    """Convert an item to an array: of objects, if it holds texts. Refuse booleans in lists, which NumPy would turn into
    numbers."""
    if isinstance(item, list | tuple):
        _refuse_non_numbers(item, row)
    try:
        item = unmasked(item)
        raw = np.asarray(item)
    except ValueError as error:
        raise BadPointsError(f"row {row}: the rows of a table must be of equal length", row=row) from error
    if raw.size and holds_texts(raw):
        return np.array(item, dtype=object) if isinstance(item, list | tuple) else raw.astype(object, copy=False)
    if raw.dtype == object and hasattr(item, "dtypes") and hasattr(item, "iloc"):
        return _of_pandas(item, row)
    if raw.dtype.kind not in "fiu" and raw.size:
        raise BadPointsError(f"row {row} has dtype {raw.dtype}; send real numbers (float or integer)", row=row)
    return raw


def _of_pandas(frame: Any, row: int) -> npt.NDArray[Any]:
    """A data frame of pandas whose columns are of several types, NaN for a missing value. Raises BadPointsError."""
    for name in frame.columns:
        column = frame[[name]].iloc[:, 0]
        if column.dtype.kind not in "fiuO":
            raise BadPointsError(
                f"column {name!r} from row {row} on has dtype {column.dtype}; send real numbers (float or integer)",
                row=row,
            )
    try:
        return np.asarray(frame.to_numpy(np.float64, na_value=np.nan))
    except (TypeError, ValueError):
        raise BadPointsError(f"row {row} has dtype object; send real numbers (float or integer)", row=row) from None


def _refuse_non_numbers(values: list[Any] | tuple[Any, ...], row: int) -> None:
    kinds = set(map(type, values))
    if kinds <= {float, int, str}:
        return
    for i, value in enumerate(values):
        if isinstance(value, list | tuple):
            _refuse_non_numbers(value, row + i)
        elif isinstance(value, bool | bytes | None):
            raise BadPointsError(f"row {row} holds {value!r}; send real numbers (float or integer)", row=row)
