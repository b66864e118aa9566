"""Adoption of a refinement by the live state: replay of later rows, and stable ids."""

import numpy as np

from shoal.errors import AdoptionError
from shoal.families import take
from shoal.families.prior_choices import restated
from shoal.inference import Rows
from shoal.mixture import (
    Event,
    Matching,
    MixtureState,
    carried_ids,
    grow,
    left_since,
    match,
    next_capacity,
    retire_rows,
    successor_ids,
    successors_of,
)
from shoal.points.arrays import Array, IntArray
from shoal.points.weighted_rows import unweighted
from shoal.refinement.job import Refinement
from shoal.sequential import AssimilateInfo
from shoal.sequential.learn import learn_inplace, limit_of
from shoal.sequential.warmup import compared, groups_of

MOST_COMPARED = 1 << 16
"""Most rows after the base that are compared to match components; of more, evenly spaced ones. A comparison costs
several times as much as learning a row."""


def adopt_inplace(
    state: MixtureState, refinement: Refinement, rows_since: Rows | None = None
) -> tuple[MixtureState, AssimilateInfo]:
    """Bring the refined mixture up to the live state's offset, under the ids of the live state. Consumes `state`.

    rows_since (N, D): the raw rows (refinement.base_offset, state.points_seen], oldest first; None or no rows where
    there are none. They are learnt again, in one pass, on the refined mixture. The result depends on the arguments
    alone: a replay gives the same bits. The events of the info (`split`, `merged`, `refined`, `born`, `pruned`,
    `capacity`) are at the live offset; its labels are empty.

    Raises AdoptionError, and leaves `state` unchanged, where the refinement does not fit: it belongs to another stream,
    or to a time before a restore or a new window (`forget_window`, another half-life or window), or to a later offset,
    or the number of rows is wrong.
    """
    n_since = 0 if rows_since is None else rows_since.shape[0]
    check_adoptable(state, refinement, n_since)
    fresh, inner = _replayed(state, refinement, rows_since)
    shared = _shared_now(state, fresh, refinement)
    if rows_since is not None and n_since:
        step = -(-n_since // MOST_COMPARED)
        later = unweighted(rows_since)
        shared += step * compared(state, fresh, later[::step] if step > 1 else later)[0]
    return _named(state, fresh, match(shared), [event for event in inner if event.kind == "capacity"])


def check_adoptable(state: MixtureState, refinement: Refinement, n_since: int) -> None:
    """Raise AdoptionError unless the refinement fits the state with `n_since` rows after its base."""
    base, schedule = refinement.refined, refinement.refined.schedule
    same_place = all(
        np.array_equal(a, b)
        for a, b in ((state.location, base.location), (state.scale, base.scale), (state.jitter, base.jitter))
    )
    if not (state.frozen and same_place) or state.settings.family != base.settings.family:
        raise AdoptionError("the refinement belongs to another stream; refine the state of this stream")
    if state.schedule.restored_at != schedule.restored_at:
        raise AdoptionError("the stream was restored since the refinement began; refine the restored state")
    if state.schedule.window_from != schedule.window_from or state.past is None:
        raise AdoptionError("a new window was started since the refinement began; refine the new window")
    if state.schedule.adopted != schedule.adopted:
        raise AdoptionError("another refinement was adopted since this one began; refine the present state")
    if n_since != state.points_seen - refinement.base_offset:
        raise AdoptionError(
            f"{n_since} rows were given, but {state.points_seen - refinement.base_offset} arrived since the refinement "
            "began; send those rows"
        )


def _replayed(state: MixtureState, refinement: Refinement, rows: Rows | None) -> tuple[MixtureState, list[Event]]:
    """The refined mixture after one pass over the later rows, under the live settings and provisional ids."""
    base = refinement.refined
    assert base.prior is not None
    settings = state.settings
    unnamed = settings.with_changes(max_archived=0)  # ids are provisional: none can return
    fresh = base._replace(settings=unnamed, schedule=base.schedule._replace(adopted=state.schedule.adopted + 1))
    if state.clock is not None:  # which knows at what offsets the later rows are to decay
        had = state.clock.dropped if base.clock is None else base.clock.done
        fresh = fresh._replace(clock=state.clock._replace(done=max(had, state.clock.dropped)))
    rows_needed = next_capacity(fresh.n_components, limit_of(settings, base.prior))
    fresh = grow(fresh, max(rows_needed, fresh.capacity + 1))  # a copy: the refinement stays as it is
    if rows is None or rows.shape[0] == 0:
        return fresh._replace(settings=settings), []
    fresh, events = learn_inplace(fresh, rows, np.empty(rows.shape[0], dtype=np.int64))
    return fresh._replace(settings=settings), events


def _shared_now(state: MixtureState, fresh: MixtureState, refinement: Refinement) -> Array:
    """(K, K') mass of the points up to the base that live and refined components share, by their present rows."""
    at_base = refinement.shared.tocoo()
    old = _rows_now(state, refinement.live_ids)[at_base.row]
    new = _rows_now(fresh, np.arange(refinement.shared.shape[1]))[at_base.col]
    both = (old >= 0) & (new >= 0)
    shared = np.zeros((state.n_components, fresh.n_components))
    np.add.at(shared, (old[both], new[both]), at_base.data[both])
    shared *= float(left_since(state, np.array([refinement.base_offset]))[0])
    return shared


def _rows_now(state: MixtureState, ids: IntArray) -> IntArray:
    """The row of each id, or of its successor; -1 for an id with no successor or with several."""
    place = {int(component): row for row, component in enumerate(state.live_ids)}
    rows = np.full(ids.size, -1, dtype=np.int64)
    for i, component in enumerate(ids.tolist()):
        if component in place:
            rows[i] = place[component]
        else:
            successors = [live for live in successors_of(state.lineage, component) if live in place]
            rows[i] = place[successors[0]] if len(successors) == 1 else -1
    return rows


def _named(
    state: MixtureState, fresh: MixtureState, matching: Matching, capacity: list[Event]
) -> tuple[MixtureState, AssimilateInfo]:
    """The fresh mixture under the live ids; ids without a component in it retire to their successors."""
    n, offset = fresh.n_components, state.points_seen
    live_ids, mass = state.live_ids.copy(), state.stats[0][: state.n_components].copy()
    ids, next_id = carried_ids(matching, live_ids, state.next_id)
    kept = matching.old_of_new >= 0
    fresh.ids[:n] = ids
    fresh.born_at[:n] = np.where(kept, state.born_at[matching.old_of_new], offset)
    np.maximum(fresh.last_seen_at[:n], fresh.born_at[:n], out=fresh.last_seen_at[:n])
    vanished = np.flatnonzero(matching.new_of_old < 0)
    lineage = state.lineage
    if vanished.size:
        successors = successor_ids(matching, vanished, ids)
        lineage = retire_rows(state, vanished, successors, take(state.stats, vanished)).lineage
    events = _events(matching, live_ids, ids, mass, offset)
    if capacity and not state.at_capacity:
        events.append(capacity[0]._replace(offset=offset))
    if lineage.stats is not None and state.prior is not None and fresh.prior is not None:
        lineage = lineage._replace(stats=restated(fresh.prior, lineage.stats, state.prior))
    archive = state.archive
    if archive is not None and state.prior is not None and fresh.prior is not None:
        archive = archive._replace(stats=restated(fresh.prior, archive.stats, state.prior))
    fresh = fresh._replace(next_id=next_id, lineage=lineage, archive=archive, births_refused=state.births_refused)
    kinds = [event.kind for event in events]
    none = np.zeros(0, dtype=np.int64)
    info = AssimilateInfo(
        none, tuple(events), kinds.count("born"), kinds.count("merged"), kinds.count("pruned"), births_refused=0
    )
    return fresh, info


def _events(matching: Matching, old_ids: IntArray, new_ids: IntArray, mass: Array, offset: int) -> list[Event]:
    """One event for each group of old and new components that are linked; parents with the largest mass first."""
    of_old, of_new = groups_of(matching)
    events: list[Event] = []
    for group in sorted({*of_old.tolist(), *of_new.tolist()}):
        rows = np.flatnonzero(of_old == group)
        parents = tuple(old_ids[rows[np.argsort(-mass[rows], kind="stable")]].tolist())
        children = tuple(new_ids[of_new == group].tolist())
        events += _event_of(parents, children, offset)
    return events


def _event_of(parents: tuple[int, ...], children: tuple[int, ...], offset: int) -> list[Event]:
    if not parents:
        return [Event(offset, "born", (), (child,)) for child in children]
    if not children:
        return [Event(offset, "pruned", (parent,), ()) for parent in parents]
    if set(parents) == set(children):
        return []
    if len(parents) == 1:
        return [Event(offset, "split", parents, children)]
    return [Event(offset, "merged" if len(children) == 1 else "refined", parents, children)]
