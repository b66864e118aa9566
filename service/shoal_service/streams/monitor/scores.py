"""Predictive scores of a stream: the mean log density of the newest points before they were learnt, and its changes.

Points are grouped in windows of 1,000, counted from the end of the warm-up. So an event falls on the same point in
every replay. Two rules are applied at the end of each window.

- `drift`: the window has 10 blocks of 100 points. Their mean log densities are compared with those of the 20 to 60
  blocks before them, by the exact one-sided test of Mann and Whitney (1947). The event is given when they are so low
  that a stream without change shows it with probability 1e-6: once in a billion points in the mean. The
  points of such a stream are exchangeable; the test needs no more, whatever their distribution. Ranks also keep a few
  absurd points from causing an alarm. After an event the blocks before the window are forgotten, so the next test needs
  10 new ones at least: one change is one event.
- `novelty-rate`: at least the share `novelty_rate` of the window had a novelty over `novelty_threshold`. The next event
  needs a share below half of that in between.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from math import comb
from typing import Any, NamedTuple

import numpy as np

from shoal.points.arrays import Array

WINDOW, BLOCK = 1_000, 100
"""Points of a window, and of a block. The predictive score is the mean over as many points as a window has."""
LEAST_REFERENCE, MOST_REFERENCE = 20, 60
"""Blocks that those of the window are compared with."""
FALSE_ALARM = 1e-6
"""Largest probability that one test gives an event although nothing has changed."""
_LARGEST = 1e6
"""Log densities are cut to this many nats on either side, so that one point cannot hide all others in a mean."""
_BLOCKS = np.arange(0, WINDOW, BLOCK)


class Scores(NamedTuple):
    """Past scores that the rules need."""

    earlier: Array
    """(P,) log densities of the points before the open window, at most `WINDOW`."""
    log_density: Array
    """(WINDOW,) log densities of the points of the open window."""
    novelty: Array
    """(WINDOW,) their novelties."""
    n_open: int
    """Points of the open window so far."""
    live: bool
    """Whether the points of the open window count for events: the warm-up is over."""
    blocks: tuple[float, ...]
    """Mean log densities of the newest blocks, oldest first."""
    novel_share: float
    """Share of novel points in the window before."""
    armed: bool
    """Whether a high share of novel points is an event."""


class ScoreEvent(NamedTuple):
    """One event of the scores."""

    kind: str
    """`drift` or `novelty-rate`."""
    n_points: int
    """Points of the batch up to and including the one that completed the window."""
    before: float
    after: float
    """`drift`: mean log density of the blocks before, and of the window. `novelty-rate`: share of novel points in the
    window before, and in this one."""


def new_scores() -> Scores:
    """The scores of a stream without points."""
    return Scores(np.zeros(0), np.zeros(WINDOW), np.zeros(WINDOW), 0, False, (), 0.0, False)


def predictive_score(scores: Scores) -> tuple[float | None, int]:
    """Mean log density of the newest points before they were learnt, in nats, and their number. None without points."""
    newest = _cut(np.concatenate([scores.earlier, scores.log_density[: scores.n_open]])[-WINDOW:])
    return (float(newest.mean()) if len(newest) else None), len(newest)


def add_points_inplace(
    scores: Scores, log_density: Array, novelty: Array, *, live: bool, threshold: float, level: float
) -> tuple[Scores, list[ScoreEvent]]:
    """Add points in order: log densities (N,) in nats and novelties (N,), as they were before each was learnt.

    Points without a log density, before there was a prior, are left out. `live`: the warm-up was over before these
    points. `threshold` and `level`: the settings `novelty_threshold` and `novelty_rate`. Writes into the arrays of
    `scores`.
    """
    if not live:
        known = ~np.isnan(log_density)
        log_density, novelty = log_density[known], novelty[known]
    elif not scores.live:
        earlier = np.concatenate([scores.earlier, scores.log_density[: scores.n_open]])[-WINDOW:]
        scores = scores._replace(earlier=earlier, n_open=0, live=True)
    events: list[ScoreEvent] = []
    start, n, n_open = 0, len(log_density), scores.n_open
    while start < n:
        stop = min(n, start + WINDOW - n_open)
        end = n_open + stop - start
        scores.log_density[n_open:end] = log_density[start:stop]
        scores.novelty[n_open:end] = novelty[start:stop]
        start, n_open = stop, end
        if n_open == WINDOW:
            scores, found = _after_window(scores, threshold, level)
            events += [ScoreEvent(kind, stop, *change) for kind, change in found]
            n_open = 0
    return scores._replace(n_open=n_open), events


def _after_window(
    scores: Scores, threshold: float, level: float
) -> tuple[Scores, list[tuple[str, tuple[float, float]]]]:
    """Apply the rules to a full window, and begin the next one."""
    _, x, novelty, _, live, blocks, share, armed = scores
    events: list[tuple[str, tuple[float, float]]] = []
    if live:
        means = (np.add.reduceat(_cut(x), _BLOCKS) / BLOCK).tolist()
        if _is_lower(means, blocks):
            events.append(("drift", (_mean(blocks), _mean(means))))
            blocks = ()
        blocks = (*blocks, *means)[-MOST_REFERENCE:]
        before, share = share, int(np.count_nonzero(novelty > threshold)) / WINDOW
        if armed and share >= level:
            events.append(("novelty-rate", (before, share)))
        armed = share < level and (armed or share < level / 2)
    return Scores(x, np.zeros(WINDOW), novelty, 0, live, blocks, share, armed), events


def _cut(log_density: Array) -> Array:
    """Log densities within the limits. NaN becomes the lowest."""
    if len(log_density) and log_density.min() >= -_LARGEST and log_density.max() <= _LARGEST:
        return log_density
    cut: Array = np.fmin(np.fmax(log_density, -_LARGEST), _LARGEST)
    return cut


def _is_lower(blocks: Sequence[float], earlier: Sequence[float]) -> bool:
    """Whether the blocks are lower than earlier ones, by the test of Mann and Whitney."""
    if len(earlier) < LEAST_REFERENCE:
        return False
    reference = sorted(earlier)
    most = 2 * critical_value(len(reference), len(blocks), FALSE_ALARM)
    twice_u = 0
    for block in blocks:
        twice_u += bisect_left(reference, block) + bisect_right(reference, block)  # a tie counts half
        if twice_u > most:
            return False
    return True


@lru_cache(128)
def critical_value(n: int, m: int, probability: float) -> int:
    """Return the largest u with P(U <= u) <= `probability`, or -1 when there is none. n, m >= 1.

    U counts the pairs in which one of m values exceeds one of n, all exchangeable and without ties. The number of
    arrangements with U = u is the coefficient of q^u in the Gaussian binomial coefficient (n + m over m).
    """
    counts = [1] + [0] * (n * m)
    for i in range(1, m + 1):
        for u in range(n * m, n + i - 1, -1):  # times 1 - q^(n + i)
            counts[u] -= counts[u - n - i]
        for u in range(i, n * m + 1):  # divided by 1 - q^i
            counts[u] += counts[u - i]
    total, most = 0, probability * comb(n + m, m)
    for u, count in enumerate(counts):
        total += count
        if total > most:
            return u - 1
    return n * m


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def scores_to_plain(scores: Scores) -> list[Any]:
    """Convert to plain values, exactly."""
    opened = (scores.log_density[: scores.n_open], scores.novelty[: scores.n_open])
    return [*(array.tobytes() for array in (scores.earlier, *opened)), *scores[4:]]


def scores_from_plain(values: list[Any]) -> Scores:
    """Inverse of `scores_to_plain`."""
    earlier, *opened = (np.frombuffer(part) for part in values[:3])
    live, blocks, share, armed = values[3:]
    scores = new_scores()._replace(
        earlier=earlier, n_open=len(opened[0]), live=live, blocks=tuple(blocks), novel_share=share, armed=armed
    )
    scores.log_density[: scores.n_open], scores.novelty[: scores.n_open] = opened
    return scores
