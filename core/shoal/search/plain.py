"""The search in plain NumPy, for every score and every beam: the reference of the kernel, and used where it has none.

The search is best-first. The hypothesis with the best score is removed from the queue, and its next point is put into
each block and into a new one. Entries beyond the beam are dropped, whatever their length (Daume 2007, figure 1; ERRATA
4.10). The first removed hypothesis that holds all points is the answer. With an admissible score and no beam it is the
most probable partition. The queue then grows without bound.
"""

import heapq
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from shoal.families import AnyFamily, concatenated, take
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
    """The result of a search."""

    labels: IntArray  # (N,) in order of appearance
    n_expanded: int
    exhausted: bool
    """Whether the limit of hypotheses was met, after which the search was greedy."""


class Score:
    """A score's estimate of the rest of the log evidence: sums over the later points, fixed beforehand."""

    def __init__(self, suffix: Array) -> None:
        self.suffix = suffix

    def rest(self, family: AnyFamily, x: Points, n: int, stats: Any, grown: Any) -> Array:
        """(K + 1,): the estimate for points n.. if the point before them joins each of K blocks, or a new one.

        `stats` (K rows) is without that point, `grown` (K + 1 rows) has each block with it.
        """
        return np.full(len(grown[0]), self.suffix[n])


class AdmissibleScore(Score):
    """Each later point at its best block, as the block may have grown by then (Daume 2007, eq. 11; ERRATA 4.7, 4.8).

    The next point counts by its exact predictive, point n + r by the cap with r further points, the most it can meet.
    """

    def __init__(self) -> None:
        super().__init__(np.zeros(0))

    def rest(self, family: AnyFamily, x: Points, n: int, stats: Any, grown: Any) -> Array:
        """(K + 1,): an upper bound on the gain of points n.., as in `Score.rest`."""
        n_old, n_left = len(stats[0]), x.shape[0] - n
        if n_left == 0:
            return np.zeros(len(grown[0]))
        rows = concatenated(stats, grown, family.empty_stats(1))
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
    report: Callable[[float, int, int, int], None],
) -> Found:
    """The search over points x (N, D) in order; `beam` and `max_expanded` are whole numbers or infinite.

    `report` is called after every expansion with score, length, blocks, and the number of expansions.
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
        report(-value, len(here.labels), len(here.stats[0]), n_expanded)
        if n_expanded >= max_expanded and not exhausted:
            exhausted, beam = True, 1
            queue = [min(queue, key=lambda entry: (entry[1], entry[0], entry[2]))]  # the longest
        if len(queue) > beam:
            queue = heapq.nsmallest(int(beam), queue)  # sorted, hence a heap


def _children(
    family: AnyFamily, x: Points, log_concentration: float, score: Score, here: Hypothesis
) -> list[tuple[float, Hypothesis]]:
    """The hypotheses with one more point, each with its score."""
    n, k = len(here.labels), len(here.stats[0])
    point = x[n : n + 1]
    rows = concatenated(here.stats, family.empty_stats(1))
    log_p = family.log_predictive(family.posterior(rows), point)[0]
    log_p += np.append(np.log(here.stats[0]), log_concentration)
    grown = family.add(rows, family.suffstats(point, np.ones((1, k + 1))))
    rest = score.rest(family, x, n + 1, here.stats, grown)
    n_left, largest = x.shape[0] - n - 1, int(here.stats[0].max(initial=0.0))
    children = []
    for j in range(k + 1):
        log_joint = here.log_joint + float(log_p[j])
        completion = best_completion(n_left, max(largest, int(grown[0][j])), log_concentration)
        stats = concatenated(take(here.stats, slice(0, j)), take(grown, [j]), take(here.stats, slice(j + 1, None)))
        child = Hypothesis(log_joint, (*here.labels, j), stats)
        children.append((log_joint + completion + float(rest[j]), child))
    return children
