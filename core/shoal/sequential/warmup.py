"""The warm-up of a stream with the automatic prior: a buffer of its first rows, fitted again as it grows.

The fit is done from scratch at 1, 2, 4, ... rows and a last time, thoroughly, when the buffer is full; from then on
prior, location and scale are frozen. A fit is `choose_prior`, then the buffered rows learnt in order, as any stream
with an explicit prior learns them. Then their components are split and joined (`warmup_search`), except in the last
fit, which a refinement follows. `choose_prior` counts each row once, whatever its weight; learning counts the
weights. Rows between two fits are learnt under the prior of the last. So the state is a
function of the rows alone, and an answer can be given after the first of them.

A warm-up whose rows are all equal says nothing of the scale of what is to come. It is prolonged: the next fits are at
2, 4 and 8 times as many rows.

Components are matched from one fit to the next by the rows that they have in common, so that ids live on.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from shoal.families import FAMILIES
from shoal.families.capabilities import blocks_of
from shoal.mixture import (
    Event,
    Matching,
    MixtureState,
    Predicted,
    Predictor,
    StreamSettings,
    carried_ids,
    live_rows,
    match,
    next_late_refit,
    next_refit,
    retire_rows,
    rows_for_learner,
    successor_ids,
    with_new_window,
    without_stats,
)
from shoal.points.arrays import Array, IntArray
from shoal.points.rows import Points, row_elements, standardised
from shoal.points.weighted_rows import (
    LearntPoints,
    WeightedRows,
    stacked_weighted,
    unweighted,
    weights_of,
    with_weights,
)
from shoal.sequential.family_choice import choose_family
from shoal.sequential.holes import complete_rows
from shoal.sequential.learn import empty_state, learn_inplace
from shoal.sequential.prior import FEWEST_ROWS, choose_prior
from shoal.sequential.schedule import block_rows
from shoal.sequential.warmup_search import is_searched, searched

BUFFER_SHARE = 8
"""A warm-up is prolonged only while its rows take no more than this part of `max_state_bytes`."""


ROWS_ALIKE = 3
"""Rows a component, on average, below which a family finds no groups. Long texts have 1.1 under `poisson`."""


class Refit(NamedTuple):
    """A fit of the buffer, brought together with what was there before."""

    state: MixtureState
    events: tuple[Event, ...]
    labels: IntArray  # (B,) id of the best component of every buffered row


def buffered(state: MixtureState, x: LearntPoints) -> MixtureState:
    """The state with raw rows x (N, D) put into the buffer; they are not learnt, nor counted, by this."""
    n, capacity = state.points_seen, max(state.settings.warmup_points, state.next_refit)
    if not isinstance(x, np.ndarray) or isinstance(state.buffer, WeightedRows):
        return state._replace(buffer=stacked_weighted([state.buffer[:n], x]))
    if len(state.buffer) < capacity:
        longer = np.zeros((capacity, x.shape[1]))
        longer[:n] = np.asarray(state.buffer[:n])
        state = state._replace(buffer=longer)
    np.asarray(state.buffer)[n : n + len(x)] = x
    return state


def refit(state: MixtureState, n_rows: int) -> Refit:
    """The fit that is due when `n_rows` are buffered. Takes the place of all that was learnt so far."""
    settings, rows = state.settings, state.buffer[:n_rows]
    following = next_refit(n_rows, settings.warmup_points)
    if following < 0 and _prolongs(settings, unweighted(rows)):
        following = next_late_refit(n_rows, settings.warmup_points)
    last = following < 0
    if last and settings.undecided:
        choice = choose_family(np.asarray(unweighted(rows)), settings)
        settings = settings.with_family(*choice)
        rows = with_weights(settings.domain.convert(unweighted(rows)), weights_of(rows))
    chosen = choose_prior(complete_rows(unweighted(rows), settings), settings, thorough=last)
    fresh = empty_state(settings, chosen.prior, chosen.location, chosen.scale, chosen.jitter)
    if state.clock is not None:
        fresh = fresh._replace(clock=state.clock._replace(done=state.clock.dropped))
    begins = state.schedule.window_from  # rows before it cannot be read again: those of a restored snapshot's buffer
    fresh, inner = learn_inplace(fresh, rows[:begins], np.empty(begins, dtype=np.int64))
    if begins:
        fresh = with_new_window(fresh)
    fresh, later = learn_inplace(fresh, rows[begins:], np.empty(n_rows - begins, dtype=np.int64))
    inner += later
    if not last and begins == 0 and is_searched(settings, n_rows):
        fresh = searched(fresh, rows)
    shared, labels = compared(state, fresh, unweighted(state.buffer[:n_rows]))
    matching = match(shared)
    fresh, events = _adopted(state, fresh, matching)
    if fresh.at_capacity and not state.at_capacity:
        events += tuple(event._replace(offset=n_rows) for event in inner if event.kind == "capacity")[:1]
    fresh = fresh._replace(
        frozen=last,
        births_refused=state.births_refused,  # those of points as they came, not of their being learnt again
        next_refit=following,
        buffer=unweighted(rows)[:0].copy() if last else state.buffer,
        schedule=fresh.schedule._replace(restored_at=state.schedule.restored_at),
    )
    findings = (*_prolonged(settings, n_rows), *chosen.findings, *_hardly_alike(fresh, n_rows))
    if last and findings:
        events += (Event(n_rows, "prior", (), (), "; ".join(findings)),)
    return Refit(fresh, events, fresh.ids[labels])


def _prolonged(settings: StreamSettings, n_rows: int) -> tuple[str, ...]:
    """The finding, in words, that the warm-up had more rows than the settings say, if it had."""
    first = settings.warmup_points
    if n_rows <= first:
        return ()
    return (
        f"the real numbers of the first {first:,} rows did not vary, so the warm-up was prolonged to {n_rows:,} rows",
    )


def _hardly_alike(state: MixtureState, n_rows: int) -> tuple[str, ...]:
    """The finding, in words, that components have fewer than `ROWS_ALIKE` rows on average, if they have.

    Then the family does not allow for how rows differ.
    """
    k = state.n_components
    if n_rows < FEWEST_ROWS or n_rows >= ROWS_ALIKE * k:
        return ()
    family = state.settings.family
    return (
        f"{n_rows} rows became {k} components of {family}, so few rows are alike; to find groups, choose another "
        "family or prior",
    )


def _prolongs(settings: StreamSettings, rows: Points) -> bool:
    """Whether more rows are to be awaited, as all of these are equal, at least in the columns of one family of real
    numbers, and there is room for twice as many."""
    if len(rows) < FEWEST_ROWS:
        return False
    room = 2 * row_elements(rows) * len(rows) * 8 <= settings.max_state_bytes // BUFFER_SHARE
    blocks = blocks_of(FAMILIES[settings.family])
    real = [np.asarray(rows)[:, block.columns] for block in blocks if block.kind.domain.located]
    if not blocks and settings.domain.located:
        real = [np.asarray(rows)]
    return room and any(bool(np.all(part == part[:1])) for part in real)


def compared(old: MixtureState, fresh: MixtureState, rows: Points) -> tuple[Array, IntArray]:
    """Mass (K_old, K_new) that the two fits have in common over the rows, and each row's best component in the
    fresh."""
    shared = np.zeros((old.n_components, fresh.n_components))
    labels = np.empty(len(rows), dtype=np.int64)
    ask, ask_fresh = _asked(old), _asked(fresh)
    step = block_rows(row_elements(rows) + old.n_components + fresh.n_components)
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        found = ask_fresh(fresh.settings.domain.convert(rows[part]))
        shared += ask(rows[part]).resp.T @ found.resp
        labels[part] = found.row
    return shared, labels


def best_rows(state: MixtureState, x: Points) -> IntArray:
    """Row of the best existing component of each raw row x (N, D); there must be one."""
    return _asked(state, with_resp=False)(x).row


def _asked(state: MixtureState, *, with_resp: bool = True) -> Callable[[Points], Predicted]:
    """Predictions for raw rows (N, D), of the existing components, as if there were no others."""
    family, n = state.prior, state.n_components
    if n == 0 or family is None:
        return lambda x: Predicted(np.zeros(len(x), np.int64), np.zeros(len(x)), np.ones(len(x)), np.zeros((len(x), 0)))
    own = live_rows(state.stats, n)
    stats, cache = rows_for_learner(family, own, live_rows(state.cache, n))
    with np.errstate(divide="ignore"):  # the empty one has no weight
        predictor = Predictor(family, stats, np.log(stats[0]), cache, holes=state.settings.takes_holes)
    location, scale = state.location, state.scale
    return partial(predictor.predict, with_resp=with_resp, placed=lambda x: standardised(x, location, scale))


def _adopted(old: MixtureState, fresh: MixtureState, matching: Matching) -> tuple[MixtureState, tuple[Event, ...]]:
    """The fresh fit under the ids of the old, with the old ones that found no match in its past, and the events of
    it."""
    n, offset = fresh.n_components, fresh.points_seen
    ids, next_id = carried_ids(matching, old.live_ids, old.next_id)
    kept = matching.old_of_new >= 0
    fresh.ids[:n] = ids
    fresh.born_at[:n] = np.where(kept, old.born_at[matching.old_of_new], offset) if kept.any() else offset
    np.maximum(fresh.last_seen_at[:n], fresh.born_at[:n], out=fresh.last_seen_at[:n])  # seen at the fit that bore it
    vanished = np.flatnonzero(matching.new_of_old < 0)
    ended = old._replace(points_seen=offset, lineage=without_stats(old.lineage))
    ended = retire_rows(ended, vanished, successor_ids(matching, vanished, ids), None)
    fresh = fresh._replace(next_id=next_id, lineage=ended.lineage, archive=None)
    return fresh, _events(matching, old.live_ids, ids, offset)


def _events(matching: Matching, old_ids: IntArray, new_ids: IntArray, offset: int) -> tuple[Event, ...]:
    """One event `refined` for each group of components that changed into one another, `born` for each without a parent.

    A group is what hangs together by matches, by parents of new components and by successors of vanished ones.
    """
    groups = groups_of(matching)
    events = []
    for group in sorted(set(groups[0].tolist()) | set(groups[1].tolist())):
        parents = tuple(old_ids[groups[0] == group].tolist())
        children = tuple(new_ids[groups[1] == group].tolist())
        if not parents:
            events += [Event(offset, "born", (), (child,)) for child in children]
        elif parents != children:
            events.append(Event(offset, "refined", parents, children))
    return tuple(events)


def groups_of(matching: Matching) -> tuple[IntArray, IntArray]:
    """Group of each old (K_old,) and of each new row (K_new,), named by an arbitrary number."""
    of_old = np.arange(len(matching.new_of_old))
    of_new = len(of_old) + np.arange(len(matching.old_of_new))
    links = [(int(old), new) for new, old in enumerate(matching.old_of_new) if old >= 0]
    links += [(int(old), new) for new, old in enumerate(matching.parent_of_new) if matching.old_of_new[new] < 0 <= old]
    links += [
        (old, int(new)) for old, new in enumerate(matching.successor_of_old) if matching.new_of_old[old] < 0 <= new
    ]
    for old, new in links:
        joined, gone = of_old[old], of_new[new]
        of_old[of_old == gone] = joined
        of_new[of_new == gone] = joined
    return of_old, of_new
