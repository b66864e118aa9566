"""The last rows of a stream, kept for batch inference over them."""

import numpy as np

from shoal.points.arrays import Array
from shoal.points.rows import SparseRows, stacked
from shoal.points.weighted_rows import LearntPoints, unweighted, weights_of, with_weights

_RESERVED_BYTES = 1 << 26
"""Bytes reserved at once. Most systems assign pages, of up to 2 MiB, only when they are first written."""


class RowWindow:
    """A ring of the last raw rows: at most `rows` of them, and at most `budget_bytes`.

    Memory grows with the number of rows, up to the smaller of the two limits. Up to 64 MiB no row is moved.
    """

    def __init__(self, n_features: int, rows: int, budget_bytes: int) -> None:
        self._limit = min(rows, budget_bytes // (8 * n_features))
        self._ring = np.empty((0, n_features))
        self._start = 0
        self._n = 0

    def __len__(self) -> int:
        return self._n

    @property
    def limit(self) -> int:
        """Most rows that are kept."""
        return self._limit

    def append(self, x: Array) -> None:
        """Keep rows x (N, D), newer than all before, and drop the oldest beyond the limit."""
        x = x[max(0, len(x) - self._limit) :]
        if len(x) == 0:
            return
        if self._n + len(x) > len(self._ring) < self._limit:
            self._grow(self._n + len(x))
        capacity = len(self._ring)
        end = (self._start + self._n) % capacity
        first = min(len(x), capacity - end)
        self._ring[end : end + first] = x[:first]
        self._ring[: len(x) - first] = x[first:]
        dropped = max(0, self._n + len(x) - capacity)
        self._start = (self._start + dropped) % capacity
        self._n += len(x) - dropped

    def rows(self) -> Array:
        """A copy of the rows kept (n, D), oldest first."""
        order = self._start + np.arange(self._n)
        return self._ring[order % len(self._ring)] if self._n else self._ring[:0].copy()

    def latest(self, n: int) -> Array:
        """The last n rows (n, D), n <= len, oldest first, not to be written.

        Where they are contiguous it is a view, which the next `append` may overwrite.
        """
        capacity = len(self._ring)
        first = (self._start + self._n - n) % capacity if capacity else 0
        return self._ring[first : first + n] if first + n <= capacity else self.rows()[self._n - n :]

    def _grow(self, needed: int) -> None:
        d = self._ring.shape[1]
        least = max(needed, 2 * len(self._ring), _RESERVED_BYTES // (8 * d))
        larger = np.empty((min(self._limit, least), d))
        larger[: self._n] = self.latest(self._n)
        self._ring, self._start = larger, 0


class SparseRowWindow:
    """The last sparse rows, at most `rows` of them.

    Blocks are kept as they arrive and cut at the old end. Many blocks are joined into one.
    """

    _MOST_BLOCKS = 64

    def __init__(self, n_features: int, rows: int) -> None:
        self._limit = rows
        self._blocks: list[SparseRows] = [SparseRows((0, n_features))]

    def __len__(self) -> int:
        return sum(len(block) for block in self._blocks)

    @property
    def limit(self) -> int:
        """Most rows that are kept."""
        return self._limit

    def append(self, x: SparseRows) -> None:
        """Keep rows x (N, D), newer than all before, and drop the oldest beyond the limit."""
        self._blocks.append(x[max(0, len(x) - self._limit) :].copy())
        surplus = len(self) - self._limit
        while surplus > 0:
            first = self._blocks[0]
            kept = first[min(surplus, len(first)) :]
            surplus -= len(first) - len(kept)
            self._blocks[:1] = [kept] if len(kept) or len(self._blocks) == 1 else []
        if len(self._blocks) > self._MOST_BLOCKS:
            self._blocks = [self.rows()]

    def rows(self) -> SparseRows:
        """The rows kept (n, D), oldest first."""
        return SparseRows.of(stacked(list(self._blocks))).copy()

    def latest(self, n: int) -> SparseRows:
        """The last n rows (n, D), n <= len, oldest first."""
        return self.rows()[len(self) - n :]


class WeightedRowWindow:
    """A window of rows with their weights. It keeps none until a row comes whose weight is not one."""

    def __init__(self, rows: RowWindow | SparseRowWindow) -> None:
        self._rows = rows
        self._weights: RowWindow | None = None

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def limit(self) -> int:
        """Most rows that are kept."""
        return self._rows.limit

    def append(self, x: LearntPoints) -> None:
        """Keep rows x (N, D), newer than all before, and drop the oldest beyond the limit."""
        points, weights = unweighted(x), weights_of(x)
        if weights is not None and self._weights is None:
            self._weights = RowWindow(1, self.limit, 8 * self.limit)
            self._weights.append(np.ones((len(self), 1)))
        self._rows.append(points)
        if self._weights is not None:
            self._weights.append(np.ones((len(points), 1)) if weights is None else weights[:, None])

    def rows(self) -> LearntPoints:
        """A copy of the rows kept (n, D), oldest first."""
        return with_weights(self._rows.rows(), None if self._weights is None else self._weights.rows()[:, 0])

    def latest(self, n: int) -> LearntPoints:
        """The last n rows (n, D), n <= len, oldest first, not to be written, as those of `RowWindow`."""
        return with_weights(self._rows.latest(n), None if self._weights is None else self._weights.latest(n)[:, 0])
