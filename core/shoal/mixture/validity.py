"""Checks of a state read from bytes, whoever wrote it: whether learning can continue from it.

A state that passes must not hang or crash the learner, nor give NaN. Every state that `sequential` can write must pass,
for any data. All checks raise ValueError.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from shoal.families import AnyFamily
from shoal.families.predictive_cache import (
    AnyCache,
    CacheScales,
    UpdatedByRankOne,
    cache_parts,
    cache_rounding,
    empty_cache,
    refresh,
)
from shoal.mixture.clock import MOST_STEPS
from shoal.mixture.round import PartitionState, next_round_end, rows_before_rounds
from shoal.mixture.settings import StreamSettings
from shoal.mixture.state import MixtureState, stats_at_offsets
from shoal.mixture.stats_at_offset import next_decay, next_half_window, next_late_refit, next_refit
from shoal.points.arrays import Array
from shoal.points.rows import SparseRows
from shoal.points.weighted_rows import MOST_WEIGHT, LearntPoints, unweighted

MOST_POINTS = 1 << 52
"""Upper limit of points seen and ids, far below the limit of exact integers in float64: a stream can continue."""

LATEST_CHECK = 1 << 62
"""Upper limit of the offsets of checks, within int64."""

LATEST_TIME = 1e15
"""Upper limit of a time, seconds."""

_BALANCE = 1e-6
"""Relative tolerance of masses against counts. Rounding reaches 1e-15 in 10^4 points, and grows at most linearly."""

DRIFT = 1e-6
"""Relative tolerance of the cache between two renewals (at most 4,096 points); the usual drift is 10^-14."""

_ADDITIVE = ("mean_strength", "dof", "shape", "precision", "half_precision")
"""Fields that are sums of responsibilities: they lose no digits, for any points."""

_LOGS = ("log_det", "sum_log_rate", "log_norm")

_FARTHEST = 1e4
"""Most least deviations that statistics reach without outliers. A point at r deviations costs the others about
2 log10 r digits (see `GaussianCache`), in the cache and in the statistics. Beyond 1e4 the two may differ, and only the
bounds below hold."""


def check_state(state: MixtureState, window: LearntPoints | None) -> None:
    """Raise ValueError unless shapes, dtypes and ranges are those of a state that `assimilate` can go on from."""
    n, d = state.n_components, state.settings.n_features
    require(0 <= state.points_seen < MOST_POINTS, "points seen are negative or too many")
    require(0 <= state.births_refused <= state.points_seen, "more births refused than points seen")
    _check_offsets(state)
    require(n == 0 or state.prior is not None, "components without a prior")
    require(state.prior is not None or not (state.frozen or state.points_seen), "points were learnt without a prior")
    pair_rows = 0 if state.settings.pair_rule == "none" else n
    shapes: list[tuple[str, npt.NDArray[Any], tuple[int, ...]]] = [
        ("location", state.location, (d,)),
        ("scale", state.scale, (d,)),
        ("jitter", state.jitter, (d,)),
        ("pairs", state.pairs, (pair_rows, pair_rows)),
    ]
    check_rows("buffer", state.buffer, (0 if state.frozen else state.points_seen, d), state.settings)
    if window is not None:
        check_rows("window", window, (len(window), d), state.settings)
    shapes += _row_shapes(state, n)
    for name, array, shape in shapes:
        require(array.shape == shape and array.dtype == np.float64, f"{name} has shape {array.shape}, not {shape}")
        require(bool(np.isfinite(array).all()), f"{name} holds a number that is not finite")
    require(bool((state.scale > 0).all()), "scale is not positive")
    require(bool((state.jitter >= 0).all()), "jitter is negative")
    _check_ids(state, n)
    _check_archive(state)
    _check_clock(state)
    _check_watch(state)
    _check_lives(state)
    _check_amounts(state)
    _check_round(state)
    _check_scores(state)
    _check_schedule(state)
    if state.past is not None or state.mid is not None:
        _check_stats_at_offsets(state, n)
    if state.prior is not None and n:
        check_cache(state.prior, state.stats, state.cache)


def check_rows(name: str, given: LearntPoints, shape: tuple[int, int], settings: StreamSettings) -> None:
    """Raise ValueError unless rows of points have this shape and lie in the domain. Weights are checked as they are
    read."""
    rows = unweighted(given)
    values = rows.data if isinstance(rows, SparseRows) else rows
    require(rows.shape == shape and rows.dtype == np.float64, f"{name} has shape {rows.shape}, not {shape}")
    known = np.isfinite(values) | (settings.takes_holes & np.isnan(values))
    require(bool(known.all()), f"{name} holds a number that is not finite")
    settings.domain.check(rows, holes=settings.takes_holes)


def _row_shapes(state: MixtureState, n: int) -> Iterable[tuple[str, npt.NDArray[Any], tuple[int, ...]]]:
    """Name, array and expected shape of every float component-first array."""
    if state.prior is None:
        require(state.lineage.stats is None, "a past without a prior")
        return
    empty = state.prior.empty_stats(1)
    groups = [("stats", state.stats, empty, n), ("cache", state.cache, empty_cache(state.prior, 1), n)]
    if state.lineage.stats is not None:
        n_final = len(state.lineage.stats[0])
        require(0 < n_final <= len(state.lineage.ids), "more final statistics than retired components")
        groups.append(("past.stats", state.lineage.stats, empty, n_final))
    if state.archive is not None:
        groups.append(("archive.stats", state.archive.stats, empty, len(state.archive.ids)))
    for kept in stats_at_offsets(state):
        groups.append(("stats at an offset", kept.stats, empty, n))
        yield "pairs at an offset", kept.pairs, (n, n)
    if state.monitor is not None:
        yield from (
            (f"monitor.{name}", field, (n,)) for name, field in state.monitor._asdict().items() if name != "settled_at"
        )
    for name, rows, template, count in groups:
        for field, like in zip(rows, template, strict=True):
            yield name, field, (count, *like.shape[1:])


def _check_scores(state: MixtureState) -> None:
    """Check that statistics give finite densities. They may be finite and yet of no points, with a negative scatter."""
    probe = np.ones((1, state.location.size))
    archived = None if state.archive is None else state.archive.stats
    others = [kept.stats for kept in stats_at_offsets(state)]
    if state.round is not None:
        others += [partition.stats for partition in (state.round.base, *state.round.partitions)]
    for stats in (state.stats, state.lineage.stats, archived, *others):
        if stats is not None and state.prior is not None:
            with np.errstate(all="ignore"):
                density = state.prior.log_predictive(state.prior.posterior(stats), probe)
            require(bool(np.isfinite(density).all() and (stats[0] >= 0).all()), "statistics are those of no points")


def _check_ids(state: MixtureState, n: int) -> None:
    lineage = state.lineage
    retired = lineage.ids.size
    due = [(n,)] * 3 + [(retired,)] * 4 + [(retired + 1,), (lineage.successors.size,)]
    arrays = [state.ids, state.born_at, state.last_seen_at, *lineage[:-1]]
    for array, shape in zip(arrays, due, strict=True):
        require(
            array.shape == shape and array.dtype == np.int64, f"ids or offsets have shape {array.shape}, not {shape}"
        )
    require(0 <= state.next_id < MOST_POINTS, "next id is out of range")
    every = np.concatenate([state.ids, lineage.ids, lineage.successors])
    require(bool(((every >= 0) & (every < state.next_id)).all()), "an id was never given out")
    require(np.unique(np.concatenate([state.ids, lineage.ids])).size == n + retired, "an id is used twice")
    links = lineage.links
    require(int(links[0]) == 0 and int(links[-1]) == lineage.successors.size, "links do not fit the successors")
    require(bool((np.diff(links) >= 0).all()), "links run backwards")


def _check_clock(state: MixtureState) -> None:
    """Check that decays by time are in order and in the past."""
    clock = state.clock
    if clock is None:
        return
    require(state.settings.clock_step_s is not None, "a clock without a half-life or a window that is a time")
    require(clock.at.shape == clock.steps.shape and clock.at.ndim == 1, "decays have other shapes")
    require(clock.at.dtype == clock.steps.dtype == np.int64, "decays of another kind")
    require(abs(clock.now) < LATEST_TIME and clock.late >= 0 and clock.dropped >= 0, "a clock is out of range")
    require(clock.done == clock.dropped + clock.at.size, "a decay has not fallen")
    require(bool((np.diff(clock.at) > 0).all() and (clock.at >= 0).all()), "decays are not in order")
    require(clock.at.size == 0 or int(clock.at[-1]) < state.points_seen, "a decay lies in the future")
    require(bool(((clock.steps >= 1) & (clock.steps <= MOST_STEPS)).all()), "steps of a decay are out of range")


def _check_watch(state: MixtureState) -> None:
    """Check that a watch has rows of the stream's width and looks in the future."""
    watch = state.watch
    if watch is None:
        return
    d = state.settings.n_features
    require(state.frozen and state.n_components > 0, "a stream is watched before its warm-up ends")
    require(watch.rows.shape == (len(watch.rows), d) and watch.within.shape == (d,), "a watch has other shapes")
    require(watch.rows.dtype == watch.within.dtype == np.float64 and len(watch.rows) > 0, "a watch of another kind")
    require(bool((watch.weights > 0).all() and np.isfinite(watch.weights).all()), "a weight is not positive")
    known = ~np.isnan(watch.rows) if state.settings.takes_holes else slice(None)
    require(bool(np.isfinite(watch.rows[known]).all() and np.isfinite(watch.within).all()), "a watch is not finite")
    require(bool((watch.within > 0).all()), "a variance is not positive")
    require(state.points_seen < watch.next_look < LATEST_CHECK and 0 <= watch.refusals < LATEST_CHECK, "a look is past")


def _check_archive(state: MixtureState) -> None:
    """Check that archived components are retired ones, in order, with ids of their own."""
    archive = state.archive
    if archive is None:
        return
    n = archive.ids.size
    for array in archive[:3]:
        require(array.shape == (n,) and array.dtype == np.int64, f"the archive has shape {array.shape}, not {(n,)}")
    require(0 < n <= state.settings.max_archived, f"the archive holds {n} components")
    known = np.concatenate([state.ids, archive.ids])
    require(bool(((archive.ids >= 0) & (archive.ids < state.next_id)).all()), "an archived id was never given out")
    require(np.unique(known).size == known.size, "an archived id is used twice")
    times = (np.zeros(n), archive.born_at, archive.retired_at, np.full(n, state.points_seen))
    require(all(bool((a <= b).all()) for a, b in pairwise(times)), "times of an archived component run backwards")
    require(bool((np.diff(archive.retired_at) >= 0).all()), "the archive is not in order of retirement")


def _check_offsets(state: MixtureState) -> None:
    """Check that the next offsets are those that settings and points seen determine."""
    seen, settings = state.points_seen, state.settings
    require(state.frozen or settings.learns_prior, "a stream with an explicit prior does not warm up")
    require(seen < state.next_check < LATEST_CHECK, f"next check at {state.next_check}, with {seen} points seen")
    require(state.next_decay == next_decay(seen, settings.half_life_points), f"next decay at {state.next_decay}")
    prolonged = not state.frozen and seen >= settings.warmup_points
    refit = (next_late_refit if prolonged else next_refit)(seen, settings.warmup_points)
    refit = -1 if state.frozen else refit
    require(state.frozen or refit > seen, "a warm-up is longer than the settings say")
    require(state.next_refit == refit, f"next fit of the warm-up at {state.next_refit}, not {refit}")


def _check_lives(state: MixtureState) -> None:
    """Check that components are born, then seen, then retired, and never in the future."""
    past, seen, n = state.lineage, state.points_seen, state.n_components
    for name, times in {
        "live": (state.born_at[:n], state.last_seen_at[:n], np.full(n, seen)),
        "past": (past.born_at, past.last_seen_at, past.retired_at, np.full(past.ids.size, seen)),
    }.items():
        require(bool((times[0] >= 0).all()), f"a {name} component was born before the stream")
        for early, late in pairwise(times):
            require(bool((early <= late).all()), f"times of a {name} component run backwards")


def _check_amounts(state: MixtureState) -> None:
    """Check that masses and pruned mass sum to the decayed count, and that pair sums are possible for the masses."""
    masses = state.stats[0] if state.stats is not None else np.zeros(0)
    count, pruned = state.decayed_count, state.pruned_mass
    require(
        bool(np.isfinite([count, pruned]).all()) and count >= 0 and pruned >= 0, "counts are negative or not finite"
    )
    require(bool((masses > 0).all()), "a component's mass is not positive")
    slack = _BALANCE * max(1.0, count)
    require(abs(float(masses.sum()) + pruned - count) <= slack, "masses and pruned mass are not the decayed count")
    require(count <= MOST_WEIGHT * state.points_seen + slack, "the decayed count exceeds the points seen")
    _check_pairs(state.pairs, masses)


def _check_pairs(pairs: Array, masses: Array) -> None:
    require(bool((pairs >= 0).all() and (pairs == pairs.T).all()), "pair sums are negative or not symmetric")
    require(not pairs.diagonal().any(), "a pair sum of a component with itself")
    if pairs.size:  # E and M are at most (u + v) log 2 for masses u, v
        ceiling = 0.7 * (masses[:, None] + masses[None, :]) + _BALANCE
        require(bool((pairs <= ceiling).all()), "pair sums exceed what the masses allow")


def _check_round(state: MixtureState) -> None:
    """Check that what the partitions of a round have is what the sum of it can come from."""
    within, settings, seen = state.round, state.settings, state.points_seen
    if within is None:
        return
    assert state.prior is not None
    require(rows_before_rounds(within.begins_at, settings) == 0 and state.frozen, "a round where there is none")
    require(within.ends_at == next_round_end(within.begins_at, settings), f"a round ends at {within.ends_at}")
    require(within.begins_at < seen < within.ends_at, "a round that is over, or has not begun")
    n_begun, n = len(within.partitions), within.base.n_components
    first = [within.first_row(p, settings.partitions) for p in range(settings.partitions)]
    require(n_begun == sum(low < seen for low in first), f"{n_begun} partitions have begun")
    births = [partition.n_components - n for partition in within.partitions]
    require(n > 0 and min(births) >= 0 and n + sum(births) == state.n_components, "components are in no partition")
    require(0 <= within.next_id == state.next_id - sum(births), "ids of a round are out of order")
    given_out = within.next_id + np.arange(sum(births))
    require(bool((state.ids[n:] == given_out).all() and (state.ids[:n] < within.next_id).all()), "ids are out of order")
    for partition in (within.base, *within.partitions):
        check_partition(state.prior, partition, seen)
    check_cache(state.prior, within.partitions[-1].stats, within.partitions[-1].cache)


def check_partition(family: AnyFamily, partition: PartitionState, seen: int) -> None:
    """Raise ValueError unless shapes, dtypes and ranges are those of a mixture of a round, with `seen` points seen."""
    n = partition.n_components
    empty = family.empty_stats(1)
    fields = [*zip(partition.stats, empty, strict=True)]
    if partition.cache is not None:
        fields += zip(partition.cache, empty_cache(family, 1), strict=True)
    for field, like in fields:
        require(field.shape == (n, *like.shape[1:]) and field.dtype == np.float64, "a partition has another shape")
        require(bool(np.isfinite(field).all()), "a partition holds a number that is not finite")
    require(partition.pairs.shape == (n, n) and partition.pairs.dtype == np.float64, "pair sums of a partition")
    for times in (partition.born_at, partition.last_seen_at):
        require(times.shape == (n,) and times.dtype == np.int64, "times of a partition have another shape")
        require(bool(((times >= 0) & (times <= seen)).all()), "times of a partition are out of range")
    require(
        -1 <= partition.alarm <= seen and 0 <= partition.births_refused <= seen,
        "counts of a partition are out of range",
    )
    masses, slack = partition.stats[0], _BALANCE * max(1.0, partition.decayed_count)
    require(
        bool(np.isfinite([partition.decayed_count, partition.pruned_mass]).all()),
        "counts of a partition are not finite",
    )
    require(bool((masses > 0).all()) and partition.pruned_mass >= 0, "a component of a partition has no mass")
    require(
        abs(float(masses.sum()) + partition.pruned_mass - partition.decayed_count) <= slack, "masses of a partition"
    )
    _check_pairs(partition.pairs, masses)
    if partition.monitor is not None:
        for name, values in partition.monitor._asdict().items():
            kind = np.int64 if name == "settled_at" else np.float64
            require(values.shape == (n,) and values.dtype == kind, "the monitor of a partition has another shape")
            require(bool(np.isfinite(values).all()), "the monitor of a partition is not finite")
        settled = partition.monitor.settled_at
        require(bool(((settled >= 0) & (settled <= seen)).all()), "a component was settled in the future")


def _check_schedule(state: MixtureState) -> None:
    """Check that no value of the schedule of refinements is in the future."""
    schedule, seen = state.schedule, state.points_seen
    require(0 <= schedule.refined_at <= seen and 0 <= schedule.window_from <= seen, "a refinement lies in the future")
    require(0 <= schedule.adopted <= schedule.refined_at, "more refinements than points")
    require(-1 <= schedule.alarm <= seen and -1 <= schedule.restored_at < LATEST_CHECK, "an alarm lies in the future")
    require(1 <= schedule.periods < LATEST_CHECK and 1 <= schedule.misfit_gap < LATEST_CHECK, "a wait is out of range")


def _check_stats_at_offsets(state: MixtureState, n: int) -> None:
    """Check the statistics at two offsets against each other and the live ones, and the monitor."""
    past, mid, monitor, settings = state.past, state.mid, state.monitor, state.settings
    require(past is not None and mid is not None and monitor is not None and settings.window_rows > 0, "half a window")
    assert past is not None
    assert mid is not None
    assert monitor is not None
    offsets = (state.schedule.window_from, past.offset, mid.offset, state.points_seen)
    require(offsets == tuple(sorted(offsets)), f"statistics are at offsets {offsets}, which do not ascend")
    require(state.points_seen <= next_half_window(mid.offset, settings), "the window was not moved when it was due")
    live = (state.stats[0], state.pruned_mass, state.decayed_count)
    after = 0.0
    for kept in (past, mid):
        masses, count = kept.stats[0], kept.decayed_count
        slack = _BALANCE * max(1.0, state.decayed_count)
        require(
            bool(np.isfinite([count, kept.pruned_mass]).all()) and kept.pruned_mass >= 0,
            "statistics at an offset are not finite",
        )
        require(
            abs(float(masses.sum()) + kept.pruned_mass - count) <= slack,
            "masses at an offset do not sum to their count",
        )
        require(after - slack <= count <= live[2] + slack, "statistics at an offset count more points than there were")
        require(bool((masses <= live[0] + slack).all()), "statistics at an offset hold more than their component")
        _check_pairs(kept.pairs, masses)
        after = count
    settled = monitor.settled_at
    require(settled.shape == (n,) and settled.dtype == np.int64, "monitor.settled_at has another shape")
    require(
        bool(((settled >= 0) & (settled <= state.schedule.refined_at)).all()), "a component was settled in the future"
    )
    require(bool((monitor.spread >= 0).all() and (monitor.collected >= 0).all()), "a spread is negative")
    unwatched = monitor.spread == 0
    require(bool((monitor.level[unwatched] >= 0).all()), "a sum of squares is negative")


def require(condition: bool, what: str) -> None:
    """Raise ValueError unless the condition holds."""
    if not condition:
        raise ValueError(what)


def check_cache(family: AnyFamily, stats: Any, cache: AnyCache) -> None:
    """Raise ValueError unless `cache` (K rows, finite) is, to rounding, the result of `refresh` on `stats`."""
    for own, own_stats, own_cache in cache_parts(family, stats, cache):
        _check_cache(own, own_stats, own_cache)


def _check_cache(family: AnyFamily, stats: Any, cache: AnyCache) -> None:
    if not cache:  # of a family without kernels
        return
    fresh = refresh(family, stats)
    if not hasattr(family, "cache_scales"):
        _check_exact(family, fresh, cache)
        return
    own = cast(UpdatedByRankOne, family)
    with np.errstate(all="ignore"):
        scales = own.cache_scales(fresh)
        plain = _extent(stats, fresh, scales) <= _FARTHEST * scales.resolution
        upright = own.cache_scales(cache).upright
    for name, field, due in zip(cache._fields, cache, fresh, strict=True):
        require(bool(np.isfinite(due).all()), f"statistics give a cache.{name} that is not finite")
        error, size = np.abs(field - due).reshape(len(due), -1), np.abs(due).reshape(len(due), -1)
        if name in _ADDITIVE:
            close = error <= DRIFT * size
        elif name in _LOGS:
            close = error <= np.where(plain, DRIFT, 1.0)[:, None] * (1.0 + size)
        else:
            scale = size.max(axis=1, keepdims=True) + (name == "mean") * scales.resolution[:, None]
            close = ~plain[:, None] | (error <= DRIFT * scale)
        require(bool(close.all()), f"cache.{name} is not that of the statistics")
    require(bool(np.all(upright)), "the cache has a variance that is not positive")


def _check_exact(family: AnyFamily, fresh: Any, cache: Any) -> None:
    """Raise ValueError unless `cache` equals `fresh` to rounding."""
    tolerance = DRIFT + cache_rounding(family, fresh)
    for name, field, due in zip(cache._fields, cache, fresh, strict=True):
        require(bool(np.isfinite(due).all()), f"statistics give a cache.{name} that is not finite")
        error, size = np.abs(field - due).reshape(len(due), -1), np.abs(due).reshape(len(due), -1)
        close = error <= tolerance[:, None] * (1.0 + size)
        if not name.startswith("log_"):  # where no digit is certain, the sign still is
            close &= np.isfinite(tolerance)[:, None] | (np.sign(field) == np.sign(due)).reshape(close.shape)
        require(bool(close.all()), f"cache.{name} is not of the statistics")


def _extent(stats: Any, fresh: AnyCache, scales: CacheScales) -> Any:
    """(K,) largest distance of a component's mean and points from the origin, in standardised units."""
    spread = np.sqrt(np.abs(stats.scatter).reshape(len(stats.mass), -1).max(axis=1) / stats.mass)
    return np.maximum(np.abs(fresh.mean).max(axis=1), spread * scales.scatter_unit)
