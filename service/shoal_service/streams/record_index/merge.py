"""Runs read side by side in ascending order of hash, a stretch at a time: a join of any size takes little memory."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from shoal_service.streams.record_index.pages import Run, decode_rows
from shoal_service.streams.record_index.reader import RecordReader
from shoal_service.streams.record_index.rows import Hashes, NewRun, RecordRows, hashes_of, joined, newest

STRETCH_ROWS = 1 << 15
"""Rows of a stretch, roughly."""


def merged(
    reader: RecordReader,
    runs: Sequence[Run | NewRun],
    removed_keys: Callable[[Run], frozenset[bytes]],
    after_offset: int = -1,
) -> Iterator[NewRun]:
    """The newest version of each key in the runs, which are given oldest first, in stretches that are not empty.

    Without rows up to `after_offset`, and without rows of a run whose key is among its `removed_keys` or was forgotten
    before. Raises StoreError, and RunMovedError.
    """
    cursors = [_Cursor(reader, run, removed_keys) for run in runs]
    n_stretches = max(1, -(-sum(run.n_rows for run in runs) // STRETCH_ROWS))
    for stretch in range(1, n_stretches + 1):
        bound = None if stretch == n_stretches else np.uint64((stretch << 64) // n_stretches)
        parts = [cursor.until(bound) for cursor in cursors]
        rows, hashes = zip(*parts, strict=True)
        found = newest(joined(list(rows)), np.concatenate(hashes))
        if after_offset >= 0:
            found = found.after(after_offset)
        if found.n_rows:
            yield found


class _Cursor:
    """A place in one run."""

    def __init__(
        self, reader: RecordReader, run: Run | NewRun, removed_keys: Callable[[Run], frozenset[bytes]]
    ) -> None:
        self._reader = reader
        self._gone = frozenset[bytes]() if isinstance(run, NewRun) else removed_keys(run)
        self._read_pages = 0
        self._run: Run | None = None
        if isinstance(run, NewRun):
            self._rest = run.rows.take(run.places), run.hashes
        else:
            self._run = run
            self._rest = RecordRows.none(), np.zeros(0, np.uint64)

    def until(self, bound: "np.uint64 | None") -> tuple[RecordRows, Hashes]:
        """The next rows, as far as their hash is below the bound; all for None. And their hashes."""
        rows, hashes = self._rest
        if self._run is not None:
            numbers = self._reader.pages_below(self._run, self._read_pages, bound)
            found = [rows, *map(decode_rows, self._reader.pages(self._run, numbers))]
            self._read_pages += len(numbers)
            rows = self._kept(joined(found))
            hashes = hashes_of(rows.keys)
        cut = rows.n if bound is None else int(np.searchsorted(hashes, bound))
        self._rest = rows.part(cut, rows.n), hashes[cut:]
        return rows.part(0, cut), hashes[:cut]

    def _kept(self, rows: RecordRows) -> RecordRows:
        if not self._gone and rows.keys.lengths.all():
            return rows
        return rows.take(np.array([i for i, key in enumerate(rows.keys) if key and key not in self._gone], np.int64))
