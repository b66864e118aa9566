"""What refinement needs a state to remember beside its components: two marks in its past, and a watch over the fit.

A refinement divides the rows of a window anew, so it must know the components without them. A `Mark` is what the
components were made of at an offset: statistics of the points up to there, with the responsibilities that they had
when it was set. It is accumulated and never subtracted, hence positive by construction, and goes along with every
join, prune and decay of the components. The state keeps two, `past` where the window begins and `mid` half a window
later. At multiples of half a window `past` takes over `mid`, and `mid` the live components (`next_mark`): so a window
holds between a half and the whole of its rows, and where it begins is a function of the stream alone.

`Monitor` says how well each component predicts the points that it wins, against how well it did when a refinement last
placed it, or, of one that no refinement has placed, when it was new.
"""

from typing import Any, NamedTuple

import numpy as np

from shoal.mixture.settings import StreamSettings
from shoal.points.arrays import Array, BoolArray, IntArray


class Mark(NamedTuple):
    """The components as of an offset. C rows, as many as the state's; rows not in use hold zeros.

    The masses and `pruned_mass` make up `decayed_count`.
    """

    offset: int
    """Points seen when it was set."""
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


class Course(NamedTuple):
    """Where a stream's refinements stand."""

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


NO_COURSE = Course()


def empty_monitor(rows: int) -> Monitor:
    """No component watched."""
    return Monitor(np.zeros(rows, dtype=np.int64), *(np.zeros(rows) for _ in range(4)))


def mark_of(offset: int, stats: Any, pairs: Array, pruned_mass: float, decayed_count: float) -> Mark:
    """A mark of live components: its arrays are copies."""
    held = type(stats)(*(field.copy() for field in stats))
    return Mark(offset, held, pairs.copy(), pruned_mass, decayed_count)


def next_mark(mid_offset: int, settings: StreamSettings) -> int:
    """Offset at which the marks next move on, given where `mid` stands: the next multiple of half a window."""
    step = settings.window_step
    return (mid_offset // step + 1) * step


def weakened_mark(mark: Mark, factor: float) -> Mark:
    """The mark with the two numbers beside its arrays times `factor`."""
    offset, stats, pairs, pruned_mass, decayed_count = mark
    return Mark(offset, stats, pairs, pruned_mass * factor, decayed_count * factor)


def pruned_mark(mark: Mark, doomed: BoolArray) -> Mark:
    """The mark with the mass of doomed rows (K,) counted as pruned; the rows themselves stay."""
    lost = float(np.sum(mark.stats[0][: doomed.size][doomed]))
    return mark._replace(pruned_mass=mark.pruned_mass + lost)
