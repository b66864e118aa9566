"""Writing of records, by the learner of a stream alone: gathered in memory, written in runs, joined as they grow.

The learner adds the records of each batch after it has learnt it. `flush` writes what was added as a new run, and may
join the newest runs of like size, so that their number grows with the logarithm of the records. The head names the last
entry of the log that the runs contain; a replay adds nothing up to there. So each record is written once.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from shoal_service.errors import StaleWriterError, StoreUnavailableError
from shoal_service.store import PagePlace, PageRun
from shoal_service.streams.record_index.pages import (
    HEAD,
    Head,
    Run,
    encode_head,
    encode_rows,
    encode_run,
)
from shoal_service.streams.record_index.reader import ReadPages, RecordReader, RunMovedError
from shoal_service.streams.record_index.rows import Hashes, RecordRows, hashes_of, joined, newest
from shoal_service.streams.record_index.texts import Texts

WritePages = Callable[[Mapping[PagePlace, bytes], Sequence[PageRun]], None]
"""As `Store.write_pages`, for one stream and epoch."""

ROWS_HELD, BYTES_HELD = 65_536, 32 << 20
"""Records that are gathered before they are written in any case."""
SMALLEST_LEVEL, FANOUT = 8_192, 8
"""Runs of up to SMALLEST_LEVEL rows have level 0; each level has FANOUT times the rows of the one below. So many
runs of a level are joined to one."""
MOST_JOINED = 1 << 19
"""Most rows of a run that is made by joining, which bounds the memory and the pause of a join."""
EXACT_ROWS = 4_096
"""Up to so many records are counted exactly. Of more, a quarter more may be kept until runs are joined."""


class Limits(NamedTuple):
    """How many records are kept; the newest ones."""

    max_records: int
    max_bytes: int
    ttl_s: float | None


class RecordWriter:
    """The records of one stream. Used by one thread."""

    def __init__(self, read: ReadPages, write: WritePages) -> None:
        """Begin where the store's head says. Raises StoreError."""
        self._reader = RecordReader(read)
        self._write = write
        self._head = self._reader.head()
        self._parts: list[RecordRows] = []
        self._n_rows = self._n_bytes = 0
        self._forgotten: list[bytes] = []
        self._in_doubt: _InDoubt | None = None

    @property
    def seq(self) -> int:
        """Records of all entries up to this one are in the store."""
        return self._head.seq

    @property
    def pending(self) -> bool:
        """Whether something was added since the last flush."""
        return bool(self._parts or self._forgotten or self._in_doubt)

    @property
    def empty(self) -> bool:
        """Whether there is no record at all."""
        return not (self._parts or self._in_doubt or self._head.runs)

    @property
    def full(self) -> bool:
        """Whether so much was added that a flush is due."""
        return self._n_rows >= ROWS_HELD or self._n_bytes >= BYTES_HELD

    def add(self, rows: RecordRows) -> None:
        """Add the records of an entry after `seq`, oldest first."""
        if rows.n:
            self._parts.append(rows)
            self._n_rows += rows.n
            self._n_bytes += _size(rows)

    def forget(self, keys: list[bytes]) -> None:
        """Remove the records of these keys, wherever they are."""
        self._parts = _without(self._parts, set(keys))
        if self._in_doubt is not None:
            self._in_doubt = self._in_doubt._replace(parts=_without(self._in_doubt.parts, set(keys)))
        self._forgotten += keys

    def discard(self) -> None:
        """Drop what was added since the last flush: the log is read again."""
        self._parts, self._forgotten = [], []
        self._n_rows = self._n_bytes = 0

    def flush(self, seq: int, limits: Limits, now: float) -> None:
        """Write what was added, as of entry `seq`. `now`: Unix time. Raises StoreError; then nothing is lost."""
        self._settle()
        if not self.pending or seq <= self._head.seq:
            return
        try:
            head, pages, dropped = self._changed(seq, limits, now)
        except RunMovedError:
            if self._reader.holds_head(encode_head(self._head)):
                raise
            raise StaleWriterError("a newer writer has changed the records of the stream") from None
        encoded = encode_head(head)
        try:
            self._write({**pages, HEAD: encoded}, dropped)
        except StoreUnavailableError:
            self._in_doubt = _InDoubt(head, encoded, self._parts, self._forgotten)
            self._parts, self._forgotten = [], []
            raise
        self._head = head
        self.discard()

    def _changed(self, seq: int, limits: Limits, now: float) -> tuple[Head, dict[PagePlace, bytes], list[PageRun]]:
        """The head, pages and dropped runs with what was added."""
        change = _Change(self._head, self._reader, self._forgotten)
        if self._parts:
            change.add(joined(self._parts))
        change.limit(limits, now)
        return change.written(seq)

    def _settle(self) -> None:
        """Ask the store whether the last write, whose answer was lost, was done. Another would write over its runs,
        which readers may know, and read runs that it has dropped. Raises StoreError.
        """
        if self._in_doubt is None:
            return
        if self._reader.holds_head(self._in_doubt.encoded):
            self._head = self._in_doubt.head
        else:
            self._parts = [*self._in_doubt.parts, *self._parts]
            self._forgotten = [*self._in_doubt.forgotten, *self._forgotten]
        self._in_doubt = None
        self._n_rows = sum(part.n for part in self._parts)
        self._n_bytes = sum(_size(part) for part in self._parts)


def _size(rows: RecordRows) -> int:
    return int(rows.keys.data.size + rows.payloads.data.size)


class _InDoubt(NamedTuple):
    """A write that the store has not confirmed."""

    head: Head
    encoded: bytes
    parts: list[RecordRows]
    forgotten: list[bytes]


def _without(parts: list[RecordRows], gone: set[bytes]) -> list[RecordRows]:
    """The rows of other keys."""
    kept = (np.array([i for i, key in enumerate(part.keys) if key not in gone], np.int64) for part in parts)
    found = [part if len(rows) == part.n else part.take(rows) for part, rows in zip(parts, kept, strict=True)]
    return [part for part in found if part.n]


class _NewRun(NamedTuple):
    """A run that is not written yet."""

    rows: RecordRows
    hashes: Hashes

    @property
    def n_rows(self) -> int:
        return self.rows.n

    @property
    def n_bytes(self) -> int:
        """Roughly."""
        return self.rows.keys.data.size + self.rows.payloads.data.size + 64 * self.rows.n

    @property
    def last_arrival(self) -> float:
        return float(self.rows.arrived.max())


class _Change:
    """The runs as they will be, and the pages that are to be written for that."""

    def __init__(self, head: Head, reader: RecordReader, forgotten: list[bytes]) -> None:
        self._before = head
        self._reader = reader
        self._forgotten = forgotten
        self._runs: list[Run | _NewRun] = list(head.runs)

    def add(self, rows: RecordRows) -> None:
        """Put the newest rows behind the others, joined with the last runs where these are of like size."""
        first = _first_joined([run.n_rows for run in self._runs], rows.n)
        self._replace(first, len(self._runs), joined([*map(self._rows_of, self._runs[first:]), rows]))

    def _rows_of(self, run: Run | _NewRun) -> RecordRows:
        """The rows of a run, without those that are to be forgotten."""
        if isinstance(run, _NewRun):
            return run.rows
        rows = self._reader.all_rows(run)
        if not self._forgotten and rows.keys.lengths.all():
            return rows
        gone = {*self._forgotten, b""}
        return rows.take(np.array([i for i, key in enumerate(rows.keys) if key not in gone], np.int64))

    def _replace(self, start: int, end: int, rows: RecordRows) -> None:
        """Put one run of the newest versions of `rows`, oldest first, in the place of some."""
        kept, hashes = newest(rows, hashes_of(rows.keys))
        self._runs[start:end] = [_NewRun(kept, hashes)] if kept.n else []

    def limit(self, limits: Limits, now: float) -> None:
        """Let go of the oldest records beyond the limits."""
        if limits.ttl_s is not None:
            self._runs = [run for run in self._runs if run.last_arrival >= now - limits.ttl_s]
        n_rows, n_bytes = self._totals()
        slack = 1.0 if limits.max_records <= EXACT_ROWS else 1.25
        if n_rows <= slack * limits.max_records and n_bytes <= limits.max_bytes:
            return
        if len(self._runs) > 1 and n_rows <= MOST_JOINED:  # versions that no longer count make room first
            self._replace(0, len(self._runs), joined(list(map(self._rows_of, self._runs))))
            n_rows, n_bytes = self._totals()
        excess = max(n_rows - limits.max_records, 0)
        if n_bytes > limits.max_bytes:
            excess = max(excess, math.ceil(n_rows * (n_bytes - limits.max_bytes) / n_bytes))
        self._drop_oldest(excess)

    def _totals(self) -> tuple[int, int]:
        return sum(run.n_rows for run in self._runs), sum(run.n_bytes for run in self._runs)

    def _drop_oldest(self, n: int) -> None:
        while n > 0 and self._runs and self._runs[0].n_rows <= n:
            n -= self._runs.pop(0).n_rows
        if n > 0 and self._runs:
            rows = self._rows_of(self._runs[0])
            self._replace(0, 1, rows.take(np.sort(np.argsort(rows.log_offset, kind="stable")[n:])))

    def written(self, seq: int) -> tuple[Head, dict[PagePlace, bytes], list[PageRun]]:
        """The head of entry `seq`, the pages before it, and the runs that go."""
        pages: dict[PagePlace, bytes] = {}
        number, runs = self._before.next_run, []
        for run in self._runs:
            if isinstance(run, _NewRun):
                run, encoded = encode_run(number, *run)
                number += 1
                pages |= {(run.number, i): page for i, page in enumerate(encoded)}
            elif self._forgotten:
                pages |= self._blanked(run)
            runs.append(run)
        kept = {run.number for run in runs}
        dropped = [PageRun(run.number, run.n_pages) for run in self._before.runs if run.number not in kept]
        return Head(seq=seq, next_run=number, runs=runs), pages, dropped

    def _blanked(self, run: Run) -> dict[PagePlace, bytes]:
        """The pages of a run that hold keys to be forgotten, without them. The rows keep their places."""
        changed: dict[int, RecordRows] = {}
        for key in self._forgotten:
            for number, found, places in self._reader.places_of(run, key):
                rows = changed.get(number, found)
                keys, payloads = list(rows.keys), list(rows.payloads)
                for place in places:
                    keys[place] = payloads[place] = b""
                changed[number] = rows._replace(keys=Texts.of(keys), payloads=Texts.of(payloads))
        return {(run.number, number): encode_rows(rows) for number, rows in changed.items()}


def _first_joined(sizes: list[int], n_new: int) -> int:
    """First of the last runs that are joined with a new one of `n_new` rows; their number for none."""
    first = len(sizes)
    for level in range(_level(MOST_JOINED) + 1):
        start, total = len(sizes), n_new
        while start > 0 and _level(sizes[start - 1]) <= level and total + sizes[start - 1] <= MOST_JOINED:
            start -= 1
            total += sizes[start]
        if len(sizes) - start + 1 >= FANOUT and _level(n_new) <= level:
            first = min(first, start)
    return first


def _level(n_rows: int) -> int:
    return 0 if n_rows <= SMALLEST_LEVEL else 1 + int(math.log(n_rows / SMALLEST_LEVEL, FANOUT))
