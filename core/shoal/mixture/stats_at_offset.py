"""Parts of a state that belong to offsets: the next decay and fit, and what refinements need beside the components.

Refinements need statistics at two offsets, a monitor of the fit, and a schedule.

A refinement divides the rows of a window again, so it needs the components without those rows. `StatsAtOffset` is the
statistics of the points up to an offset, under their responsibilities at that time. It is accumulated and never
subtracted, hence positive by construction. It follows every join, prune and decay of the components. The state has two:
`past` at the start of the window, and `mid` half a window later. At multiples of half a window `mid` becomes `past`,
and a copy of the live components becomes `mid` (`next_half_window`). So a window has between half and all of its rows,
and its start is a function of the stream alone.

`MisfitMonitor` compares the predictive density of each component's own points now with that at the last refinement,
or, if there was none, with that of its first points.
"""

from typing import Any, NamedTuple

import numpy as np

from shoal.mixture.settings import StreamSettings
from shoal.points.arrays import Array, BoolArray, IntArray


class StatsAtOffset(NamedTuple):
    """The components at an offset. C rows, as in the state; rows not in use hold zeros.

    The masses and `pruned_mass` sum to `decayed_count`.
    """

    offset: int
    """Points seen when the copy was made."""
    stats: Any
    """The family's statistics of those points, C rows."""
    pairs: Array
    """(C, C) pair entropies of those points."""
    pruned_mass: float
    """Decayed mass of those points that is in no component."""
    decayed_count: float
    """Decayed number of those points."""


class MisfitMonitor(NamedTuple):
    """The fit of each component to its points, C rows; rows not in use hold zeros.

    A component with `spread` is monitored. One without collects scores of its points until there are enough.
    """

    settled_at: IntArray
    """(C,) base offset of the last refinement of the component; 0: it was born in the stream after that."""
    base: Array
    """(C,) mean log predictive density, nats, of its own points at that refinement, or of those collected so far."""
    spread: Array
    """(C,) deviation of these log densities, > 0; 0: not monitored."""
    level: Array
    """(C,) running average of the shortfall of its last points below `base`, in units of `spread`. During collection,
    the sum of squared deviations of the scores."""
    collected: Array
    """(C,) scores collected."""


class RefinementSchedule(NamedTuple):
    """The last refinement of a stream, and conditions for the next."""

    refined_at: int = 0
    """Base offset of the last refinement, adopted or postponed; 0: none."""
    adopted: int = 0
    """Number of adopted refinements."""
    periods: int = 1
    """Half windows to wait before the next periodic refinement, 1..8."""
    misfit_gap: int = 500
    """Points after the last refinement before a misfit may request the next."""
    alarm: int = -1
    """Offset of the first misfit detected since; -1: none."""
    window_from: int = 0
    """Offset at which the window last started empty."""
    restored_at: int = -1
    """Number of the restore from which the state comes; -1: none."""


NEW_SCHEDULE = RefinementSchedule()


def empty_monitor(rows: int) -> MisfitMonitor:
    """A monitor without monitored components."""
    return MisfitMonitor(np.zeros(rows, dtype=np.int64), *(np.zeros(rows) for _ in range(4)))


def stats_at_offset(offset: int, stats: Any, pairs: Array, pruned_mass: float, decayed_count: float) -> StatsAtOffset:
    """The statistics of live components at an offset, as copies."""
    copies = type(stats)(*(field.copy() for field in stats))
    return StatsAtOffset(offset, copies, pairs.copy(), pruned_mass, decayed_count)


def next_half_window(mid_offset: int, settings: StreamSettings) -> int:
    """Offset at which `past` and `mid` next advance: the next multiple of half a window after `mid_offset`."""
    step = settings.window_step
    return (mid_offset // step + 1) * step


def with_weight_lost(kept: StatsAtOffset, factor: float) -> StatsAtOffset:
    """A copy with `pruned_mass` and `decayed_count` times `factor`."""
    offset, stats, pairs, pruned_mass, decayed_count = kept
    return StatsAtOffset(offset, stats, pairs, pruned_mass * factor, decayed_count * factor)


def with_rows_pruned(kept: StatsAtOffset, pruned: BoolArray) -> StatsAtOffset:
    """A copy with the mass of the `pruned` rows (K,) counted as pruned; the rows themselves stay."""
    lost = float(np.sum(kept.stats[0][: pruned.size][pruned]))
    return kept._replace(pruned_mass=kept.pruned_mass + lost)


def decay_step(half_life: float) -> int:
    """Points between two decays: a 32nd of the half-life, so that the error of a weight is at most 2.2 %. At most 2^53,
    which no offset reaches.
    """
    return min(max(1, int(half_life) // 32), 1 << 53)


def next_decay(points_seen: int, half_life: float | None) -> int:
    """The next multiple of the decay step, or -1 without a half-life."""
    if half_life is None:
        return -1
    step = decay_step(half_life)
    return (points_seen // step + 1) * step


def next_refit(points_seen: int, warmup_points: int) -> int:
    """Offset of the next fit of the warm-up buffer: 1, 2, 4, ... and the last at `warmup_points`; -1 after that."""
    if points_seen >= warmup_points:
        return -1
    return min(1 << points_seen.bit_length(), warmup_points)


LONGEST_WARMUP = 8
"""A warm-up of rows that are all equal is prolonged up to so many times the rows that the settings say."""


def next_late_refit(points_seen: int, warmup_points: int) -> int:
    """Offset of the next fit of a prolonged warm-up: 2, 4 or 8 times `warmup_points`; -1 after that.

    There is one only while all rows are equal, so that they say nothing of the scale of those to come.
    """
    n_rows = warmup_points
    while n_rows <= points_seen:
        n_rows *= 2
    return n_rows if n_rows <= LONGEST_WARMUP * warmup_points else -1
