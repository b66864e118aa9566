"""What refinement needs a state to remember beside its components: statistics at two offsets, a watch over the fit,
and a schedule.

A refinement divides the rows of a window again, so it must know the components without those rows. `StatsAtOffset` is
the statistics of the points up to an offset, with the responsibilities that they had then. It is accumulated and never
subtracted, hence positive by construction, and follows every join, prune and decay of the components. The state keeps
two: `past` where the window begins, and `mid` half a window later. At multiples of half a window `past` becomes `mid`,
and `mid` the live components (`next_half_window`). So a window holds between a half and the whole of its rows, and its
start is a function of the stream alone.

`Monitor` says how well each component predicts the points that it wins, against how well it did when a refinement last
placed it, or, if none has, when it was new.
"""

from typing import Any, NamedTuple

import numpy as np

from shoal.mixture.settings import StreamSettings
from shoal.points.arrays import Array, BoolArray, IntArray


class StatsAtOffset(NamedTuple):
    """The components as of an offset. C rows, as many as the state's; rows not in use hold zeros.

    The masses and `pruned_mass` make up `decayed_count`.
    """

    offset: int
    """Points seen when the copy was made."""
    stats: Any
    """The family's statistics of those points, C rows."""
    pairs: Array
    """(C, C) pair entropies of those points."""
    pruned_mass: float
    """Of those points, the decayed mass in no component."""
    decayed_count: float
    """Of those points, decayed."""


class Monitor(NamedTuple):
    """How each component fits its points, C rows; rows not in use hold zeros.

    A component with `spread` is watched; one without collects the scores of its points, until there are enough.
    """

    settled_at: IntArray
    """(C,) base offset of the refinement that last placed the component; 0: born in the stream since."""
    base: Array
    """(C,) mean log predictive density, nats, of its own points when last placed, or collected so far."""
    spread: Array
    """(C,) deviation of the same, > 0; 0: not watched."""
    level: Array
    """(C,) running average over its last points of the shortfall against `base`, in units of `spread`; collecting,
    the sum of squared deviations of the scores."""
    collected: Array
    """(C,) scores collected."""


class RefinementSchedule(NamedTuple):
    """When the refinements of a stream were made, and when the next may be."""

    refined_at: int = 0
    """Base offset of the last one that was made (adopted, or told to be postponed); 0: none."""
    adopted: int = 0
    """How many were adopted."""
    periods: int = 1
    """Half windows to wait before the next one that falls due by period, 1..8."""
    misfit_gap: int = 500
    """Points to wait after the last one before a misfit may ask for one."""
    alarm: int = -1
    """Offset at which a component was first seen to misfit since; -1: none is."""
    window_from: int = 0
    """Offset at which the window was last begun from nothing."""
    restored_at: int = -1
    """Number of the restore that the state comes from; -1: none."""


NEW_SCHEDULE = RefinementSchedule()


def empty_monitor(rows: int) -> Monitor:
    """No component watched."""
    return Monitor(np.zeros(rows, dtype=np.int64), *(np.zeros(rows) for _ in range(4)))


def stats_at_offset(offset: int, stats: Any, pairs: Array, pruned_mass: float, decayed_count: float) -> StatsAtOffset:
    """The statistics of live components at an offset, as copies."""
    held = type(stats)(*(field.copy() for field in stats))
    return StatsAtOffset(offset, held, pairs.copy(), pruned_mass, decayed_count)


def next_half_window(mid_offset: int, settings: StreamSettings) -> int:
    """Offset at which `past` and `mid` next move on, given where `mid` stands: the next multiple of half a window."""
    step = settings.window_step
    return (mid_offset // step + 1) * step


def with_weight_lost(kept: StatsAtOffset, factor: float) -> StatsAtOffset:
    """The same with the two numbers beside the arrays times `factor`."""
    offset, stats, pairs, pruned_mass, decayed_count = kept
    return StatsAtOffset(offset, stats, pairs, pruned_mass * factor, decayed_count * factor)


def with_rows_pruned(kept: StatsAtOffset, doomed: BoolArray) -> StatsAtOffset:
    """The same with the mass of doomed rows (K,) counted as pruned; the rows themselves stay."""
    lost = float(np.sum(kept.stats[0][: doomed.size][doomed]))
    return kept._replace(pruned_mass=kept.pruned_mass + lost)
