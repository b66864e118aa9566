"""Rounds: partitions of a stream learn side by side between two fixed offsets, and are then summed.

    rows      b           b + L/2            b + L
    first     |-- learns --|                   |
    second                 |----- learns ------|   both from the base, the mixture at b
                                               sum, joins of newborns, decays' retirements, check

Invariants:

- A partition is a function of the base and of its own rows. So the partitions of a round may be learnt at the same
  time or one after another, by any number of workers, with the same bits.
- Rounds, ranges, decays and checks fall at offsets that follow from the settings and from the times of the rows. So the
  result is the same to the bit however the stream is cut into calls, and a replay of the log gives it again.
- Every row has the weight that it would have with one partition: a mixture of the round has each decay at its own
  offset, within its range by the one pass, outside of it by `contributions.decayed_inplace`.
- Within a round no component of the base is joined or retired, so that its row means the same in all partitions.
- A component has its id from its birth: ids ascend with the offset of birth. Where two partitions have found the same
  cluster, the end of the round joins their newborns if the bound rises, and an event reports it.
- Between two calls the state has the sum of all that was learnt so far, with what each partition has in `state.round`.
  So readers, checkpoints and refinements see every row at once, also in the middle of a round.

The first rows, and those of streams whose rounds would be too short, are learnt by the one pass alone.
"""

from functools import partial
from typing import Any, NamedTuple

from shoal.mixture import (
    Event,
    MixtureState,
    Round,
    StreamSettings,
    ended_by_time,
    merge_pairs_inplace,
    next_round_end,
    returned_inplace,
    rows_before_rounds,
    trimmed,
    with_window_moved,
)
from shoal.partitions.contributions import (
    copied,
    decayed_inplace,
    nearest_across,
    partition_state,
    summed_inplace,
)
from shoal.partitions.pieces import PieceResult, PieceRunner, PieceTask, RoundContext, in_turn
from shoal.points.arrays import IntArray
from shoal.points.weighted_rows import LearntPoints
from shoal.sequential import AssimilateInfo, PrequentialScores
from shoal.sequential import assimilate_inplace as assimilate_in_order_inplace
from shoal.sequential.forgetting import retire_forgotten_inplace
from shoal.sequential.learn import (
    Learn,
    check_inplace,
    decayed_by_time_inplace,
    learn_inplace,
    limit_of,
    renewed_cache,
    with_room,
)

NEAREST = 4
"""Newborns of other partitions that a newborn may be joined with, the nearest ones."""


def assimilate_inplace(state: MixtureState, x: Any, run: PieceRunner = in_turn) -> tuple[MixtureState, AssimilateInfo]:
    """`sequential.assimilate_inplace`, with the partitions that the settings ask for. `run` changes nothing of the
    result."""
    return assimilate_in_order_inplace(state, x, learn_of(state.settings, run))


def learn_of(settings: StreamSettings, run: PieceRunner) -> Learn:
    """How rows are learnt after the warm-up, with the partitions that the settings ask for."""
    return learn_inplace if settings.partitions == 1 else partial(learn_in_rounds_inplace, run=run)


def learn_in_rounds_inplace(
    state: MixtureState, x: LearntPoints, labels: IntArray, scores: PrequentialScores, run: PieceRunner = in_turn
) -> tuple[MixtureState, list[Event]]:
    """`sequential.learn.learn_inplace` of rows x (N, D) by partitions, where they belong to rounds."""
    events: list[Event] = []
    start = 0
    while start < len(x):
        seen = state.points_seen
        before = rows_before_rounds(seen, state.settings)
        if before > 0:
            stop = min(len(x), start + before)
            rows = slice(start, stop)
            state, found = learn_inplace(state, x[rows], labels[rows], scores.rows(rows))
            events.extend(found)
            start = stop
            continue
        if state.round is None:
            state, decayed = _begun_inplace(state)
            events.extend(decayed)
        assert state.round is not None
        end = ended_by_time(state.clock, state.round.begins_at, state.round.ends_at)
        stop = min(len(x), start + end - seen)
        rows = slice(start, stop)
        if stop > start:
            state, found = _learn_within_inplace(state, x[rows], labels[rows], scores.rows(rows), run)
            events.extend(found)
        if state.points_seen == end:
            state, found = _ended_inplace(state)
            events.extend(found)
        elif state.round is not None and len(state.round.partitions) > 1:
            state = state._replace(cache=renewed_cache(state))
        start = stop
    return state, events


def _begun_inplace(state: MixtureState) -> tuple[MixtureState, tuple[Event, ...]]:
    """The state at the beginning of a round: with what is due before the next row, and a base."""
    state, events = decayed_by_time_inplace(state)
    state = with_window_moved(state)
    assert state.prior is not None
    state = with_room(state, limit_of(state.settings, state.prior))
    ends_at = next_round_end(state.points_seen, state.settings)
    base = copied(partition_state(state)._replace(cache=None))
    within = Round(state.points_seen, ends_at, state.next_id, base, ())
    return state._replace(round=within, next_check=max(state.next_check, ends_at)), events


class _Range(NamedTuple):
    """Rows of one partition in a call."""

    partition: int
    low: int
    """Points seen before its first row."""
    high: int


def _ranges(within: Round, partitions: int, low: int, high: int) -> list[_Range]:
    """The rows (low, high] by partition, in order."""
    found = []
    for p in range(partitions):
        first, last = max(low, within.first_row(p, partitions)), min(high, within.first_row(p + 1, partitions))
        if first < last:
            found.append(_Range(p, first, last))
    return found


def _learn_within_inplace(
    state: MixtureState, x: LearntPoints, labels: IntArray, scores: PrequentialScores, run: PieceRunner
) -> tuple[MixtureState, list[Event]]:
    """Learn rows that lie within the round of the state."""
    within, high = state.round, state.points_seen + len(x)
    assert within is not None
    ranges = _ranges(within, state.settings.partitions, state.points_seen, high)
    tasks = _tasks(state, within, ranges, x, labels, scores)
    results = run(tasks)
    for task, result in zip(tasks, results, strict=True):
        _write(task, result)
    return _brought_together(state, within, ranges, results, labels, high)


def _tasks(
    state: MixtureState,
    within: Round,
    ranges: list[_Range],
    x: LearntPoints,
    labels: IntArray,
    scores: PrequentialScores,
) -> list[PieceTask]:
    """The task of each range. The partitions share evenly the room that the base leaves for components."""
    settings, n, seen = state.settings, within.base.n_components, state.points_seen
    assert state.prior is not None
    context = RoundContext(
        settings=settings,
        prior=state.prior,
        location=state.location,
        scale=state.scale,
        jitter=state.jitter,
        clock=state.clock,
        ids=state.ids[:n],
        begins_at=within.begins_at,
        next_id=within.next_id,
    )
    begun = within.partitions or (partition_state(state),)  # the first partition goes on with the state's own arrays
    share, left = divmod(max(limit_of(settings, state.prior) - n, 0), settings.partitions)
    tasks = []
    for partition, first, last in ranges:
        rows, from_base = slice(first - seen, last - seen), partition >= len(begun)
        tasks.append(
            PieceTask(
                context=context,
                partition=within.base if from_base else begun[partition],
                from_base=from_base,
                base_at=seen,
                low=first,
                rows=x[rows],
                limit=n + share + (partition < left),
                labels=labels[rows],
                scores=scores.rows(rows),
            )
        )
    return tasks


def _write(task: PieceTask, result: PieceResult) -> None:
    """Write labels and scores where they belong, if they were computed elsewhere."""
    if result.labels is not task.labels:
        task.labels[:] = result.labels
        for own, found in zip(task.scores, result.scores, strict=True):
            own[:] = found


def _brought_together(
    state: MixtureState,
    within: Round,
    ranges: list[_Range],
    results: list[PieceResult],
    labels: IntArray,
    high: int,
) -> tuple[MixtureState, list[Event]]:
    """The state after pieces of a round, their labels and events under final ids."""
    seen, n = state.points_seen, within.base.n_components
    partitions = list(within.partitions)
    events: list[Event] = []
    full = within.base.at_capacity
    for learnt, result in zip(ranges, results, strict=True):
        earlier = partitions[: learnt.partition]
        partitions[learnt.partition :] = [result.partition]
        shift = sum(other.n_components - n for other in earlier)
        own = labels[learnt.low - seen : learnt.high - seen]
        own[own >= within.next_id] += shift
        full = full or any(other.at_capacity for other in earlier)
        events += [
            event._replace(children=tuple(child + shift for child in event.children))
            for event in result.events
            if event.kind != "capacity" or not full
        ]
    last = len(partitions) - 1
    for p, partition in enumerate(partitions):
        if p < last:  # decays go on
            at = within.first_row(p + 1, state.settings.partitions)
            complete = partition._replace(cache=None)
            partitions[p] = decayed_inplace(state, complete, within.begins_at, max(at, seen), high)
    base = decayed_inplace(state, within.base, within.begins_at, seen, high)
    within = within._replace(base=base, partitions=tuple(partitions))
    return summed_inplace(state, within, high)._replace(round=within), events


def _ended_inplace(state: MixtureState) -> tuple[MixtureState, list[Event]]:
    """The state at the end of a round: newborns joined, forgotten components retired, the check if it is due."""
    within, settings, family = state.round, state.settings, state.prior
    assert within is not None
    assert family is not None
    state = state._replace(round=None, clock=None if state.clock is None else trimmed(state.clock))
    events: list[Event] = []
    i, j = nearest_across(family, within, state.stats, NEAREST)
    if len(i):
        state, joined = merge_pairs_inplace(state, i, j)
        events.extend(joined)
    if settings.half_life is not None:
        state, retired = retire_forgotten_inplace(state)
        events.extend(retired)
    if state.points_seen >= state.next_check:
        state, checked = check_inplace(state)
        events.extend(checked)
    if state.archive is not None:
        state, returned = returned_inplace(state)
        events.extend(returned)
    state = with_room(state, limit_of(settings, family))
    return state._replace(cache=renewed_cache(state)), events
