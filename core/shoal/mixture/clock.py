"""Clock of a stream that forgets by time: the newest time seen, and the offsets at which decays fell.

Weights decay in steps of a 32nd of the half-life, at multiples of such a step since 1970. A step falls before the first
point whose time lies beyond it. From then on it is an offset like any other. So what learns rows again, a warm-up's fit
or the adoption of a refinement, decays at the same places without knowing times.

A late point belongs to an earlier step. It gets the weight that the points of that step have left, so that the order in
which points come does not matter. Where the newest time is beyond the time at which a point arrived, a clock was wrong,
and the point is late by when it arrived.
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

LATENESS = 2 * STEPS
"""Steps by which a point may be late without being counted as late."""


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
    """Points that were later than `LATENESS` steps."""

    @property
    def pending(self) -> int | None:
        """Place of the next decay in `at`, or None."""
        place = self.done - self.dropped
        return place if place < len(self.at) else None


def advanced(
    clock: Clock | None, times: Array, step_s: float, points_seen: int, arrived: float | None = None
) -> tuple[Clock, IntArray] | None:
    """The clock after points with times (N,), N >= 1, in seconds since 1970; and by how many steps each is late (N,).

    A point without a time (NaN) comes at `arrived`, the time at which the points were accepted, or at the newest time
    where that is later. So does a point with a time after `arrived`: it cannot have happened yet. Neither is late. No
    point is late by more than `arrived` is after its time.
    The decays that fall among the points are added to those that are kept. None while no time is known.
    """
    latest = np.inf if arrived is None else arrived
    now = np.isnan(times) | (times >= latest)
    moments = np.where(now, -np.inf if arrived is None else arrived, times)
    known = moments[np.isfinite(moments)]
    if clock is None and known.size == 0:
        return None
    first = float(known[0]) if clock is None else clock.now
    newest = np.maximum(np.maximum.accumulate(moments), first)
    places = np.floor(np.append(first, newest) / step_s)
    crossed = np.flatnonzero(np.diff(places) > 0)
    steps = np.minimum(np.diff(places)[crossed], MOST_STEPS).astype(np.int64)
    here = np.floor(np.minimum(newest, latest) / step_s)
    late = np.where(now, 0.0, here - np.floor(np.where(now, 0.0, times) / step_s)).astype(np.int64)
    if clock is None:
        clock = new_clock(first)
    moved = clock._replace(
        now=float(newest[-1]),
        at=np.concatenate([clock.at, (points_seen + crossed).astype(np.int64)]),
        steps=np.concatenate([clock.steps, steps]),
        late=clock.late + int(np.count_nonzero(late > LATENESS)),
    )
    return moved, late


def decayed(clock: Clock) -> Clock:
    """The clock of a state that has had the next decay. It drops the oldest ones, however the stream is cut."""
    return trimmed(clock._replace(done=clock.done + 1))


def caught_up(clock: Clock, points_seen: int) -> Clock:
    """The clock of a state that has had all decays that fell before `points_seen`."""
    return clock._replace(done=clock.dropped + int(np.searchsorted(clock.at, points_seen)))


def trimmed(clock: Clock) -> Clock:
    """The clock without the oldest of the decays that it has had, where there are more than are kept."""
    surplus = max(0, clock.done - clock.dropped - MOST_KEPT)
    return clock._replace(at=clock.at[surplus:], steps=clock.steps[surplus:], dropped=clock.dropped + surplus)


def new_clock(now: float, late: int = 0) -> Clock:
    """A clock at a time, without decays."""
    none = np.zeros(0, dtype=np.int64)
    return Clock(now, none, none, 0, 0, late)


def late_again(clock: Clock, times: Array, arrived: Array, offsets: IntArray, step_s: float) -> IntArray:
    """By how many steps points were late (N,) that came as the next ones after `offsets` points (N,).

    times (N,): NaN for the points that `advanced` takes as never late. arrived (N,): as there, infinite where it is not
    known. Among decays that are no longer kept, a point counts as if it had come after them, later by as much as they
    weakened it less.
    """
    arrival = np.minimum(np.floor(clock.now / step_s) - steps_after(clock, offsets), np.floor(arrived / step_s))
    timed = ~np.isnan(times)
    late = np.where(timed, arrival - np.floor(np.where(timed, times, 0.0) / step_s), 0.0)
    return np.asarray(np.maximum(late, 0.0).astype(np.int64))


def weight_left(late: IntArray) -> Array:
    """Share (N,) of the weight that is left to points late by some steps (N,)."""
    return np.asarray(2.0 ** (-late / STEPS))


def falls_at(clock: Clock | None, offset: int) -> bool:
    """Whether the last decay that a state has had fell at this offset."""
    if clock is None or clock.done == clock.dropped:
        return False
    return int(clock.at[clock.done - clock.dropped - 1]) == offset


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
