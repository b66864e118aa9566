"""Writing of records, by the learner of a stream alone: gathered in memory, written in runs, joined as they grow.

The learner adds the records of each batch after it has learnt it. `flush` writes what was added as a new run;
`begin_flush` does not wait for the disk, so that the learner goes on. In quiet moments `join_runs` joins runs of like
size. The head names the last entry of the log that the runs contain; a replay adds nothing up to there. So each record
is written once.
"""

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import NamedTuple

import msgspec
import numpy as np

from shoal_service.errors import StaleWriterError, StoreUnavailableError
from shoal_service.store import PagePlace, PageRun
from shoal_service.streams.record_index.pages import HEAD, Head, encode_head
from shoal_service.streams.record_index.reader import ReadPages, RecordReader, RunMovedError
from shoal_service.streams.record_index.rows import RecordRows, joined
from shoal_service.streams.record_index.run_change import Limits, RunChange, WritePages

ROWS_HELD, BYTES_HELD = 49_152, 32 << 20
"""Records that are gathered before they are written in any case. With short keys, a SQLite store writes so many in one
transaction.
"""
_RUNS_PROBED, _PAGES_PROBED = 8, 32
"""Runs and pages that are looked for at once where a process may have crashed."""


class RecordWriter:
    """The records of one stream. Used by one thread."""

    def __init__(self, read: ReadPages, write: WritePages) -> None:
        """Begin where the store's head says. Raises StoreError."""
        self._read = read
        self._write = write
        self._reader = RecordReader(read)
        self._head = self._reader.head()
        self._parts: list[RecordRows] = []
        self._n_rows = self._n_bytes = 0
        self._forgotten: list[bytes] = []
        self._limits_due = False
        self._in_doubt: _InDoubt | None = None
        self._orphans = _orphaned_runs(read, self._head.next_run)  # runs of which pages were written and no head

    @property
    def seq(self) -> int:
        """Records of all entries up to this one are in the store."""
        return self._head.seq

    @property
    def pending(self) -> bool:
        """Whether something is to be written, or not known to be in the store."""
        return bool(self._parts or self._forgotten or self._limits_due or self._in_doubt)

    @property
    def empty(self) -> bool:
        """Whether there is no record at all."""
        return not (self._parts or self._in_doubt or self._head.runs)

    @property
    def full(self) -> bool:
        """Whether so much was added that a flush is due. What a failed write may have written counts too."""
        n_rows, n_bytes = self._n_rows, self._n_bytes
        if self._in_doubt is not None and self._in_doubt.written is None:
            n_rows, n_bytes = n_rows + self._in_doubt.n_rows, n_bytes + self._in_doubt.n_bytes
        return n_rows >= ROWS_HELD or n_bytes >= BYTES_HELD

    def add(self, rows: RecordRows, n_bytes: int = 0) -> None:
        """Add the records of an entry after `seq`, oldest first. `n_bytes`: of a payload that they keep in memory."""
        if rows.n:
            self._parts.append(rows)
            self._n_rows += rows.n
            self._n_bytes += max(n_bytes, int(rows.keys.data.size + rows.payloads.data.size))

    def forget(self, keys: list[bytes]) -> None:
        """Remove the records of these keys, wherever they are."""
        self._parts = _without(self._parts, set(keys))
        if self._in_doubt is not None:
            self._in_doubt = self._in_doubt._replace(parts=_without(self._in_doubt.parts, set(keys)))
        self._forgotten += keys

    def limits_changed(self) -> None:
        """Apply the limits at the next flush, whether or not records come."""
        self._limits_due = not self.empty

    def flush(self, seq: int, limits: Limits, now: float) -> None:
        """Write what was added, as of entry `seq`. `now`: Unix time. Raises StoreError; then nothing is lost."""
        self.begin_flush(seq, limits, now)
        self._settle()

    def begin_flush(self, seq: int, limits: Limits, now: float) -> None:
        """Begin to write what was added, as `flush`. Raises StoreError, also that of a write that began before."""
        self._settle()
        if not self.pending or seq <= self._head.seq:
            return
        change = self._change()
        with self._attempt(change):
            if self._parts:
                change.add(joined(self._parts))
            change.limit(limits, now)
            written = change.finish(seq)
        self._commit(change, *written)

    def join_runs(self) -> bool:
        """Join some runs if there are many of like size, for a quiet moment. Whether it did. Raises StoreError."""
        self._settle()
        if self.pending or len(self._head.runs) < 2:
            return False
        change = self._change()
        with self._attempt(change):
            change.join()
            written = change.finish(self._head.seq)
        if written[0].runs == self._head.runs:
            return False
        self._commit(change, *written)
        self._settle()
        return True

    def wait(self) -> None:
        """Wait until a write that has begun ends in some way."""
        if self._in_doubt is not None and self._in_doubt.written is not None:
            self._in_doubt.written.exception()

    def _change(self) -> RunChange:
        return RunChange(self._head, self._read, self._write, self._orphans, frozenset(self._forgotten))

    @contextmanager
    def _attempt(self, change: RunChange) -> Iterator[None]:
        """Remember what is left of a change that fails before it is whole."""
        try:
            yield
        except RunMovedError:
            if self._reader.holds_head(encode_head(self._head)):
                raise
            raise StaleWriterError("a newer writer has changed the records of the stream") from None
        except StoreUnavailableError:
            self._orphans = change.orphans
            raise

    def _commit(self, change: RunChange, head: Head, pages: dict[PagePlace, bytes], dropped: list[PageRun]) -> None:
        """Begin the last step of a change. `_settle` tells how it ended."""
        encoded = encode_head(head)
        held = (self._parts, self._forgotten, self._limits_due, self._n_rows, self._n_bytes)
        self._in_doubt = _InDoubt(head, encoded, *held, change.orphans)
        self._parts, self._forgotten, self._limits_due = [], [], False
        self._n_rows = self._n_bytes = 0
        self._in_doubt = self._in_doubt._replace(written=self._write({**pages, HEAD: encoded}, dropped))

    def _settle(self) -> None:
        """Wait for the last write. Raises StoreError.

        If its answer was lost, the next call asks the store whether it was done. Another write would write over its
        runs, which readers may know, and read runs that it has dropped.
        """
        doubt = self._in_doubt
        if doubt is None:
            return
        if doubt.written is not None:
            self._in_doubt = doubt._replace(written=None)
            doubt.written.result()
        if doubt.written is not None or self._reader.holds_head(doubt.encoded):
            self._head, self._orphans, self._in_doubt = doubt.head, [], None
            return
        self._orphans = doubt.orphans
        self._parts = [*doubt.parts, *self._parts]
        self._forgotten = [*doubt.forgotten, *self._forgotten]
        self._limits_due |= doubt.limits_due
        self._in_doubt = None
        self._n_rows += doubt.n_rows
        self._n_bytes += doubt.n_bytes


def _orphaned_runs(read: ReadPages, next_run: int) -> list[PageRun]:
    """Runs from a number on whose pages were written by a process that crashed before its head. Raises StoreError.

    The pages of a run are written in order from page 1 on, page 0 last. A change makes a few runs, of which some may
    have no page in the store.
    """
    found: list[PageRun] = []
    while True:
        numbers = range(next_run, next_run + _RUNS_PROBED)
        first = read([(number, 1) for number in numbers])
        begun = [number for number, page in zip(numbers, first, strict=True) if page is not None]
        if not begun:
            return found
        found += [PageRun(number, _pages_in_order(read, number)) for number in begun]
        next_run = begun[-1] + 1


def _pages_in_order(read: ReadPages, number: int) -> int:
    """Number of the first page that is missing from a run, beside page 0."""
    page = 1
    while True:
        held = read([(number, each) for each in range(page, page + _PAGES_PROBED)])
        if None in held:
            return page + held.index(None)
        page += _PAGES_PROBED


class _InDoubt(NamedTuple):
    """A write that the store has not confirmed yet."""

    head: Head
    encoded: bytes
    parts: list[RecordRows]
    forgotten: list[bytes]
    limits_due: bool
    n_rows: int
    n_bytes: int
    orphans: list[PageRun]
    written: "Future[None] | None" = None
    """None where the answer was lost."""


def _without(parts: list[RecordRows], gone: set[bytes]) -> list[RecordRows]:
    """The rows of other keys."""
    kept = (np.array([i for i, key in enumerate(part.keys) if key not in gone], np.int64) for part in parts)
    found = [part if len(rows) == part.n else part.take(rows) for part, rows in zip(parts, kept, strict=True)]
    return [part for part in found if part.n]


def forget_payload(keys: list[str]) -> bytes:
    """The payload of a log entry that forgets records: their keys, in MessagePack."""
    return msgspec.msgpack.encode(keys)


def forgotten_keys(payload: bytes) -> list[bytes]:
    """Read the keys of a payload, as UTF-8."""
    return [key.encode() for key in msgspec.msgpack.decode(payload, type=list[str])]
