"""The records that belong to a component today, in an order, a page at a time.

Nothing is indexed by component, because components join and are refined. The columns of all runs are read instead, some
twenty bytes a record, and the keys of the page alone are looked up.
"""

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


class _Found(NamedTuple):
    """Rows that belong to the component, by where they are."""

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
    return retried(lambda: _members(reader, resolver, component, order, limit, after, bounds))


def _members(
    reader: RecordReader,
    resolver: Resolver,
    component: int,
    order: Order,
    limit: int,
    after: Position | None,
    bounds: Bounds,
) -> Page:
    head = reader.head()
    found = _rows_of(reader, head, resolver, component, order, bounds)
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
    reader: RecordReader, head: Head, resolver: Resolver, component: int, order: Order, bounds: Bounds
) -> _Found:
    """Every row that belongs to the component, unless a newer one of its key exists."""
    offsets, moved_to = _reassignments(reader, head)
    parts: list[_Found] = []
    for place, run in enumerate(head.runs):
        for first, columns in reader.columns(run):
            own = _components(columns, offsets, moved_to)
            values, inverse = np.unique(own, return_inverse=True)
            live = np.array([resolver.live(int(value)) == component for value in values], dtype=np.bool_)
            shown = live[inverse] & ((columns.flags & REASSIGNED) == 0) & (columns.arrived >= bounds.arrived_from)
            rows = np.flatnonzero(shown)
            if rows.size:
                at = columns.log_offset[rows]
                rank = _rank(order, at, columns.log_density[rows])
                parts.append(_Found(np.full(rows.size, place), first + rows, at, rank))
    if not parts:
        none = np.zeros(0, dtype=np.int64)
        return _Found(none, none, none, none.astype(np.float64))
    return _Found(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _reassignments(reader: RecordReader, head: Head) -> tuple[IntArray, IntArray]:
    """Log offsets, ascending, of records that a refinement assigned anew, and the component of each."""
    moved: dict[int, int] = {}
    for run in head.runs:
        if run.n_reassigned:
            for _, columns in reader.columns(run):
                rows = (columns.flags & REASSIGNED) != 0
                moved |= dict(zip(columns.log_offset[rows].tolist(), columns.refined[rows].tolist(), strict=True))
    offsets = np.array(sorted(moved), dtype=np.int64)
    return offsets, np.array([moved[offset] for offset in offsets.tolist()], dtype=np.int64)


def _components(columns: Columns, offsets: IntArray, moved_to: IntArray) -> IntArray:
    """The stored component of each row, with the reassignments that lie in other rows."""
    own = np.where(columns.refined >= 0, columns.refined, columns.assigned)
    if offsets.size:
        at = np.minimum(np.searchsorted(offsets, columns.log_offset), offsets.size - 1)
        own = np.where(offsets[at] == columns.log_offset, moved_to[at], own)
    return own


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
