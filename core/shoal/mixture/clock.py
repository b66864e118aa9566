"""Clock of a stream that forgets by time: the newest time seen, and the offsets at which decays fell.

Weights decay in steps of a 32nd of the half-life, at multiples of such a step since 1970. A step falls before the first
point whose time lies beyond it. From then on it is an offset like any other. So what learns rows again, a warm-up's fit
or the adoption of a refinement, decays at the same places without knowing times.
"""

from typing import NamedTuple

import numpy as np

from shoal.points.arrays import Array, IntArray

STEPS = 32
"""Steps in a half-life."""

MOST_STEPS = 64 * STEPS
"""Most steps of one decay. After 64 half-lives nothing is left anyhow."""

MOST_KEPT = 1_024
"""Decays whose offsets are kept, the last ones. Older rows count as if they were younger than these."""

LATENESS = 2.0
"""Half-lives by which a point may be late without being counted as late."""


class Clock(NamedTuple):
    """The time of a stream, and its decays."""

    now: float
    """Seconds since 1970: the newest time of a point."""
    at: IntArray
    """(M,) ascending: points seen when a decay fell, or falls. It weakens all of these."""
    steps: IntArray
    """(M,) steps of each decay, >= 1."""
    dropped: int
    """Older decays that are no longer kept."""
    done: int
    """Decays that the state has had, the dropped ones included."""
    late: int
    """Points that were later than `LATENESS` half-lives."""

    @property
    def pending(self) -> int | None:
        """Place of the next decay in `at`, or None."""
        place = self.done - self.dropped
        return place if place < len(self.at) else None


def advanced(clock: Clock | None, times: Array, half_life_s: float, points_seen: int) -> tuple[Clock, Array]:
    """The clock after points with times (N,), N >= 1, in seconds since 1970; and by how many seconds each is late (N,).

    The decays that fall among the points are added to those that are kept.
    """
    first = float(times[0]) if clock is None else clock.now
    newest = np.maximum(np.maximum.accumulate(times), first)
    places = np.floor(np.append(first, newest) * (STEPS / half_life_s))
    crossed = np.flatnonzero(np.diff(places) > 0)
    steps = np.minimum(np.diff(places)[crossed], MOST_STEPS).astype(np.int64)
    late = newest - times
    n_late = int(np.count_nonzero(late > LATENESS * half_life_s))
    if clock is None:
        none = np.zeros(0, dtype=np.int64)
        clock = Clock(first, none, none, 0, 0, 0)
    surplus = max(0, min(len(clock.at) - MOST_KEPT, clock.done - clock.dropped))
    at = np.concatenate([clock.at[surplus:], points_seen + crossed])
    kept = Clock(
        float(newest[-1]),
        at.astype(np.int64),
        np.concatenate([clock.steps[surplus:], steps]),
        clock.dropped + surplus,
        clock.done,
        clock.late + n_late,
    )
    return kept, late


def steps_after(clock: Clock | None, offsets: IntArray) -> IntArray:
    """Steps (N,) that a state has decayed by since `offsets` points (N,) were seen: by decays that fell later."""
    if clock is None:
        return np.zeros(len(offsets), dtype=np.int64)
    had = slice(0, clock.done - clock.dropped)
    totals = np.append(0, np.cumsum(clock.steps[had]))
    return np.asarray(totals[-1] - totals[np.searchsorted(clock.at[had], offsets, side="right")])


def offset_before(clock: Clock | None, n_steps: int) -> int:
    """The latest offset of a decay since which, itself included, a state has decayed by `n_steps` steps; -1: none."""
    if clock is None:
        return -1
    had = slice(0, clock.done - clock.dropped)
    since = np.cumsum(clock.steps[had][::-1])
    place = int(np.searchsorted(since, n_steps))
    return int(clock.at[had][::-1][place]) if place < len(since) else -1
