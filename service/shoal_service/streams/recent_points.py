"""Recent points of a stream, read back from its log, with what the mixture of today says of them.

The log holds the points of the window, and those since the last checkpoint. So a sample is bounded by both, by the
number asked for, and by the work of its prediction.
"""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal_service.errors import LogGapError
from shoal_service.store import Entry, Store
from shoal_service.streams.learnt_rows import LEARNT, LearntRows
from shoal_service.streams.record_service import RecordService
from shoal_service.streams.refinement import batches_of, entries_between
from shoal_service.streams.view import PublishedView, scores_of
from shoal_service.wire import fields_from_log, from_log

if TYPE_CHECKING:
    from shoal.mixture import MixtureSnapshot

MOST_POINTS = 20_000
"""Largest sample."""
MOST_NUMBERS = 4_000_000
"""Most numbers in the points of a sample."""
MOST_WORK = 6_000_000_000
"""Most multiply-adds of its prediction: three seconds at worst, a tenth of that where components lie apart."""
MOST_BYTES = 64 << 20
"""Payload bytes after which no earlier entry is read."""
MOST_ENTRIES = 256
"""Entries of the largest step back."""


class RecentPoints(NamedTuple):
    """The newest points that a view includes, in the order of the log."""

    x: Any
    """(N, D), a table or sparse rows."""
    log_offset: npt.NDArray[np.int64]
    """(N,) points in the log up to and including each. Those that a restore brought along have that of the restore."""
    keys: list[str | None]
    """(N,) keys, where points have one."""
    learnt: LearntRows
    """(N,) what the view says of them."""


class RecentPointsService:
    """Samples of the streams of one process."""

    def __init__(self, store: Store, records: RecordService) -> None:
        self._store = store
        self._records = records

    async def newest(self, view: PublishedView, n: int, after: int, timeout_s: float) -> RecentPoints:
        """The newest points of a view, at most `n`, that came after the log offset `after`.

        A point has a key where the record of the key is that point, and is not forgotten. Raises StoreError.
        """
        found = await asyncio.to_thread(self._newest, view, n, after)
        asked = [key for key in found.keys if key is not None]
        if not asked:
            return found
        records = await self._records.find(view.stream, asked, min_offset=None, timeout_s=timeout_s)
        known = {record.stored.log_offset for record in records if record is not None}
        keys = zip(found.keys, found.log_offset.tolist(), strict=True)
        return found._replace(keys=[key if offset in known else None for key, offset in keys])

    def _newest(self, view: PublishedView, n: int, after: int) -> RecentPoints:
        if view.snapshot is None or view.snapshot.n_components == 0:
            return _nothing(view)
        n = min(n, _affordable(view.snapshot))
        dead = self._store.dead_letter_reasons(view.stream, view.incarnation).keys()
        stream = (view.stream, view.incarnation)
        first = self._store.tail(*stream).first_seq
        entries = (e for e in newest_first(self._store, stream, first, view.seq) if e.seq not in dead)
        found = list(_rows(entries, n, after))[::-1]
        if not found:
            return _nothing(view)
        x = _stacked([part.x for part in found])
        keys = [key for part in found for key in part.keys]
        offsets = np.concatenate([part.log_offset for part in found])
        return RecentPoints(x, offsets, keys, scores_of(view, x))


class _Part(NamedTuple):
    """Rows of one entry."""

    x: Any
    log_offset: npt.NDArray[np.int64]
    keys: list[str | None]


def newest_first(store: Store, stream: tuple[str, str], first_seq: int, last_seq: int) -> Iterator[Entry]:
    """The entries from `last_seq` back to `first_seq`, with steps that double. Ends early where the log was trimmed
    meanwhile, and after `MOST_BYTES`.
    """
    step, held_bytes = 1, 0
    while last_seq >= first_seq and held_bytes < MOST_BYTES:
        after = max(first_seq - 1, last_seq - step)
        try:
            entries = list(entries_between(store, stream, after, last_seq))
        except LogGapError:
            return
        held_bytes += sum(len(entry.payload) for entry in entries)
        yield from reversed(entries)
        last_seq, step = after, min(2 * step, MOST_ENTRIES)


def _rows(entries: Iterator[Entry], n: int, after: int) -> Iterator[_Part]:
    """The last rows of entries that are given newest first: at most n, beyond the log offset `after`, 0 for all."""
    for entry in entries:
        if n <= 0 or (after and entry.log_offset <= after):
            return
        part = _part(entry)
        if part is None:
            continue
        later = int(np.count_nonzero(part.log_offset > after)) if after else part.x.shape[0]
        kept = slice(part.x.shape[0] - min(n, later), None)
        yield _Part(part.x[kept], part.log_offset[kept], part.keys[kept])
        n -= part.x.shape[0]


def _part(entry: Entry) -> _Part | None:
    for payload in batches_of([entry], lambda seq: False):
        x, fields = from_log(payload), fields_from_log(payload)
        n = x.shape[0]
        keys: list[str | None] = [None] * n
        if fields is not None and fields.keys is not None:
            keys = [key.decode() or None for key in fields.keys]
        return _Part(x, entry.log_offset - (np.arange(n)[::-1] if entry.n_points else np.zeros(n, np.int64)), keys)
    return None


def _affordable(snapshot: "MixtureSnapshot") -> int:
    d = snapshot.location.size
    by_work = MOST_WORK // ((snapshot.n_components + 1) * (d * d if snapshot.settings.domain.located else d))
    return max(100, min(MOST_POINTS, MOST_NUMBERS // d, by_work))


def _stacked(parts: list[Any]) -> Any:
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    import scipy.sparse

    return scipy.sparse.vstack([scipy.sparse.csr_array(part) for part in parts], format="csr")


def _nothing(view: PublishedView) -> RecentPoints:
    d = 0 if view.snapshot is None else view.snapshot.location.size
    return RecentPoints(np.zeros((0, d)), np.zeros(0, np.int64), [], np.zeros(0, LEARNT))
