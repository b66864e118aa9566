"""Mixtures of a round: the base, those of the partitions, and their sum.

Statistics add. A partition that began at the base and learnt its own rows holds base + contribution. So

    sum of contributions + base = S_1 + S_2 + ... - (m - 1) base,    m partitions.

It is summed as ((S_1 + S_2) - base) + S_3 - base ..., so that no intermediate sum has less than the mass of the base.
Pair sums, masses and counts are summed in the same way. Components born in a partition are in none of the others, and
share no point with those born there: they are appended, in order of birth, with pair sums of zero.
"""

from typing import Any, Protocol

import numpy as np

from shoal.families import AnyFamily, concatenated, scale_inplace, take
from shoal.families.predictive_cache import empty_cache
from shoal.mixture import (
    Clock,
    MisfitMonitor,
    MixtureState,
    PartitionState,
    Round,
    StreamSettings,
    caught_up,
    decays_between,
    next_decay,
    with_weight_lost,
)
from shoal.points.arrays import Array, IntArray
from shoal.sequential.kernel import COLLECTED_POINTS, LEAST_SPREAD, MISFIT_POINTS


def partition_state(state: MixtureState) -> PartitionState:
    """The components of a state, sharing its arrays."""
    return PartitionState(
        state.stats,
        state.cache,
        state.born_at,
        state.last_seen_at,
        state.pairs,
        state.monitor,
        state.n_components,
        state.decayed_count,
        state.pruned_mass,
        state.births_refused,
        state.at_capacity,
        state.schedule.alarm,
    )


def copied(partition: PartitionState) -> PartitionState:
    """The same in arrays of its own."""
    own: dict[str, Any] = {name: getattr(partition, name).copy() for name in ("born_at", "last_seen_at", "pairs")}
    for name in ("stats", "cache", "monitor"):
        rows = getattr(partition, name)
        own[name] = None if rows is None else type(rows)(*(field.copy() for field in rows))
    return partition._replace(**own)


class Forgetting(Protocol):
    """What says which decays fall: a state, or what the pieces of a round read of it."""

    @property
    def settings(self) -> StreamSettings:
        """Settings of the stream."""

    @property
    def prior(self) -> AnyFamily | None:
        """The family with its prior."""

    @property
    def clock(self) -> Clock | None:
        """The time of the stream, and its decays."""


def decayed_inplace(
    state: Forgetting, partition: PartitionState, begins_at: int, low: int, high: int
) -> PartitionState:
    """The partition, which is at offset `low`, with the decays up to offset `high`, one after another. Leaves `cache`
    stale."""
    assert state.prior is not None
    for _, factor in decays_between(state.settings, state.clock, begins_at, low, high):
        if factor < 1.0:
            scale_inplace(state.prior, partition.stats, factor, partition.n_components)
            between = partition.pairs[: partition.n_components, : partition.n_components]
            between *= factor
            partition = partition._replace(
                decayed_count=partition.decayed_count * factor, pruned_mass=partition.pruned_mass * factor
            )
    return partition


def summed_inplace(state: MixtureState, within: Round, points_seen: int) -> MixtureState:
    """The state at `points_seen`, in the middle or at the end of a round, with the sum of all contributions.

    `state` is as of the last sum. With one partition alone, its arrays are the state's own. With several, `cache` is
    left to be computed.
    """
    assert state.prior is not None
    settings, low = state.settings, state.points_seen
    state = _earlier_decayed_inplace(state, within, low, points_seen)
    base, partitions = within.base, within.partitions
    n, births = base.n_components, sum(partition.n_components - base.n_components for partition in partitions)
    alarms = [base.alarm, *(partition.alarm for partition in partitions)]
    ids = np.zeros(len(partitions[0].born_at) if len(partitions) == 1 else n + births, dtype=np.int64)
    ids[:n] = state.ids[:n]
    ids[n : n + births] = within.next_id + np.arange(births)
    extra = len(partitions) - 1  # times that the sums over partitions count the base too often
    state = state._replace(
        ids=ids,
        n_components=n + births,
        next_id=within.next_id + births,
        points_seen=points_seen,
        next_decay=next_decay(points_seen, settings.half_life_points),
        at_capacity=base.at_capacity or any(partition.at_capacity for partition in partitions),
        births_refused=sum(partition.births_refused for partition in partitions) - extra * base.births_refused,
        decayed_count=sum(partition.decayed_count for partition in partitions) - extra * base.decayed_count,
        pruned_mass=base.pruned_mass,
        schedule=state.schedule._replace(alarm=next((alarm for alarm in alarms if alarm >= 0), -1)),
        clock=None if state.clock is None else caught_up(state.clock, points_seen),
    )
    with_contributions = _of_one if len(partitions) == 1 else _of_several
    return _padded_earlier(with_contributions(state, base, partitions))


def _of_one(state: MixtureState, base: PartitionState, partitions: tuple[PartitionState, ...]) -> MixtureState:
    """The state with the arrays of the only partition."""
    (only,) = partitions
    return state._replace(
        stats=only.stats,
        cache=only.cache,
        born_at=only.born_at,
        last_seen_at=only.last_seen_at,
        pairs=only.pairs,
        monitor=only.monitor,
    )


def _of_several(state: MixtureState, base: PartitionState, partitions: tuple[PartitionState, ...]) -> MixtureState:
    """The state with the sum of the base and of all contributions to it."""
    assert state.prior is not None
    n = base.n_components
    born_at = [_newborn(partition.born_at, partition, n) for partition in partitions]
    last_seen_at = [_newborn(partition.last_seen_at, partition, n) for partition in partitions]
    seen = np.max([partition.last_seen_at[:n] for partition in partitions], axis=0)
    return state._replace(
        stats=summed_stats(state.prior, base, partitions),
        cache=empty_cache(state.prior, state.n_components),
        born_at=np.concatenate([base.born_at[:n], *born_at]),
        last_seen_at=np.concatenate([seen, *last_seen_at]),
        pairs=_summed_pairs(base, partitions),
        monitor=None if base.monitor is None else _summed_monitor(base, partitions),
    )


def _newborn(rows: Any, partition: PartitionState, n: int) -> Any:
    return rows[n : partition.n_components]


def summed_stats(family: AnyFamily, base: PartitionState, partitions: tuple[PartitionState, ...]) -> Any:
    """Statistics of the base and of all contributions to it, then those of the newborn components of each partition."""
    common = slice(0, base.n_components)
    own = take(base.stats, common)
    total = take(partitions[0].stats, common)
    for partition in partitions[1:]:
        total = family.subtract(family.add(total, take(partition.stats, common)), own)
    born = [take(partition.stats, slice(base.n_components, partition.n_components)) for partition in partitions]
    return concatenated(total, *born)


def _summed_pairs(base: PartitionState, partitions: tuple[PartitionState, ...]) -> Array:
    n = base.n_components
    births = [partition.n_components - n for partition in partitions]
    pairs = np.zeros((n + sum(births), n + sum(births)))
    for partition in partitions:
        pairs[:n, :n] += partition.pairs[:n, :n]
    pairs[:n, :n] -= (len(partitions) - 1) * base.pairs[:n, :n]
    np.maximum(pairs, 0.0, out=pairs)
    start = n
    for partition, born in zip(partitions, births, strict=True):
        own = slice(start, start + born)
        pairs[own, own] = partition.pairs[n : n + born, n : n + born]
        pairs[own, :n] = partition.pairs[n : n + born, :n]
        pairs[:n, own] = partition.pairs[:n, n : n + born]
        start += born
    return pairs


def _summed_monitor(base: PartitionState, partitions: tuple[PartitionState, ...]) -> MisfitMonitor:
    """The monitor of all components. Levels are averages over the last points: those of one partition count as if they
    had come after those of the one before. Scores that are still collected are joined as moments are."""
    n = base.n_components
    first, own = _watched(base, 0, n), [_watched(partition, 0, n) for partition in partitions]
    watched = first.spread > 0.0
    level, moments = own[0].level, _moments(own[0])
    for partition, mine in zip(partitions[1:], own[1:], strict=True):
        gained = np.maximum(partition.stats[0][:n] - base.stats[0][:n], 0.0)
        level = mine.level + (1.0 - 1.0 / MISFIT_POINTS) ** gained * (level - first.level)
        moments = _joined_moments(moments, _moments(mine), _moments(first))
    collected, mean, squares = moments
    enough = ~watched & (collected >= COLLECTED_POINTS)
    spread = np.where(enough, np.maximum(np.sqrt(squares / np.maximum(collected, 1.0)), LEAST_SPREAD), 0.0)
    total = MisfitMonitor(
        first.settled_at,
        np.where(watched, first.base, mean),
        np.where(watched, first.spread, spread),
        np.where(watched, level, np.where(enough, 0.0, squares)),
        np.where(watched, first.collected, collected),
    )
    for mine in reversed(own):  # where a partition alone has collected enough, its own; the first one's
        began = ~watched & (mine.spread > 0.0)
        total = MisfitMonitor(
            total.settled_at, *(np.where(began, new, old) for new, old in zip(mine[1:], total[1:], strict=True))
        )
    born = [_watched(partition, n, partition.n_components) for partition in partitions]
    return concatenated(total, *born)


def _watched(partition: PartitionState, start: int, stop: int) -> MisfitMonitor:
    rows: Any = partition.monitor
    return MisfitMonitor(*(field[start:stop] for field in rows))


def _moments(monitor: MisfitMonitor) -> "_Moments":
    """Number, mean and sum of squared deviations of the scores that are collected."""
    return monitor.collected, monitor.base, monitor.level


_Moments = tuple[Array, Array, Array]


def _joined_moments(a: _Moments, b: _Moments, both: _Moments) -> _Moments:
    """Number, mean and sum of squared deviations (K,) of the scores in a or b, `both` being those that are in each."""
    n = a[0] + b[0] - both[0]
    sums = a[0] * a[1] + b[0] * b[1] - both[0] * both[1]
    mean = np.where(n > 0.0, sums / np.maximum(n, 1.0), 0.0)
    squares = sum(sign * (c[2] + c[0] * np.square(c[1] - mean)) for sign, c in ((1.0, a), (1.0, b), (-1.0, both)))
    return n, mean, np.maximum(squares, 0.0)


def _earlier_decayed_inplace(state: MixtureState, within: Round, low: int, high: int) -> MixtureState:
    """The state with the statistics at earlier offsets decayed from offset `low` to `high`."""
    assert state.prior is not None
    n, past, mid = within.base.n_components, state.past, state.mid
    if past is None or mid is None:
        return state
    for _, factor in decays_between(state.settings, state.clock, within.begins_at, low, high):
        if factor < 1.0:
            for kept in (past, mid):
                scale_inplace(state.prior, kept.stats, factor, n)
                between = kept.pairs[:n, :n]
                between *= factor
            past, mid = with_weight_lost(past, factor), with_weight_lost(mid, factor)
    return state._replace(past=past, mid=mid)


def _padded_earlier(state: MixtureState) -> MixtureState:
    """The state with as many rows in the statistics at earlier offsets as there are components."""
    if state.past is None or state.mid is None:
        return state
    kept = [_with_rows(each, state.capacity) for each in (state.past, state.mid)]
    return state._replace(past=kept[0], mid=kept[1])


def _with_rows(kept: Any, rows: int) -> Any:
    stats = type(kept.stats)(*(_resized(field, rows) for field in kept.stats))
    pairs = np.zeros((rows, rows))
    n = min(rows, len(kept.pairs))
    pairs[:n, :n] = kept.pairs[:n, :n]
    return kept._replace(stats=stats, pairs=pairs)


def _resized(array: Any, rows: int) -> Any:
    resized = np.zeros((rows, *array.shape[1:]), dtype=array.dtype)
    n = min(rows, len(array))
    resized[:n] = array[:n]
    return resized


def nearest_across(family: AnyFamily, within: Round, stats: Any, nearest: int) -> tuple[IntArray, IntArray]:
    """Rows (i, j), i < j, of components born in different partitions, each with its nearest ones of the others."""
    n = within.base.n_components
    births = [partition.n_components - n for partition in within.partitions]
    if sum(born > 0 for born in births) < 2:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    where = np.repeat(np.arange(len(births)), births)
    places = family.positions(take(stats, slice(n, n + len(where))))
    norms = np.einsum("kd,kd->k", places, places)
    found = set()
    for row in range(len(where)):
        far = norms - 2.0 * (places @ places[row])
        far[where == where[row]] = np.inf
        for other in np.argsort(far, kind="stable")[:nearest].tolist():
            if where[other] != where[row]:
                found.add((min(row, other), max(row, other)))
    i, j = (n + np.array(sorted(found), dtype=np.int64)).T
    return i, j
