"""The search in plain NumPy, for every score and every beam: what the kernel is held to, and what runs where it does
not.

Best first: the hypothesis of the best score is taken from the queue and its next point put into each block, and into
one of its own; what stands in the queue beyond the beam is forgotten, whatever its length (Daume 2007, figure 1; ERRATA
4.10). The first hypothesis taken that holds all points is the answer. With an admissible score and no beam it is the
most probable partition; the queue then grows without bound.
"""

import heapq
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from shoal.families import AnyFamily, take
from shoal.points.arrays import Array, IntArray
from shoal.points.rows import Points
from shoal.search.caps import log_caps
from shoal.search.objective import best_completion


class Hypothesis(NamedTuple):
    """A partition of the first points."""

    log_joint: float
    """log p(x, partition) of the prefix without the denominator of the prior, nats."""
    labels: tuple[int, ...]
    stats: Any
    """K rows."""


class Found(NamedTuple):
    """What a search ended with."""

    labels: IntArray  # (N,) in order of appearance
    n_expanded: int
    exhausted: bool
    """Whether the limit of hypotheses was met, and the rest done greedily."""


class Score:
    """The rest of the log evidence, as a score has it: by sums over the points to come, fixed beforehand."""

    def __init__(self, suffix: Array) -> None:
        self.suffix = suffix

    def rest(self, family: AnyFamily, x: Points, n: int, stats: Any, grown: Any) -> Array:
        """(K + 1,): what points n.. may add if the point before went to each of K blocks, and to one of its own.

        `stats` (K rows) without that point, `grown` (K + 1 rows) each block with it.
        """
        return np.full(len(grown[0]), self.suffix[n])


class AdmissibleScore(Score):
    """Each point to come at its best block, as it may have grown by then (Daume 2007, eq. 11; ERRATA 4.7, 4.8).

    The next point by its exact predictive, point n + r by the cap with r points more: it may find no more.
    """

    def __init__(self) -> None:
        super().__init__(np.zeros(0))

    def rest(self, family: AnyFamily, x: Points, n: int, stats: Any, grown: Any) -> Array:
        """As above."""
        n_old, n_left = len(stats[0]), x.shape[0] - n
        if n_left == 0:
            return np.zeros(len(grown[0]))
        rows = _stack(stats, grown, family.empty_stats(1))
        value = log_caps(family, rows, x[n:], np.arange(n_left, dtype=np.float64))
        value[0] = family.log_predictive(family.posterior(rows), x[n : n + 1])[0]
        old, after, empty = value[:, :n_old], value[:, n_old:-1], value[:, -1]
        result = np.empty(n_old + 1)
        for k in range(n_old + 1):
            others = np.delete(old, k, axis=1) if k < n_old else old
            best = np.maximum(after[:, k], empty)
            result[k] = np.maximum(best, others.max(axis=1)).sum() if others.size else best.sum()
        return result


def search(
    family: AnyFamily,
    x: Points,
    log_concentration: float,
    score: Score,
    beam: float,
    max_expanded: float,
    told: Callable[[float, int, int, int], None],
) -> Found:
    """The search over points x (N, D) in order; `beam` and `max_expanded` whole or infinite.

    `told`: after every hypothesis taken, its score, length, blocks, and how many there have been.
    """
    n_points = x.shape[0]
    count = itertools.count()
    queue: list[tuple[float, int, int, Hypothesis]] = [
        (-np.inf, 0, next(count), Hypothesis(0.0, (), family.empty_stats(0)))
    ]
    n_expanded, exhausted = 0, False
    while True:
        value, _, _, here = heapq.heappop(queue)
        if len(here.labels) == n_points:
            return Found(np.array(here.labels, dtype=np.int64), n_expanded, exhausted)
        for child_value, child in _children(family, x, log_concentration, score, here):
            heapq.heappush(queue, (-child_value, -len(child.labels), next(count), child))
        n_expanded += 1
        told(-value, len(here.labels), len(here.stats[0]), n_expanded)
        if n_expanded >= max_expanded and not exhausted:
            exhausted, beam = True, 1
            queue = [min(queue, key=lambda entry: (entry[1], entry[0], entry[2]))]  # the longest
        if len(queue) > beam:
            queue = heapq.nsmallest(int(beam), queue)  # sorted, hence a heap


def _children(
    family: AnyFamily, x: Points, log_concentration: float, score: Score, here: Hypothesis
) -> list[tuple[float, Hypothesis]]:
    """The hypotheses with one point more, each with its score."""
    n, k = len(here.labels), len(here.stats[0])
    point = x[n : n + 1]
    rows = _stack(here.stats, family.empty_stats(1))
    log_p = family.log_predictive(family.posterior(rows), point)[0]
    log_p += np.append(np.log(here.stats[0]), log_concentration)
    grown = family.add(rows, family.suffstats(point, np.ones((1, k + 1))))
    rest = score.rest(family, x, n + 1, here.stats, grown)
    n_left, largest = x.shape[0] - n - 1, int(here.stats[0].max(initial=0.0))
    children = []
    for j in range(k + 1):
        log_joint = here.log_joint + float(log_p[j])
        completion = best_completion(n_left, max(largest, int(grown[0][j])), log_concentration)
        stats = _stack(take(here.stats, slice(0, j)), take(grown, [j]), take(here.stats, slice(j + 1, None)))
        child = Hypothesis(log_joint, (*here.labels, j), stats)
        children.append((log_joint + completion + float(rest[j]), child))
    return children


def _stack(*parts: Any) -> Any:
    """Rows of statistics, one below the other."""
    return type(parts[0])(*(np.concatenate(fields) for fields in zip(*parts, strict=True)))
