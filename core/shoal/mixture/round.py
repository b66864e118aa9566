"""A round of a stream that several partitions learn: its offsets, and what each partition has made of it so far.

A round is a stretch of the stream between two fixed offsets. Its rows are divided into `partitions` ranges of equal
length, in order. The partition of a range learns its rows from the base, the mixture at the beginning of the round.
At the end of the round the contributions of all partitions are summed. Offsets follow from the settings alone.
"""

from typing import Any, NamedTuple

import numpy as np

from shoal.mixture.clock import STEPS, Clock
from shoal.mixture.settings import StreamSettings
from shoal.mixture.stats_at_offset import MisfitMonitor, decay_step
from shoal.points.arrays import Array, IntArray

ROUND_ROWS = 16_384
"""Most rows of a round. Rounds end at multiples of it, or of less where points are forgotten."""

LEAST_ROUND_ROWS = 1_024
"""A stream whose rounds would be shorter is learnt without: the partitions would wait for one another too often."""

ROUNDS_A_HALF_LIFE = 4
"""A partition does not see what the others learn in the round. Where points are forgotten, that is to be little."""

MOST_DECAY_STEPS = 8
"""A round ends before a decay by time that would make it this many steps of the clock or more: a quarter of a half-life
that is a time."""


class PartitionState(NamedTuple):
    """The mixture of one partition in a round, or the base that all of them begin with. `C` rows are allocated.

    The components of the base come first, in the same order, then those born in the partition.
    """

    stats: Any
    cache: Any
    """The predictive cache; None for the base, and for a partition whose range is complete."""
    born_at: IntArray  # (C,)
    last_seen_at: IntArray  # (C,)
    pairs: Array  # (C, C)
    monitor: MisfitMonitor | None
    n_components: int
    decayed_count: float
    pruned_mass: float
    births_refused: int
    at_capacity: bool
    alarm: int


class Round(NamedTuple):
    """A round that has begun. The state that holds it has the sum of all contributions in its own arrays."""

    begins_at: int
    """Points seen at the beginning."""
    ends_at: int
    """Points seen at the end, unless a decay by time ends it before."""
    next_id: int
    """The id of the first component born in the round."""
    base: PartitionState
    """The mixture at the beginning, with the decays since."""
    partitions: tuple[PartitionState, ...]
    """Those that have begun, in order of their ranges; all but the last are complete and have had the decays since."""

    def first_row(self, partition: int, partitions: int) -> int:
        """Points seen before the first row of a partition's range. A round of fewer rows than partitions has as many
        ranges as rows, the first ones, so that no empty range comes before another."""
        rows = self.ends_at - self.begins_at
        return min(self.begins_at + rows * partition // min(partitions, rows), self.ends_at)


def round_rows(settings: StreamSettings) -> int:
    """Rows of a whole round, a power of two; 0 where the stream is learnt without rounds."""
    if settings.partitions == 1:
        return 0
    most: float = ROUND_ROWS
    if settings.half_life_points is not None:
        most = min(most, settings.half_life_points / ROUNDS_A_HALF_LIFE)
    if settings.window_rows:
        most = min(most, settings.window_step)
    return 1 << int(most).bit_length() - 1 if most >= LEAST_ROUND_ROWS else 0


def rows_before_rounds(points_seen: int, settings: StreamSettings) -> int:
    """Rows to learn before the first that belongs to a round, a large number where there are no rounds. The first rows
    of a stream belong to none: there are few components yet, and many births."""
    return max(ROUND_ROWS - points_seen, 0) if round_rows(settings) else 1 << 61


def next_round_end(points_seen: int, settings: StreamSettings) -> int:
    """Points seen at the end of the round of the next row, where there are rounds: a multiple of `round_rows`, or a
    move of the window, whichever is first."""
    ends = [(points_seen // step + 1) * step for step in (round_rows(settings), settings.window_step) if step]
    return min(ends)


def decays_between(
    settings: StreamSettings, clock: Clock | None, begins_at: int, low: int, high: int
) -> list[tuple[int, float]]:
    """Offset and factor of each decay that a mixture at `high` has had, and one at `low` has not.

    A decay by points falls after the point of its offset, one by time before the next. The base of a round has had all
    decays at its offset, `begins_at`.
    """
    half_life = settings.half_life_points
    if half_life is not None:
        step = decay_step(half_life)
        return [(k * step, 2.0 ** (-step / half_life)) for k in range(low // step + 1, high // step + 1)]
    if clock is None:
        return []
    first = int(np.searchsorted(clock.at, low, side="right" if low == begins_at else "left"))
    last = int(np.searchsorted(clock.at, high, side="left"))
    weights = settings.half_life_s is not None
    return [(int(clock.at[i]), 2.0 ** (-int(clock.steps[i]) / STEPS) if weights else 1.0) for i in range(first, last)]


def ended_by_time(clock: Clock | None, begins_at: int, ends_at: int) -> int:
    """Points seen at which the decays by time end a round, at most `ends_at`."""
    if clock is None:
        return ends_at
    first = int(np.searchsorted(clock.at, begins_at, side="right"))
    over = np.flatnonzero(np.cumsum(clock.steps[first:]) >= MOST_DECAY_STEPS)
    return min(ends_at, int(clock.at[first + over[0]])) if over.size else ends_at
