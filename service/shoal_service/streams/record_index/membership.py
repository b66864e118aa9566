"""Records in an order, a page at a time: members of a component, or those that may belong elsewhere than before.

Nothing is indexed by component, because components join and are refined. The columns of all runs are read instead, some
twenty bytes a record, and the keys of the page alone are looked up.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from shoal.points.arrays import Array, IntArray
from shoal_service.streams.record_index.pages import Columns, Head, Run
from shoal_service.streams.record_index.reader import Bounds, RecordReader, Stored, retried
from shoal_service.streams.record_index.resolve import Resolver
from shoal_service.streams.record_index.rows import REASSIGNED

Order: TypeAlias = Literal["newest", "typical", "atypical"]
"""`newest`: by log offset, the last first. `typical`: by log density, the highest first. `atypical`: by it, the lowest
first."""


class Position(NamedTuple):
    """Place of a record in an order."""

    rank: float
    """Ascending in the order; infinite for a record whose density is not known."""
    log_offset: int


class Page(NamedTuple):
    """Some members, in order."""

    records: list[Stored]
    last: Position | None
    """Place of the last one, where others may follow."""


class Since(NamedTuple):
    """A moment of a stream: that of an event."""

    points_seen: int
    refined: bool
    """Whether a refinement was adopted since then."""
    refined_before: bool
    """Whether one may have been adopted by then, which may have assigned records again."""
    returned: frozenset[int] = frozenset()
    """Components that have come back since then."""


Choose: TypeAlias = Callable[[Columns], npt.NDArray[np.bool_]]
"""Which rows are wanted, by their columns, reassignments included."""


class _Found(NamedTuple):
    """Rows that are wanted, by where they are."""

    run: IntArray  # place of the run in the head
    row: IntArray  # number in the run
    log_offset: IntArray
    rank: Array


def members(
    reader: RecordReader,
    resolver: Resolver,
    component: int,
    order: Order,
    limit: int,
    after: Position | None,
    bounds: Bounds,
) -> Page:
    """Up to `limit` records of a live component after a place. Reads all columns. Raises StoreError."""

    def belongs(columns: Columns) -> npt.NDArray[np.bool_]:
        return _each(_stored(columns), lambda value: resolver.live(value) == component)

    rank = lambda columns: _rank(order, columns.log_offset, columns.log_density)  # noqa: E731
    return retried(lambda: _page(reader, belongs, rank, limit, after, bounds))


def changed(
    reader: RecordReader, resolver: Resolver, since: Since | None, limit: int, after: Position | None, bounds: Bounds
) -> Page:
    """Up to `limit` records, by log offset, that may belong to another component than at a moment.

    These are all whose component retired or returned since. If a refinement was adopted since, they are also those that
    it assigned to another component than the first assignment led to at that moment, and all that it may have assigned
    again where an earlier refinement had moved some. None: every record.
    """

    def may_differ(columns: Columns) -> npt.NDArray[np.bool_]:
        stored = _stored(columns)
        if since is None:
            return np.ones(len(stored), dtype=np.bool_)
        differ = _each(
            stored,
            lambda value: resolver.retired_after(value, since.points_seen) or resolver.live(value) in since.returned,
        )
        if since.refined and since.refined_before:  # where a record was then is not stored
            differ |= columns.refined >= 0
        elif since.refined:
            values, inverse = np.unique(columns.assigned, return_inverse=True)
            before = [resolver.live_at(int(value), since.points_seen) for value in values]
            differ |= (stored != columns.assigned) & (stored != np.array(before, dtype=np.int64)[inverse])
        return differ

    rank = lambda columns: columns.log_offset.astype(np.float64)  # noqa: E731
    return retried(lambda: _page(reader, may_differ, rank, limit, after, bounds))


def _each(values: IntArray, holds: Callable[[int], bool]) -> npt.NDArray[np.bool_]:
    """Whether it holds for each value, asked once for equal ones."""
    different, inverse = np.unique(values, return_inverse=True)
    held: npt.NDArray[np.bool_] = np.array([holds(int(value)) for value in different], dtype=np.bool_)[inverse]
    return held


def _page(
    reader: RecordReader,
    choose: Choose,
    rank_of: Callable[[Columns], Array],
    limit: int,
    after: Position | None,
    bounds: Bounds,
) -> Page:
    head = reader.head()
    found = _rows_of(reader, head, choose, rank_of, bounds)
    places = np.lexsort((-found.log_offset, found.rank))
    if after is not None:
        rank, offset = found.rank[places], found.log_offset[places]
        places = places[(rank > after.rank) | ((rank == after.rank) & (offset < after.log_offset))]
    records: list[Stored] = []
    at = 0
    while at < len(places) and len(records) < limit:
        part = places[at : at + limit]
        for place, record in zip(part.tolist(), _current(reader, head, found, part), strict=True):
            at += 1
            if record is None:
                continue
            records.append(record)
            if len(records) == limit:
                last = Position(float(found.rank[place]), record.log_offset)
                return Page(records, last if at < len(places) else None)
    return Page(records, None)


def _rows_of(
    reader: RecordReader, head: Head, choose: Choose, rank_of: Callable[[Columns], Array], bounds: Bounds
) -> _Found:
    """Every row that is wanted, although newer ones of its key may exist."""
    offsets, moved_to = _reassignments(reader, head)
    parts: list[_Found] = []
    for place, run in enumerate(head.runs):
        for first, columns in reader.columns(run):
            shown = ((columns.flags & REASSIGNED) == 0) & (columns.arrived >= bounds.arrived_from)
            rows = np.flatnonzero(shown & choose(_with_reassignments(columns, offsets, moved_to)))
            if rows.size:
                at = columns.log_offset[rows]
                parts.append(_Found(np.full(rows.size, place), first + rows, at, rank_of(columns)[rows]))
    if not parts:
        none = np.zeros(0, dtype=np.int64)
        return _Found(none, none, none, none.astype(np.float64))
    return _Found(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _reassignments(reader: RecordReader, head: Head) -> tuple[IntArray, IntArray]:
    """Log offsets, ascending, of records that a refinement assigned again, and the component of each."""
    moved: dict[int, int] = {}
    for run in head.runs:
        if run.n_reassigned:
            for _, columns in reader.columns(run):
                rows = (columns.flags & REASSIGNED) != 0
                moved |= dict(zip(columns.log_offset[rows].tolist(), columns.refined[rows].tolist(), strict=True))
    offsets = np.array(sorted(moved), dtype=np.int64)
    return offsets, np.array([moved[offset] for offset in offsets.tolist()], dtype=np.int64)


def _with_reassignments(columns: Columns, offsets: IntArray, moved_to: IntArray) -> Columns:
    """The columns with the reassignments that lie in other rows."""
    if not offsets.size:
        return columns
    at = np.minimum(np.searchsorted(offsets, columns.log_offset), offsets.size - 1)
    return columns._replace(refined=np.where(offsets[at] == columns.log_offset, moved_to[at], columns.refined))


def _stored(columns: Columns) -> IntArray:
    """The component that is stored for each row: that of the last refinement, else the first one."""
    return np.where(columns.refined >= 0, columns.refined, columns.assigned)


def _rank(order: Order, log_offset: IntArray, log_density: npt.NDArray[np.float32]) -> Array:
    if order == "newest":
        return -log_offset.astype(np.float64)
    rank = (-log_density if order == "typical" else log_density).astype(np.float64)
    return np.where(np.isnan(rank), np.inf, rank)


def _current(reader: RecordReader, head: Head, found: _Found, places: IntArray) -> list[Stored | None]:
    """The record of each row, None where a newer one of its key exists."""
    keys: list[bytes] = [b""] * len(places)
    for place in np.unique(found.run[places]).tolist():
        run: Run = head.runs[place]
        own = np.flatnonzero(found.run[places] == place)
        for i, key in zip(own.tolist(), reader.keys_at(run, found.row[places][own]), strict=True):
            keys[i] = key
    records = reader.find_in(head, keys)
    offsets = found.log_offset[places].tolist()
    return [
        record if record is not None and record.key and record.log_offset == offset else None
        for record, offset in zip(records, offsets, strict=True)
    ]
