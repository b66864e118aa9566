"""State of a stream's mixture as data: all inputs of the next step, and small pure functions over them.

Row k of every component-first array belongs to component k. Arrays have `capacity` rows, of which the first
`n_components` are in use; the other rows hold zeros. The order of rows has no meaning, but moves keep it.
"""

import math
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.errors import SettingError
from shoal.families import AnyFamily
from shoal.mixture.archive import Archive, archive_budget_bytes, archive_bytes
from shoal.mixture.clock import MOST_STEPS, STEPS, Clock, falls_at, offset_before, steps_after, weight_left
from shoal.mixture.lineage import Lineage, lineage_budget_bytes
from shoal.mixture.round import PartitionState, Round
from shoal.mixture.settings import StreamSettings
from shoal.mixture.stats_at_offset import (
    NEW_SCHEDULE,
    MisfitMonitor,
    RefinementSchedule,
    StatsAtOffset,
    decay_step,
    empty_monitor,
    next_half_window,
    stats_at_offset,
)
from shoal.points.arrays import Array, BoolArray, IntArray
from shoal.points.rows import rows_bytes
from shoal.points.weighted_rows import LearntPoints, unweighted

MOST_KEPT = 1 << 20
"""Most rows that a watch can hold."""


class ScaleWatch(NamedTuple):
    """What shows a change of scale: recent rows, and the variance within components when the prior was chosen."""

    rows: Array
    """(R, D) raw rows, those of the stretch of R points before `next_look`; later ones of them are not written yet."""
    weights: Array
    """(R,) their weights."""
    within: Array
    """(D,) > 0, pooled variance within components when the prior was chosen, in the units of the points."""
    next_look: int
    """Points seen at the next look."""
    refusals: int
    """Suspicions in a row that were not confirmed."""

    def n_kept(self, points_seen: int) -> int:
        """Rows that are written."""
        return min(max(points_seen - self.next_look + len(self.rows), 0), len(self.rows))


Status = Literal["warming_up", "live"]


class MixtureState(NamedTuple):
    """State of one stream. `C` is the capacity (rows allocated), `K = n_components` the rows in use, `D` the features.

    Invariant: the sum of masses plus `pruned_mass` equals `decayed_count`.
    """

    settings: StreamSettings
    prior: AnyFamily | None
    """The family with its prior, on standardised points; None until the first fit of a warm-up."""
    frozen: bool
    """Whether prior, location and scale are final: from the start with an explicit prior, else once warm-up ends."""
    location: Array
    """(D,) subtracted from raw points."""
    scale: Array
    """(D,) > 0, by which they are then divided."""
    jitter: Array
    """(D,) >= 0, deviation of the noise added to raw points before learning: a floor for variances of tied features."""
    stats: Any
    """The family's statistics, C rows, of standardised points; None while `prior` is None."""
    cache: Any
    """The predictive cache of the components, C rows, for kernels and snapshots; None while `prior` is None. It is part
    of the state so that results do not depend on how the stream is cut."""
    ids: IntArray
    """(C,) stable ids, below 2^53, never given to another cluster."""
    born_at: IntArray
    """(C,) points seen at birth, the founding point included."""
    last_seen_at: IntArray
    """(C,) points seen when a point was last assigned to the component, that point included."""
    pairs: Array
    """(C, C) symmetric running pair sums, diagonal 0: E under rule `entropy`, M under `overlap`; (0, 0) under
    `none`."""
    n_components: int
    next_id: int
    points_seen: int
    """Points learnt, without decay."""
    decayed_count: float
    pruned_mass: float
    """Decayed mass of components that were pruned."""
    at_capacity: bool
    """Whether the event `capacity` was emitted since the last time with room for a birth."""
    births_refused: int
    next_check: int
    """Offset (points seen) of the next check for prunes and merges."""
    next_decay: int
    """Offset of the next decay; -1 without a half-life."""
    next_refit: int
    """Offset of the next provisional fit of the warm-up buffer; -1 once frozen."""
    buffer: LearntPoints
    """(B, D) raw warm-up rows, the first `points_seen` in use; (0, D) once frozen."""
    lineage: Lineage
    """The components that are no longer live."""
    past: StatsAtOffset | None = None
    """The components without the rows of the window, (past.offset, points_seen]; None without a window, and while
    `prior` is None."""
    mid: StatsAtOffset | None = None
    """The same at a later offset, which later becomes `past`; None where `past` is None."""
    monitor: MisfitMonitor | None = None
    """The fit of each component, C rows; None where `past` is None."""
    schedule: RefinementSchedule = NEW_SCHEDULE
    """The schedule of refinements."""
    archive: Archive | None = None
    """Components that forgetting retired and that may return; None while there are none."""
    clock: Clock | None = None
    """The time of the stream; None before the first time, and where forgetting is not by time."""
    watch: ScaleWatch | None = None
    """The watch over the scale of points; None where a stream is not watched."""
    round: Round | None = None
    """The round in which partitions learn; None between rounds, and where there are none. Whatever changes the
    components otherwise than by learning sets it to None: the next row then begins another round."""

    @property
    def capacity(self) -> int:
        """Rows allocated, C."""
        return int(self.ids.shape[0])

    @property
    def status(self) -> Status:
        """`warming_up` until the prior is frozen, then `live`."""
        return "live" if self.frozen else "warming_up"

    @property
    def live_ids(self) -> IntArray:
        """(K,) ids of the rows in use (a view)."""
        return self.ids[: self.n_components]


def live_rows(rows: Any, n: int) -> Any:
    """The first n rows (views) of a NamedTuple of component-first arrays, or None for None."""
    return None if rows is None else type(rows)(*(field[:n] for field in rows))


def grow(state: MixtureState, capacity: int) -> MixtureState:
    """The state with at least `capacity` rows, the new ones zeros; all component-first arrays are copied if need be."""
    if capacity <= state.capacity:
        return state
    return state._replace(
        stats=_padded(state.stats, capacity),
        cache=_padded(state.cache, capacity),
        ids=_longer(state.ids, capacity),
        born_at=_longer(state.born_at, capacity),
        last_seen_at=_longer(state.last_seen_at, capacity),
        pairs=state.pairs if state.settings.pair_rule == "none" else _wider(state.pairs, capacity),
        past=_padded_stats_at_offset(state.past, capacity),
        mid=_padded_stats_at_offset(state.mid, capacity),
        monitor=_padded(state.monitor, capacity),
    )


def next_capacity(n_components: int, limit: int) -> int:
    """Rows to allocate for n components: one more than there are (the kernel's empty row), doubling up to limit + 1."""
    return max(n_components, min(max(8, 1 << int(n_components).bit_length()), limit)) + 1


def compact_inplace(state: MixtureState, keep: BoolArray) -> MixtureState:
    """Drop the rows in use where `keep` (K,) is False, in the arrays of `state`; the others move up in order."""
    n = state.n_components
    rows = np.flatnonzero(keep[:n])
    if rows.size == n:
        return state
    for array in _row_arrays(state):
        array[: rows.size] = array[rows]
        array[rows.size : n] = 0
    for pairs in _pair_arrays(state):
        if pairs.shape[0]:
            pairs[: rows.size, : rows.size] = pairs[np.ix_(rows, rows)]
            pairs[rows.size : n, :n] = 0.0
            pairs[:n, rows.size : n] = 0.0
    return state._replace(n_components=int(rows.size))


def component_bytes(stats: Any, cache: Any, *, windowed: bool, partitions: int = 1) -> int:
    """Bytes of one component's row in all component-first arrays, without pair sums.

    With a window there are three rows of statistics: the live ones and those at two offsets. With several partitions
    there are those of the base of a round, and of each partition.
    """
    mixtures = 1 if partitions == 1 else 2 + partitions
    of_stats, of_cache = (sum(f.itemsize * math.prod(f.shape[1:]) for f in fields) for fields in (stats, cache))
    per_row: int = of_stats * (mixtures + (2 if windowed else 0)) + of_cache * mixtures
    return per_row + 8 * (3 + (len(MisfitMonitor._fields) if windowed else 0)) * mixtures


def state_bytes(state: MixtureState) -> int:
    """Bytes of the state's arrays as allocated."""
    return sum(array.nbytes for array in _row_arrays(state)) + _fixed_arrays_bytes(state)


def component_limit(settings: StreamSettings, row_bytes: int) -> int:
    """Most components that `max_components` and `max_state_bytes` allow, >= 1, given `component_bytes`.

    It counts K + 1 rows (one is the kernel's empty component), their pair sums, the warm-up buffer and the budgets of
    lineage, archive and names of levels. While arrays grow, old and new ones exist together for a moment, which is not
    counted. Raises SettingError when not even one component fits.
    """
    buffered = 0 if not settings.learns_prior else 8 * settings.warmup_points * settings.n_features
    spare = settings.max_state_bytes - lineage_budget_bytes(settings) - buffered - 24 * settings.n_features
    spare -= archive_budget_bytes(settings) + settings.level_names_budget_bytes
    pair_bytes = 0 if settings.pair_rule == "none" else 24 if settings.window_rows else 8
    pair_bytes += 0 if settings.partitions == 1 else 8 * (1 + settings.partitions)
    if spare < 2 * row_bytes + 4 * pair_bytes:
        needed = settings.max_state_bytes - spare + 2 * row_bytes + 4 * pair_bytes
        raise SettingError(
            f"max_state_bytes is {settings.max_state_bytes:,}, one component of {settings.n_features} features needs "
            f"about {needed:,}; raise it, or lower warmup_points"
        )
    rows = _largest_rows(spare, row_bytes, pair_bytes)
    return min(settings.max_components, rows - 1)


@lru_cache(maxsize=64)
def _largest_rows(spare: int, row_bytes: int, pair_bytes: int) -> int:
    """Largest r with r * row_bytes + r^2 * pair_bytes <= spare."""
    low, high = 2, max(2, spare // max(row_bytes, 1))
    while low < high:
        middle = (low + high + 1) // 2
        if middle * (row_bytes + middle * pair_bytes) <= spare:
            low = middle
        else:
            high = middle - 1
    return low


def left_since(state: MixtureState, offsets: IntArray) -> Array:
    """Share (N,) of a weight that the decays since `offsets` points (N,) were seen have left; 1 without a half-life."""
    half_life = state.settings.half_life_points
    if state.settings.half_life is None:
        return np.ones(len(offsets))
    if half_life is None:
        return weight_left(np.minimum(steps_after(state.clock, offsets), MOST_STEPS))
    step = decay_step(half_life)
    return np.asarray(2.0 ** (-(step / half_life) * (state.points_seen // step - offsets // step)))


def half_lives_ago(state: MixtureState, n: int) -> float:
    """Points seen n half-lives ago; below 0 where the stream is younger."""
    half_life = state.settings.half_life_points
    if half_life is not None:
        return state.points_seen - n * half_life
    return float(offset_before(state.clock, n * STEPS))


def stats_at_offsets(state: MixtureState) -> list[StatsAtOffset]:
    """The statistics at offsets that the state keeps: none, or `past` and `mid`."""
    return [kept for kept in (state.past, state.mid) if kept is not None]


def with_new_window(state: MixtureState) -> MixtureState:
    """The state with an empty window from `points_seen`; without a window where the settings keep none.

    All statistics then belong to the past. The other arrays are shared with `state`.
    """
    schedule = state.schedule._replace(window_from=state.points_seen)
    if state.settings.window_rows == 0 or state.prior is None:
        return state._replace(past=None, mid=None, monitor=None, schedule=schedule, round=None)
    monitor = empty_monitor(state.capacity) if state.monitor is None else state.monitor
    past, mid = (
        stats_at_offset(state.points_seen, state.stats, state.pairs, state.pruned_mass, state.decayed_count)
        for _ in range(2)
    )
    return state._replace(past=past, mid=mid, monitor=monitor, schedule=schedule, round=None)


def with_window_moved(state: MixtureState) -> MixtureState:
    """The state with `past` and `mid` advanced, if that is due at `points_seen`.

    It is due after the last row of half a window, and done before the next row. So a refinement in between has the
    fullest window. By time, it is due before the first row of a later half. Where a silence was longer than the window,
    no row of before stays in it.
    """
    if state.mid is None:
        return state
    age = _age_of(state.mid, state)
    if state.points_seen < next_half_window(state.mid.offset, state.settings) and age < 0.5:
        return state
    past, live = (
        stats_at_offset(state.points_seen, state.stats, state.pairs, state.pruned_mass, state.decayed_count)
        for _ in range(2)
    )
    return state._replace(past=state.mid if age < 1.0 else past, mid=live)


def _age_of(kept: StatsAtOffset, state: MixtureState) -> float:
    """The age of the statistics in windows, by time. 0 where the window has any age, and while it has few rows.

    Looked at only where a step of the clock falls, so that the result does not depend on how the stream is cut.
    """
    steps, settings = state.settings.window_steps, state.settings
    few = 0 if settings.window_age is not None else settings.warmup_points // 2
    if steps is None or state.points_seen - kept.offset <= few or not falls_at(state.clock, state.points_seen):
        return 0.0
    return float(steps_after(state.clock, np.array([kept.offset]))[0]) / steps


def _row_arrays(state: MixtureState) -> list[npt.NDArray[Any]]:
    groups = [state.stats, state.cache, state.monitor, *(kept.stats for kept in stats_at_offsets(state))]
    fields = [field for group in groups if group is not None for field in group]
    return [*fields, state.ids, state.born_at, state.last_seen_at]


def _pair_arrays(state: MixtureState) -> list[Array]:
    return [state.pairs, *(kept.pairs for kept in stats_at_offsets(state))]


def _fixed_arrays_bytes(state: MixtureState) -> int:
    retired = sum(array.nbytes for array in state.lineage.arrays()) + archive_bytes(state.archive)
    retired += (
        0 if state.watch is None else state.watch.rows.nbytes + state.watch.weights.nbytes + state.watch.within.nbytes
    )
    if state.round is not None:
        retired += sum(map(_partition_bytes, (state.round.base, *state.round.partitions)))
    pairs = sum(array.nbytes for array in _pair_arrays(state))
    return pairs + rows_bytes(unweighted(state.buffer)) + 3 * state.scale.nbytes + retired


def _partition_bytes(own: PartitionState) -> int:
    fields = (*own.stats, *(own.cache or ()), own.born_at, own.last_seen_at, own.pairs, *(own.monitor or ()))
    return sum(int(field.nbytes) for field in fields)


def _longer(array: npt.NDArray[Any], rows: int) -> npt.NDArray[Any]:
    longer = np.zeros((rows, *array.shape[1:]), dtype=array.dtype)
    longer[: array.shape[0]] = array
    return longer


def _padded(rows: Any, capacity: int) -> Any:
    return None if rows is None else type(rows)(*(_longer(field, capacity) for field in rows))


def _wider(pairs: Array, capacity: int) -> Array:
    wider = np.zeros((capacity, capacity))
    wider[: len(pairs), : len(pairs)] = pairs
    return wider


def _padded_stats_at_offset(kept: StatsAtOffset | None, capacity: int) -> StatsAtOffset | None:
    if kept is None:
        return None
    return kept._replace(stats=_padded(kept.stats, capacity), pairs=_wider(kept.pairs, capacity))
