"""The door of one-pass learning: a state and points in, the state after them and what happened out.

The result is the same to the bit however the points are cut into calls, and wherever between calls the state was saved
and loaded.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from shoal.families import FAMILIES, AnyFamily
from shoal.mixture import (
    Event,
    MixtureState,
    StreamSettings,
    advanced,
    late_again,
    new_clock,
    next_decay,
    next_refit,
    successors_of,
    weight_left,
    with_new_window,
    within_limits,
)
from shoal.points.arrays import Array, IntArray
from shoal.points.rows import Points
from shoal.points.weighted_rows import (
    LEAST_WEIGHT,
    LearntPoints,
    stacked_weighted,
    unweighted,
    weights_of,
    with_weights,
)
from shoal.sequential.learn import Learn, PrequentialScores, empty_state, learn_inplace, limit_of, unscored
from shoal.sequential.rescale import learn_watched_inplace
from shoal.sequential.schedule import next_check, points_until_refit
from shoal.sequential.warmup import best_rows, buffered, refit

DESCRIBE = frozenset({"feature_names", "level_names", "embedder", "max_records", "record_bytes"})
"""Settings that say what points are or what is kept of them. Learning does not depend on them, and a round goes on."""


class AssimilateInfo(NamedTuple):
    """What a call did. For observing only: nothing of it is read by the next."""

    labels: IntArray
    """(N,) id of each point's component, live at the end of the call. As of the point itself, followed through later
    joins; again where its component is gone without a successor, and for the rows of a warm-up's fit."""
    events: tuple[Event, ...]
    """Changes of identity, by offset."""
    n_births: int
    n_merges: int
    n_prunes: int
    births_refused: int
    scores: PrequentialScores = unscored(0)
    """Of each point just before it was learnt. Of the first point of all, only that it is new."""


def initial_state(settings: StreamSettings) -> MixtureState:
    """A stream before its first point. Raises SettingError when `max_state_bytes` has no room for one component."""
    d = settings.n_features
    prior = None if isinstance(settings.prior, str) else settings.prior
    limit_of(settings, prior or _any_prior(settings))
    state = empty_state(settings, prior, np.zeros(d), np.ones(d), np.zeros(d))
    return state if prior is not None else state._replace(next_refit=next_refit(0, settings.warmup_points))


def _any_prior(settings: StreamSettings) -> AnyFamily:
    """A prior of the stream's family, for the size of a component before there is the prior itself."""
    return FAMILIES[settings.family].weak(settings.n_features)


def timed(
    state: MixtureState, x: LearntPoints, times: Array, arrived: float | None = None
) -> tuple[MixtureState, LearntPoints]:
    """The state that knows the times of rows x (N, D), N >= 1, and the rows with weights, for `assimilate_inplace`.

    times (N,): seconds since 1970; NaN for a row without a time. They matter where the half-life or the window
    is a time. A row without a time, and one from beyond `arrived`, comes at `arrived`, or at the newest time if that is
    later. A row that is late gets the weight that rows of its time have left, or would have left at `arrived` where the
    newest time is beyond that.
    """
    step_s = state.settings.clock_step_s
    moved = None if step_s is None else advanced(state.clock, times, step_s, state.points_seen, arrived)
    if moved is None:
        return state, x
    clock, late = moved
    return state._replace(clock=clock), _with_age(state.settings, x, late)


def weighted_as_learnt(state: MixtureState, x: LearntPoints, times: Array, arrived: Array) -> LearntPoints:
    """The last N rows of a state, x (N, D), with the weights that `timed` gave them before they were learnt.

    times (N,): NaN for a row without a time, and for one from beyond the time at which it arrived. arrived (N,): that
    time; infinite where it is not known.
    """
    step_s = state.settings.clock_step_s
    if state.clock is None or step_s is None:
        return x
    offsets = state.points_seen - len(times) + np.arange(len(times))
    return _with_age(state.settings, x, late_again(state.clock, times, arrived, offsets, step_s))


def _with_age(settings: StreamSettings, x: LearntPoints, late: IntArray) -> LearntPoints:
    """The rows, each with what is left of its weight."""
    if not (late.any() and settings.conjugate) or settings.half_life_s is None:
        return x
    own, left = weights_of(x), weight_left(late)
    return with_weights(unweighted(x), np.maximum(left if own is None else own * left, LEAST_WEIGHT))


def assimilate_inplace(
    state: MixtureState, x: Any, learn: Learn = learn_inplace
) -> tuple[MixtureState, AssimilateInfo]:
    """Learn raw points x (N, D) in order; the domain checks them first. Consumes `state`: its arrays are rewritten.

    `x` may be `WeightedRows`, for conjugate families, whose weights `checked_weights` has checked. `learn`: how rows
    are learnt after the warm-up.

    Memory beside the state and the labels is bounded: points are standardised some thousands at a time.
    """
    x = with_weights(state.settings.domain.convert(unweighted(x)), weights_of(x))
    refused, labels = state.births_refused, np.full(len(x), -1, dtype=np.int64)
    scores = unscored(len(x))
    events: list[Event] = []
    start = 0
    while start < len(x):
        if state.frozen:
            rows = slice(start, None)
            state, found = _learn_frozen_inplace(state, x[rows], labels[rows], scores.rows(rows), learn)
            events.extend(found)
            break
        stop = min(len(x), start + points_until_refit(state))
        state, found = _warm_up_inplace(state, x[start:stop], labels, scores.rows(slice(start, stop)), stop)
        events.extend(found)
        start = stop
    if any(event.kind != "born" for event in events):
        labels = live_labels(state, unweighted(x), labels)
    return state, _info(labels, events, state.births_refused - refused, scores)


def _learn_frozen_inplace(
    state: MixtureState, x: LearntPoints, labels: IntArray, scores: PrequentialScores, learn: Learn
) -> tuple[MixtureState, list[Event]]:
    """Learn rows after the warm-up."""
    state.settings.check_chosen_domain(unweighted(x))
    return learn_watched_inplace(state, x, labels, scores, learn)


def assimilate_together_inplace(
    state: MixtureState, parts: Sequence[LearntPoints], learn: Learn = learn_inplace
) -> tuple[MixtureState, list[AssimilateInfo]]:
    """`assimilate_inplace` of one part (N, D) after another, in one pass over all their rows, with the info of each.

    The warm-up is over, and before the last part nothing but births happens. Then no component is lost whose label an
    earlier part has. Births that were refused are all counted with the last part.
    """
    settings, refused, began = state.settings, state.births_refused, state.points_seen
    parts = [with_weights(settings.domain.convert(unweighted(part)), weights_of(part)) for part in parts]
    x = stacked_weighted(parts)
    labels, scores = np.full(len(x), -1, dtype=np.int64), unscored(len(x))
    state, events = _learn_frozen_inplace(state, x, labels, scores, learn)
    ends = np.cumsum([len(part) for part in parts])
    last = len(parts) - 1
    found: list[list[Event]] = [[] for _ in parts]
    for event in events:
        within = event.kind in ("born", "capacity")  # all else may have the offset before the first row of its part
        found[int(np.searchsorted(ends, event.offset - began)) if within else last].append(event)
    own = labels[ends[-1] - len(parts[-1]) :]
    if any(event.kind != "born" for event in found[last]):
        own[:] = live_labels(state, unweighted(parts[last]), own)
    infos = []
    for i, (part, end) in enumerate(zip(parts, ends.tolist(), strict=True)):
        rows = slice(end - len(part), end)
        infos.append(
            _info(labels[rows], found[i], state.births_refused - refused if i == last else 0, scores.rows(rows))
        )
    return state, infos


def _warm_up_inplace(
    state: MixtureState, part: LearntPoints, labels: IntArray, scores: PrequentialScores, stop: int
) -> tuple[MixtureState, list[Event]]:
    """Learn rows up to the next fit of the buffer at most, and do that fit where they reach it.

    `labels` are those of the call; `part` ends at its row `stop`, and `scores` are of its rows. A fit labels all
    buffered rows of the call again.
    """
    n_rows = state.points_seen + len(part)
    state, events = buffered(state, part), list[Event]()
    if state.prior is not None:
        state, events = learn_inplace(state, part, labels[stop - len(part) : stop], scores)
    else:
        scores.born[:1] = True  # the first point of all
    if n_rows == state.next_refit:
        fit = refit(state, n_rows)
        state = fit.state
        events.extend(fit.events)
        own = min(stop, n_rows)
        labels[stop - own : stop] = fit.labels[n_rows - own :]
    return state, events


def live_labels(state: MixtureState, x: Points, labels: IntArray) -> IntArray:
    """The labels with ids that are no longer live replaced by that of their successor, or by the best live component's.

    A label -1 stands for one that is not known. Writes into `labels`, of raw rows x (N, D), and gives it back.
    """
    live = np.sort(state.live_ids)
    gone = np.setdiff1d(labels, live)
    for old in gone.tolist():
        successors = successors_of(state.lineage, old)
        if len(successors) == 1 and successors[0] in live:
            labels[labels == old] = successors[0]
    lost = np.flatnonzero(~np.isin(labels, live)) if gone.size else gone
    if lost.size:
        labels[lost] = state.ids[best_rows(state, x[lost])]
    return labels


def _info(labels: IntArray, events: list[Event], refused: int, scores: PrequentialScores) -> AssimilateInfo:
    kinds = [event.kind for event in events]
    return AssimilateInfo(
        labels, tuple(events), kinds.count("born"), kinds.count("merged"), kinds.count("pruned"), refused, scores
    )


def apply_settings_inplace(state: MixtureState, new: StreamSettings) -> tuple[MixtureState, AssimilateInfo]:
    """The state under other settings from its next point on.

    Decays and checks go on at the offsets that the new settings give. Another half-life or window begins the window of
    refinements again: its rows have other weights, or are too many. A lower limit on components retires none; it
    refuses births. Raises SettingError, and changes nothing, when `new` has another shape (family, features, prior,
    method, warm-up).
    """
    old = state.settings
    new = new.chosen_as(old)
    changed = {field.name for field in fields(StreamSettings) if getattr(new, field.name) != getattr(old, field.name)}
    settings = old.with_changes(**{name: getattr(new, name) for name in changed})
    limit = limit_of(settings, state.prior or _any_prior(settings))
    at_capacity = state.at_capacity and state.n_components >= limit
    state = state._replace(settings=settings)
    if state.round is None or not changed <= DESCRIBE:
        state = state._replace(at_capacity=at_capacity, round=None)
    if "max_archived" in changed:
        state = state._replace(archive=within_limits(state.archive, settings))
    if "half_life" in changed:
        state = state._replace(next_decay=next_decay(state.points_seen, settings.half_life_points))
    if settings.clock_step_s != old.clock_step_s:  # another clock, which shows the same time
        clock = None if settings.clock_step_s is None else state.clock
        state = state._replace(clock=None if clock is None else new_clock(clock.now, clock.late))
    if "half_life" in changed or settings.window_rows != old.window_rows:
        state = with_new_window(state)
    if "check_schedule" in changed:
        state = state._replace(next_check=next_check(state.points_seen, state.n_components, settings.check_schedule))
    return state, _info(np.zeros(0, dtype=np.int64), [], 0, unscored(0))
