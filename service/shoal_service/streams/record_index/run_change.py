"""One change of the runs of a stream: new rows, joins of runs, and what goes beyond the limits.

Runs are joined when there are many of like size, so that their number grows with the logarithm of the records up to
`MOST_JOINED`. Pages of a large join are written as they are made. No head names them before the change is whole.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import NamedTuple

import numpy as np

from shoal.points.arrays import IntArray
from shoal_service.store import PagePlace, PageRun
from shoal_service.streams.record_index.merge import merged
from shoal_service.streams.record_index.pages import Head, Run, RunEncoder, encode_rows
from shoal_service.streams.record_index.reader import ReadPages, RecordReader
from shoal_service.streams.record_index.rows import NewRun, RecordRows, hashes_of, newest
from shoal_service.wire import Texts

WritePages = Callable[[Mapping[PagePlace, bytes], Sequence[PageRun]], "Future[None]"]
"""As `Store.write_pages`, for one stream and epoch."""

SMALLEST_LEVEL, FANOUT = 8_192, 16
"""Runs of up to SMALLEST_LEVEL rows have level 0; each level has FANOUT times the rows of the one below. So many
runs of a level are joined to one."""
MOST_WAITING = 64
"""Runs of a level that are left for a quiet moment. With more, a join delays the learner."""
MOST_JOINED = 1 << 20
"""Most rows of a run that is made by joining, which bounds the pause of a join. A run of half of them is not joined
again."""
EXACT_ROWS = 4_096
"""Up to so many records are counted exactly. Of more, a quarter more may be kept until runs are joined."""
BYTES_LEFT = 0.9
"""Share of the allowed bytes that is left once they are exceeded, so that not every write drops some."""
BYTES_HELD = 8 << 20
"""Bytes of pages in memory after which they are written."""


class Limits(NamedTuple):
    """Limits on the number of records; the newest ones are kept."""

    max_records: int
    max_bytes: int
    ttl_s: float | None


class _Unwritten:
    """Pages that are made and not written, and the store's beside them."""

    def __init__(self, read: ReadPages) -> None:
        self.pages: dict[PagePlace, bytes] = {}
        self.n_bytes = 0
        self._read = read

    def read(self, places: Sequence[PagePlace]) -> list[bytes | None]:
        """As `Store.read_pages`."""
        asked = [place for place in places if place not in self.pages]
        stored = dict(zip(asked, self._read(asked), strict=True))
        return [self.pages.get(place, stored.get(place)) for place in places]


class RunChange:
    """The runs as they will be, and the pages that are to be written for that."""

    def __init__(
        self,
        head: Head,
        read: ReadPages,
        write: WritePages,
        orphans: Sequence[PageRun],
        forgotten: frozenset[bytes],
    ) -> None:
        """`orphans`: runs of which an earlier change has written pages, and no head. They are dropped."""
        self._before = head
        self._write = write
        self._unwritten = _Unwritten(read)
        self._reader = RecordReader(self._unwritten.read)
        self._forgotten = forgotten
        self._runs: list[Run | NewRun] = list(head.runs)
        self._made = {run.run: run.n_pages for run in orphans}  # pages of each run that no head names yet
        self._number = max([head.next_run, *(run.run + 1 for run in orphans)])

    @property
    def orphans(self) -> list[PageRun]:
        """Runs of which pages may be in the store until a head names or drops them."""
        return [PageRun(number, n_pages) for number, n_pages in self._made.items()]

    def add(self, rows: RecordRows) -> None:
        """Put the newest rows behind the others, and join runs of like size where too many wait for that."""
        run = newest(rows, hashes_of(rows.keys))
        if run.n_rows:
            self._runs.append(run)
            self._join(*_joined([run.n_rows for run in self._runs], MOST_WAITING))

    def join(self) -> None:
        """Join some runs of like size if there are many."""
        self._join(*_joined([run.n_rows for run in self._runs], FANOUT))

    def limit(self, limits: Limits, now: float) -> None:
        """Remove the oldest records beyond the limits."""
        if limits.ttl_s is not None:
            self._drop_expired(now - limits.ttl_s)
        n_rows, n_bytes = self._totals()
        slack = 1.0 if limits.max_records <= EXACT_ROWS else 1.25
        if n_rows <= slack * limits.max_records and n_bytes <= limits.max_bytes:
            return
        if n_rows <= MOST_JOINED:  # rows that no longer count make room first, also in a single run
            self._join(0, len(self._runs))
            n_rows, n_bytes = self._totals()
        excess = max(n_rows - limits.max_records, 0)
        if n_bytes > limits.max_bytes:
            excess = max(excess, math.ceil(n_rows * (n_bytes - BYTES_LEFT * limits.max_bytes) / n_bytes))
        self._drop_oldest(excess)

    def finish(self, seq: int) -> tuple[Head, dict[PagePlace, bytes], list[PageRun]]:
        """The head of entry `seq`, the pages to be written before it, and the runs that go."""
        runs = [self._written(run) if isinstance(run, NewRun) else run for run in self._runs]
        kept = {run.number for run in runs}
        for run in runs:
            if self._removed_keys(run):
                self._unwritten.pages |= self._without_forgotten(run)
        gone = [PageRun(run.number, run.n_pages) for run in self._before.runs if run.number not in kept]
        gone += [run for run in self.orphans if run.run not in kept]
        pages = {place: page for place, page in self._unwritten.pages.items() if place[0] in kept}
        return Head(seq=seq, next_run=self._number, runs=runs), pages, gone

    def _totals(self) -> tuple[int, int]:
        return sum(run.n_rows for run in self._runs), sum(run.n_bytes for run in self._runs)

    def _join(self, start: int, end: int, after_offset: int = -1) -> None:
        """Put one run in the place of some, without the rows up to a log offset."""
        if start == end:
            return
        encoder = RunEncoder(self._next_number())
        for stretch in merged(self._reader, self._runs[start:end], self._removed_keys, after_offset):
            self._put(encoder.number, encoder.add(stretch))
        self._runs[start:end] = [self._finished(encoder)] if encoder.n_rows else []

    def _removed_keys(self, run: Run) -> frozenset[bytes]:
        """The keys that a run loses. A run that this change has made lost them already, and may hold records that came
        under these keys later."""
        return self._forgotten if run.number < self._before.next_run else frozenset()

    def _written(self, run: NewRun) -> Run:
        encoder = RunEncoder(self._next_number())
        self._put(encoder.number, encoder.add(run))
        return self._finished(encoder)

    def _next_number(self) -> int:
        self._number += 1
        return self._number - 1

    def _finished(self, encoder: RunEncoder) -> Run:
        run, pages = encoder.finish()
        self._put(run.number, pages)
        return run

    def _put(self, number: int, pages: Mapping[int, bytes]) -> None:
        """Hold pages of a run, and write what is held if it is much. Raises StoreError."""
        held = self._unwritten
        held.pages |= {(number, page): data for page, data in pages.items()}
        held.n_bytes += sum(map(len, pages.values()))
        self._made[number] = max(self._made.get(number, 0), max(pages) + 1)
        if held.n_bytes >= BYTES_HELD:
            self._write(held.pages, []).result()
            held.pages, held.n_bytes = {}, 0

    def _drop_expired(self, arrived_from: float) -> None:
        """Drop the first runs, as far as all of their records have expired.

        A later run of earlier arrivals stays, as clocks may differ: an older run may hold the version before of a key.
        """
        while self._runs and self._runs[0].last_arrival < arrived_from:
            self._runs.pop(0)

    def _drop_oldest(self, n: int) -> None:
        while n > 0 and self._runs and self._runs[0].n_rows <= n:
            n -= self._runs.pop(0).n_rows
        if n > 0 and self._runs:
            offsets = self._offsets(self._runs[0])
            self._join(0, 1, after_offset=int(np.partition(offsets, n - 1)[n - 1]))

    def _offsets(self, run: Run | NewRun) -> IntArray:
        if isinstance(run, NewRun):
            return run.log_offset
        return np.concatenate([columns.log_offset for _, columns in self._reader.columns(run)])

    def _without_forgotten(self, run: Run) -> dict[PagePlace, bytes]:
        """The pages of a run that hold keys to be forgotten, without them. The rows keep their places."""
        changed: dict[int, RecordRows] = {}
        for key in self._forgotten:
            for number, found, places in self._reader.places_of(run, key):
                rows = changed.get(number, found)
                keys, payloads = list(rows.keys), list(rows.payloads)
                time = rows.time.copy()
                for place in places:
                    keys[place] = payloads[place] = b""
                    time[place] = np.nan
                changed[number] = rows._replace(keys=Texts.of(keys), payloads=Texts.of(payloads), time=time)
        return {(run.number, number): encode_rows(rows) for number, rows in changed.items()}


def _joined(sizes: list[int], most_waiting: int) -> tuple[int, int]:
    """First and end of the neighbours that are to be joined, of runs of these sizes. Equal for none.

    They are the last ones of a level. Where these are more than a join may have, they are the oldest of them.
    """
    half = MOST_JOINED // 2
    end = len(sizes)
    for level in reversed(range(_level(half) + 1)):
        start = end
        while start > 0 and sizes[start - 1] < half and _level(sizes[start - 1]) <= level:
            start -= 1
        enough = np.cumsum(sizes[start:]) >= half
        if end - start >= most_waiting or (most_waiting <= FANOUT and end - start > 1 and enough[-1]):
            return start, start + int(enough.argmax()) + 1 if enough[-1] else end
    return end, end


def _level(n_rows: int) -> int:
    return 0 if n_rows <= SMALLEST_LEVEL else 1 + int(math.log(n_rows / SMALLEST_LEVEL, FANOUT))
