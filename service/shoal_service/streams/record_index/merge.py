"""Runs read side by side in ascending order of hash, a stretch at a time: a join of any size takes little memory."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from shoal_service.streams.record_index.pages import ROW_BYTES, Run, decode_rows
from shoal_service.streams.record_index.reader import RecordReader
from shoal_service.streams.record_index.rows import Hashes, RecordRows, hashes_of, joined, newest

STRETCH_ROWS = 1 << 15
"""Rows of a stretch, roughly."""


class NewRun(NamedTuple):
    """A run that is not written yet: the newest version of each key, in ascending order of hash."""

    rows: RecordRows
    hashes: Hashes

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.rows.n

    @property
    def n_bytes(self) -> int:
        """Roughly."""
        return int(self.rows.keys.data.size + self.rows.payloads.data.size) + 2 * ROW_BYTES * self.rows.n

    @property
    def last_arrival(self) -> float:
        """Largest arrival of a record."""
        return float(self.rows.arrived.max())


def merged(
    reader: RecordReader, runs: Sequence[Run | NewRun], gone: frozenset[bytes], after_offset: int = -1
) -> Iterator[tuple[RecordRows, Hashes]]:
    """The newest version of each key in the runs, which are given oldest first, in stretches that are not empty.

    Without rows up to `after_offset`, and without rows of stored runs whose key is forgotten or in `gone`. Raises
    StoreError, and RunMovedError.
    """
    cursors = [_Cursor(reader, run, gone) for run in runs]
    n_stretches = max(1, -(-sum(run.n_rows for run in runs) // STRETCH_ROWS))
    for stretch in range(1, n_stretches + 1):
        bound = None if stretch == n_stretches else np.uint64((stretch << 64) // n_stretches)
        parts = [cursor.until(bound) for cursor in cursors]
        rows, hashes = newest(joined([part.rows for part in parts]), np.concatenate([part.hashes for part in parts]))
        if after_offset >= 0:
            kept = np.flatnonzero(rows.log_offset > after_offset)
            rows, hashes = rows.take(kept), hashes[kept]
        if rows.n:
            yield rows, hashes


class _Cursor:
    """A place in one run."""

    def __init__(self, reader: RecordReader, run: Run | NewRun, gone: frozenset[bytes]) -> None:
        self._reader = reader
        self._gone = gone
        self._read_pages = 0
        self._run: Run | None = None
        if isinstance(run, NewRun):
            self._rest = run
        else:
            self._run = run
            self._rest = NewRun(RecordRows.none(), np.zeros(0, np.uint64))

    def until(self, bound: "np.uint64 | None") -> NewRun:
        """The next rows, as far as their hash is below the bound; all for None."""
        rows, hashes = self._rest
        if self._run is not None:
            numbers = self._reader.pages_below(self._run, self._read_pages, bound)
            found = [rows, *map(decode_rows, self._reader.pages(self._run, numbers))]
            self._read_pages += len(numbers)
            rows = self._kept(joined(found))
            hashes = hashes_of(rows.keys)
        cut = rows.n if bound is None else int(np.searchsorted(hashes, bound))
        self._rest = NewRun(rows.part(cut, rows.n), hashes[cut:])
        return NewRun(rows.part(0, cut), hashes[:cut])

    def _kept(self, rows: RecordRows) -> RecordRows:
        if not self._gone and rows.keys.lengths.all():
            return rows
        return rows.take(np.array([i for i, key in enumerate(rows.keys) if key and key not in self._gone], np.int64))
