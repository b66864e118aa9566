"""Identity through time: which ids live on, events as they happen, and the components that are no longer live.

Components of two mixtures are matched by the mass that they share (`match`). A matched component keeps its id.

The record of a retired component has its times, its final statistics and its successors. Records are in order of
retirement. A successor was live when its parent retired, so its own record, if any, comes later. Dropping records from
the front therefore never cuts a chain of successors that is still needed.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from shoal.errors import UnknownComponentError
from shoal.families import concatenated, take
from shoal.mixture.settings import StreamSettings
from shoal.points.arrays import Array, IntArray

_RECORD_BYTES = 5 * 8
_LARGEST_BUDGET = 64 << 20


class Lineage(NamedTuple):
    """R retired components, S links to successors, and final statistics of the last Q <= R."""

    ids: IntArray  # (R,)
    born_at: IntArray  # (R,)
    last_seen_at: IntArray  # (R,)
    retired_at: IntArray  # (R,)
    links: IntArray  # (R + 1,) successors of record r: successors[links[r]:links[r + 1]]
    successors: IntArray  # (S,) ids that were live when the record was made
    stats: Any  # final statistics, Q rows, of the last Q records; None where there are none

    def arrays(self) -> list[npt.NDArray[Any]]:
        """All arrays."""
        return [*self[:6], *(self.stats if self.stats is not None else ())]


class Retired(NamedTuple):
    """A retired component."""

    id: int
    born_at: int
    last_seen_at: int
    retired_at: int
    successors: tuple[int, ...]
    """Live ids that descend from it, ascending; empty when it, or all its successors, were pruned."""
    stats: Any
    """Its final statistics (one row, standardised points), or None when they were dropped."""


def empty_lineage() -> Lineage:
    """A lineage without retired components."""
    none = np.zeros(0, dtype=np.int64)
    return Lineage(none, none, none, none, np.zeros(1, dtype=np.int64), none, None)


def lineage_budget_bytes(settings: StreamSettings) -> int:
    """Most bytes of the lineage: an eighth of the state's, at most 64 MiB; half for records, half for statistics."""
    return min(_LARGEST_BUDGET, settings.max_state_bytes // 8)


def retire(
    lineage: Lineage,
    *,
    ids: IntArray,
    born_at: IntArray,
    last_seen_at: IntArray,
    retired_at: int,
    successors: Sequence[tuple[int, ...]],
    stats: Any,
    budget_bytes: int,
) -> Lineage:
    """The lineage with the given components added in order; the oldest records and statistics beyond the budget go.

    ids, born_at, last_seen_at (M,); `successors` one tuple of live ids a component; stats M rows, or None.
    """
    flat = np.array([live for own in successors for live in own], dtype=np.int64)
    ends = lineage.links[-1] + np.cumsum([len(own) for own in successors], dtype=np.int64)
    longer = Lineage(
        np.concatenate([lineage.ids, ids]),
        np.concatenate([lineage.born_at, born_at]),
        np.concatenate([lineage.last_seen_at, last_seen_at]),
        np.concatenate([lineage.retired_at, np.full(len(ids), retired_at, dtype=np.int64)]),
        np.concatenate([lineage.links, ends]),
        np.concatenate([lineage.successors, flat]),
        _joined(lineage.stats, stats),
    )
    return _within(longer, budget_bytes)


def without_stats(lineage: Lineage) -> Lineage:
    """The lineage without final statistics, which a new standardisation after a warm-up fit makes invalid."""
    return lineage._replace(stats=None)


def revived(lineage: Lineage, component: int) -> Lineage:
    """The lineage without the record of a component that lives again. Those that it succeeded then lead to it."""
    record = _find(lineage, component)
    if record is None:
        return lineage
    kept = np.arange(len(lineage.ids)) != record
    links, stats = lineage.links, lineage.stats
    own = np.repeat(kept, np.diff(links))
    if stats is not None:
        stats = take(stats, kept[len(kept) - len(stats[0]) :])
        stats = stats if len(stats[0]) else None
    return Lineage(
        ids=lineage.ids[kept],
        born_at=lineage.born_at[kept],
        last_seen_at=lineage.last_seen_at[kept],
        retired_at=lineage.retired_at[kept],
        links=np.append(0, np.cumsum(np.diff(links)[kept])).astype(np.int64),
        successors=lineage.successors[own],
        stats=stats,
    )


def recall(lineage: Lineage, component: int) -> Retired:
    """The record of a retired id, with its present live successors. Raises UnknownComponentError."""
    record = _find(lineage, component)
    if record is None:
        raise UnknownComponentError(
            f"component {component} is not known; the id was never used, or its record was dropped"
        )
    n_stats = 0 if lineage.stats is None else len(lineage.stats[0])
    row = record - (len(lineage.ids) - n_stats)
    return Retired(
        component,
        int(lineage.born_at[record]),
        int(lineage.last_seen_at[record]),
        int(lineage.retired_at[record]),
        successors_of(lineage, component),
        take(lineage.stats, slice(row, row + 1)) if row >= 0 else None,
    )


def successors_of(lineage: Lineage, component: int) -> tuple[int, ...]:
    """Live ids that descend from a retired one, ascending. Cost: one search for each link of the chain."""
    live: set[int] = set()
    seen: set[int] = set()
    waiting = [component]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        record = _find(lineage, current)
        if record is None:
            live.add(current)
        else:
            waiting.extend(lineage.successors[lineage.links[record] : lineage.links[record + 1]].tolist())
    return tuple(sorted(live - {component}))


def _find(lineage: Lineage, component: int) -> int | None:
    hits = np.flatnonzero(lineage.ids == component)
    return int(hits[-1]) if hits.size else None


def _joined(old: Any, new: Any) -> Any:
    """Final statistics of old and new records; only the new ones where either has none, so that rows are the last Q."""
    if new is None or old is None:
        return new
    return concatenated(old, new)


def _within(lineage: Lineage, budget_bytes: int) -> Lineage:
    """Drop from the front: statistics down to half the budget, records to the other half."""
    sizes = _RECORD_BYTES + 8 * np.diff(lineage.links)
    kept = int(np.searchsorted(np.cumsum(sizes[::-1]), budget_bytes // 2, side="right"))
    dropped = len(lineage.ids) - kept
    stats = lineage.stats
    if stats is not None:
        row_bytes = sum(field.nbytes for field in stats) // max(len(stats[0]), 1)
        rows = min(len(stats[0]), kept, (budget_bytes // 2) // max(row_bytes, 1))
        stats = take(stats, slice(len(stats[0]) - rows, None)) if rows else None
    if dropped == 0:
        return lineage._replace(stats=stats)
    links = lineage.links[dropped:]
    return Lineage(
        ids=lineage.ids[dropped:].copy(),
        born_at=lineage.born_at[dropped:].copy(),
        last_seen_at=lineage.last_seen_at[dropped:].copy(),
        retired_at=lineage.retired_at[dropped:].copy(),
        links=links - links[0],
        successors=lineage.successors[links[0] :].copy(),
        stats=stats,
    )


EventKind: TypeAlias = Literal[
    "born", "merged", "pruned", "returned", "rescaled", "split", "refined", "capacity", "prior"
]


class Event(NamedTuple):
    """One change of identity.

    born: no parents, the new component as child. merged: the joined components (heaviest first) as parents, the
    survivor as child, under the id of a parent. pruned: the component as parent, no children. returned: the newborn
    as parent, the retired component that it turned out to be as child, from now on its id. rescaled: the components
    that were replaced as parents, those that have their recent points as children. split: one parent, its children.
    refined: the old components as parents, the new as children. capacity: neither; births are refused from now on.
    prior: neither; the automatic prior is final, and `reason` says how it was chosen.
    """

    offset: int
    """Points seen when it happened, up to and including the point that caused it."""

    kind: EventKind
    parents: tuple[int, ...]
    children: tuple[int, ...]
    reason: str | None = None
    """Of `prior`: what was found in the rows of the warm-up, in words."""


class Matching(NamedTuple):
    """Matched rows of an old and a new mixture."""

    old_of_new: IntArray  # (K_new,) the old row whose id each new row inherits, -1: it gets a new id
    new_of_old: IntArray  # (K_old,) inverse, -1: the old one vanished
    parent_of_new: IntArray  # (K_new,) the old row with the largest shared mass, -1: none
    successor_of_old: IntArray  # (K_old,) the new row with the largest shared mass, -1: none


def shared_mass(old: IntArray, n_old: int, new: IntArray, n_new: int) -> Array:
    """(K_old, K_new) shared points of two hard labelings (N,) of the same points by row; -1 is no row."""
    both = (old >= 0) & (new >= 0)
    counts = np.bincount(old[both] * n_new + new[both], minlength=n_old * n_new)
    return counts.reshape(n_old, n_new).astype(np.float64)


def match(shared: Array) -> Matching:
    """Match old rows with new ones, one to one, so that the total shared mass is largest.

    Pairs that share no mass are not matched. `shared` (K_old, K_new) >= 0: `shared_mass`, or old_resp' new_resp of soft
    labelings. Ties are resolved by SciPy's solver, a function of the matrix alone. Cost about K^3.
    """
    n_old, n_new = shared.shape
    from scipy.optimize import linear_sum_assignment  # 0.2 s to import, not needed at a start

    rows, columns = linear_sum_assignment(shared, maximize=True)
    real = shared[rows, columns] > 0.0
    rows, columns = rows[real], columns[real]
    old_of_new, new_of_old = np.full(n_new, -1, dtype=np.int64), np.full(n_old, -1, dtype=np.int64)
    old_of_new[columns], new_of_old[rows] = rows, columns
    return Matching(old_of_new, new_of_old, _largest(shared.T), _largest(shared))


def carried_ids(matching: Matching, old_ids: IntArray, next_id: int) -> tuple[IntArray, int]:
    """Ids (K_new,) of the new rows, and the next free id.

    Matched rows inherit the ids of `old_ids` (K_old,); the others get new ones in order, from `next_id` on.
    """
    fresh = matching.old_of_new < 0
    ids = np.empty(fresh.size, dtype=np.int64)
    ids[~fresh] = old_ids[matching.old_of_new[~fresh]]
    ids[fresh] = next_id + np.arange(int(fresh.sum()))
    return ids, next_id + int(fresh.sum())


def successor_ids(matching: Matching, old_rows: IntArray, new_ids: IntArray) -> list[tuple[int, ...]]:
    """The id, out of `new_ids` (K_new,), of the successor of each of `old_rows` (R,), as `retire` reads them.

    None where an old row shares no mass with a new one.
    """
    return [(int(new_ids[new]),) if new >= 0 else () for new in matching.successor_of_old[old_rows]]


def _largest(shared: Array) -> IntArray:
    """Column of the largest element of each row, -1 where the row is zero."""
    if shared.shape[1] == 0:
        return np.full(shared.shape[0], -1, dtype=np.int64)
    best: IntArray = shared.argmax(axis=1).astype(np.int64)
    best[shared[np.arange(len(best)), best] <= 0.0] = -1
    return best
