"""Learning under a set prior: points are absorbed one after another, with checks and decays at absolute offsets."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from shoal.families import AnyFamily
from shoal.families.holes import as_table, rows_with_holes
from shoal.families.predictive_cache import empty_cache, refresh, renewal
from shoal.mixture import (
    Event,
    MixtureState,
    RefinementSchedule,
    StreamSettings,
    component_bytes,
    component_limit,
    decayed,
    empty_lineage,
    grow,
    merge_by_bound_inplace,
    next_capacity,
    next_decay,
    prune_and_merge_inplace,
    returned_inplace,
    with_new_window,
    with_window_moved,
)
from shoal.points.arrays import Array, BoolArray, IntArray
from shoal.points.rows import Points, row_elements, standardised
from shoal.points.weighted_rows import LearntPoints, unweighted, weights_of
from shoal.sequential.forgetting import counted, counts_before, decay_inplace
from shoal.sequential.holes import holed_point_inplace
from shoal.sequential.one_pass import LONGEST_BLOCK, OnePass, standardised_by_kernel
from shoal.sequential.passes import NO_MONITOR, Components, PassResult, PassRules, Piece
from shoal.sequential.prior.jitter import jittered
from shoal.sequential.schedule import block_rows, next_check, next_regular, points_until_due


def limit_of(settings: StreamSettings, prior: AnyFamily) -> int:
    """Most components that the settings allow. Raises SettingError when `max_state_bytes` has no room for one."""
    return _limit(settings, prior.empty_stats(1), empty_cache(prior, 1))


def _limit(settings: StreamSettings, stats: Any, cache: Any) -> int:
    """`limit_of`, given statistics and cache of any number of components."""
    row_bytes = component_bytes(stats, cache, windowed=settings.window_rows > 0, partitions=settings.partitions)
    return component_limit(settings, row_bytes)


def empty_state(
    settings: StreamSettings, prior: AnyFamily | None, location: Array, scale: Array, jitter: Array
) -> MixtureState:
    """A mixture that has seen nothing, learning standardised points (x - location) / scale under `prior` where there
    is one."""
    rows = 0 if prior is None else next_capacity(0, limit_of(settings, prior))
    none = np.zeros(rows, dtype=np.int64)
    state = MixtureState(
        settings=settings,
        prior=prior,
        frozen=prior is not None,
        location=location,
        scale=scale,
        jitter=jitter,
        stats=None if prior is None else prior.empty_stats(rows),
        cache=None if prior is None else empty_cache(prior, rows),
        ids=none,
        born_at=none.copy(),
        last_seen_at=none.copy(),
        pairs=np.zeros((rows, rows) if settings.pair_rule != "none" else (0, 0)),
        n_components=0,
        next_id=0,
        points_seen=0,
        decayed_count=0.0,
        pruned_mass=0.0,
        at_capacity=False,
        births_refused=0,
        next_check=next_check(0, 0, settings.check_schedule),
        next_decay=next_decay(0, settings.half_life_points),
        next_refit=-1,
        buffer=settings.domain.none(settings.n_features),
        lineage=empty_lineage(),
    )
    return state if prior is None else with_new_window(state)


class PrequentialScores(NamedTuple):
    """What the mixture predicted of N points, each just before it was learnt (Dawid 1984)."""

    log_density: Array
    """(N,) log predictive densities in nats, in the units of the points. NaN before there is a prior."""
    novelty: Array
    """(N,) posterior probabilities that a point belongs to no component that existed."""
    born: BoolArray
    """(N,) whether the point founded a component."""

    def rows(self, rows: slice) -> "PrequentialScores":
        """The same for some of the points, as views."""
        return PrequentialScores(self.log_density[rows], self.novelty[rows], self.born[rows])


def unscored(n: int) -> PrequentialScores:
    """Scores of n points of a stream that has no prior and no component yet."""
    return PrequentialScores(np.full(n, np.nan), np.ones(n), np.zeros(n, dtype=np.bool_))


Learn: TypeAlias = Callable[[MixtureState, LearntPoints, IntArray, PrequentialScores], tuple[MixtureState, list[Event]]]
"""How rows are learnt under a set prior: `learn_inplace`, or what gives the same kind of results."""


def learn_inplace(
    state: MixtureState,
    x: LearntPoints,
    labels: IntArray,
    scores: PrequentialScores | None = None,
    *,
    partition_limit: int | None = None,
) -> tuple[MixtureState, list[Event]]:
    """Absorb raw rows x (N, D) in order, with the decays, checks and renewals that fall among them.

    Writes `labels` (N,): the id of each point's best component as of that point, which may be gone by the end; and
    `scores`, where given. Gives the events in order of offset.

    partition_limit: where the state is one of a partition, the most components that it may have. No component leaves
    it, so that those of all partitions remain the same.
    """
    assert state.prior is not None, "points are learnt under a prior"
    whole = partition_limit is None
    limit = _limit(state.settings, state.stats, state.cache) if partition_limit is None else partition_limit
    events: list[Event] = []
    scores = unscored(len(x)) if scores is None else scores
    points, weights = unweighted(x), weights_of(x)
    rules = _rules(state.settings, limit)
    batch = _BatchPass(rules, OnePass(state.prior, rules, min(LONGEST_BLOCK, len(x))), _log_volume(state))
    start = 0
    while start < len(x):
        block = min(len(x), start + block_rows(row_elements(points)))
        raw = jittered(points[start:block], state.jitter, state.points_seen)
        z, holed = _placed(state, raw)
        first = start
        while start < block:
            state, found = decayed_by_time_inplace(state, whole=whole)
            events.extend(found)
            state = with_window_moved(state)
            state = with_room(state, limit) if whole else state
            stop = min(block, start + points_until_due(state))
            while start < stop:
                end = _piece_end(holed, start - first, stop - first) + first
                piece = z[start - first : end - first]
                rows = slice(start, end)
                own = None if weights is None else weights[rows]
                seen = state.points_seen
                state, found = _absorb_inplace(state, piece, own, labels[rows], scores.rows(rows), batch)
                events.extend(found)
                start += state.points_seen - seen
            state, found = _due_inplace(state, limit, whole)
            events.extend(found)
    return state, events


class _BatchPass(NamedTuple):
    """What all calls of the kernel over the rows of one batch have in common."""

    rules: PassRules
    one_pass: OnePass
    log_volume: float
    """Logarithm of the volume of a standardised unit in the units of the points."""


def _log_volume(state: MixtureState) -> float:
    return float(np.log(state.scale).sum())


def _placed(state: MixtureState, raw: Points) -> tuple[Points, BoolArray | None]:
    """Standardised rows, and which of them have a missing value; None where none may have."""
    holed = rows_with_holes(raw) if state.settings.takes_holes else None
    if holed is None or not holed.any():
        return standardised_by_kernel(raw, state.location, state.scale), None
    return standardised(raw, state.location, state.scale), holed


def _piece_end(holed: BoolArray | None, start: int, stop: int) -> int:
    """The end of the rows from `start` that are learnt at once: one with a missing value, or the complete ones."""
    if holed is None:
        return stop
    if holed[start]:
        return start + 1
    ahead = np.flatnonzero(holed[start:stop])
    return start + int(ahead[0]) if ahead.size else stop


def _absorb_inplace(
    state: MixtureState,
    z: Points,
    weights: Array | None,
    labels: IntArray,
    scores: PrequentialScores,
    batch: _BatchPass,
) -> tuple[MixtureState, tuple[Event, ...]]:
    """One call of the kernel over standardised rows z. It absorbs at least one, and ends where the arrays are full."""
    state = grow(state, next_capacity(state.n_components, batch.rules.max_components))
    components = Components(
        state.stats, state.cache, state.born_at, state.last_seen_at, state.pairs, state.monitor or NO_MONITOR
    )
    before = state.n_components
    holed = state.settings.takes_holes and bool(rows_with_holes(z[:1])[0])
    piece = Piece(z, labels, scores.log_density, scores.novelty, weights)
    if holed:
        assert state.prior is not None
        result = holed_point_inplace(state.prior, batch.rules, components, before, state.points_seen, piece)
    else:
        result = batch.one_pass.absorb_inplace(components, before, state.points_seen, piece)
    weights = None if weights is None else weights[: result.n_done]
    _normalise_inplace(state, batch.log_volume, scores.log_density[: result.n_done], weights)
    if holed:  # the scale of a missing feature is no part of the density of the others
        scores.log_density[0] += float(np.log(state.scale[np.isnan(as_table(z)[0])]).sum())
    births = result.n_components - before
    scores.born[: result.n_done] = False
    if births:
        scores.born[state.born_at[before : result.n_components] - state.points_seen - 1] = True
        state.ids[before : result.n_components] = state.next_id + np.arange(births)
    labels[: result.n_done] = state.ids[labels[: result.n_done]]
    return state._replace(
        n_components=result.n_components,
        next_id=state.next_id + births,
        points_seen=state.points_seen + result.n_done,
        decayed_count=counted(state.decayed_count, result.n_done, weights),
        at_capacity=state.at_capacity or result.n_refused > 0,
        births_refused=state.births_refused + result.n_refused,
        schedule=_alarmed(state, result),
    ), _events_of(state, result)


def _normalise_inplace(state: MixtureState, log_volume: float, log_density: Array, weights: Array | None) -> None:
    """Make log densities of points one after another, as the pass gives them, densities in the units of the points.

    The mixture had the mass of the state before the first of them, and a point's weight more before each that follows.
    """
    mass = counts_before(state.decayed_count, len(log_density), weights) - state.pruned_mass
    log_density -= np.log(mass + state.settings.concentration) + log_volume


def _alarmed(state: MixtureState, result: PassResult) -> RefinementSchedule:
    """The schedule with the first alarm of a component that misfits, unless one stands."""
    if result.first_misfit < 0 or state.schedule.alarm >= 0:
        return state.schedule
    return state.schedule._replace(alarm=state.points_seen + result.first_misfit + 1)


def _rules(settings: StreamSettings, limit: int) -> PassRules:
    return PassRules(settings.concentration, settings.birth_threshold, settings.floor, settings.pair_rule, limit)


def _events_of(state: MixtureState, result: PassResult) -> tuple[Event, ...]:
    """The births of one call of the kernel from `state`, and the first refusal since there was room.

    Refusals come after the births: no room is made within a call.
    """
    born = range(state.n_components, result.n_components)
    events = [Event(int(state.born_at[row]), "born", (), (int(state.ids[row]),)) for row in born]
    if result.n_refused > 0 and not state.at_capacity:
        events.append(Event(state.points_seen + result.first_refused + 1, "capacity", (), ()))
    return tuple(events)


def _due_inplace(state: MixtureState, limit: int, whole: bool) -> tuple[MixtureState, tuple[Event, ...]]:
    """What is due at `points_seen`: decay, check, and returns and a new predictive cache after either. The cache is
    renewed at fixed offsets, too."""
    offset = state.points_seen
    decays, checks = offset == state.next_decay, offset >= state.next_check
    events: tuple[Event, ...] = ()
    if decays:
        state, events = decay_inplace(state, retires=whole)
    if checks:
        state, found = check_inplace(state)
        events += found
    if state.archive is not None and (decays or checks):
        state, found = returned_inplace(state)
        events += found
    state = with_room(state, limit) if whole else state
    if decays or checks or next_regular(offset - 1) == offset:
        cache = renewed_cache(state)
        state = state if cache is state.cache else state._replace(cache=cache)
    return state, events


def with_room(state: MixtureState, limit: int) -> MixtureState:
    """The state, no longer `at_capacity` if it has fewer components than the limit: the next refusal is an event."""
    return state._replace(at_capacity=False) if state.at_capacity and state.n_components < limit else state


def decayed_by_time_inplace(state: MixtureState, *, whole: bool = True) -> tuple[MixtureState, tuple[Event, ...]]:
    """The state after the decay that falls before the next point by its time, if one does.

    whole: no component leaves the state of a partition, which is not the whole mixture.
    """
    clock = state.clock
    if clock is None or clock.pending is None or clock.at[clock.pending] != state.points_seen:
        return state, ()
    steps = int(clock.steps[clock.pending])
    if state.n_components == 0 or state.settings.half_life_s is None:
        return state._replace(clock=decayed(clock)), ()
    state, pruned = decay_inplace(state._replace(clock=decayed(clock)), steps, retires=whole)
    state, returned = returned_inplace(state)
    return state._replace(cache=renewed_cache(state)), pruned + returned


def check_inplace(state: MixtureState) -> tuple[MixtureState, tuple[Event, ...]]:
    """The check for prunes and merges that is due at `points_seen`. Leaves `cache` stale."""
    events: tuple[Event, ...] = ()
    if state.settings.method == "default" and state.settings.conjugate:
        state, events = merge_by_bound_inplace(state)
    elif state.settings.method == "sva-pm":
        state, events = prune_and_merge_inplace(state)
    following = next_check(state.points_seen, state.n_components, state.settings.check_schedule)
    return state._replace(next_check=following), events


def renewed_cache(state: MixtureState) -> Any:
    """The predictive cache of the statistics, computed again in its own arrays where there is a kernel for that."""
    prior, n = state.prior, state.n_components
    assert prior is not None
    call = renewal(prior, state.stats, state.cache, n)
    if call is not None:
        kernel, arguments = call
        if kernel(*arguments):
            return state.cache
    return refresh(prior, state.stats, n)
