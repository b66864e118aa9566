"""The log-sum-exp of a point's scores over the components that are near it: from scores to responsibilities.

A component whose score is far below the best counts for nothing. Those that a bound proves to be so need no score
(`bounds_kernel`): what comes out is the same, to the bit.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from shoal.families.bounds_kernel import LOWEST, UNIT
from shoal.families.steps_kernel import score_one
from shoal.kernels.math import EXP_RANGE, REORDER, exp_negative
from shoal.kernels.threshold import place_of_largest, places_from
from shoal.points.arrays import Array, IntArray, SingleArray
from shoal.runtime.kernels import compiled

_NONE, _ONE = np.uint64(0), np.uint64(1)


class Terms(NamedTuple):
    """Components as kernels score points by them, and the log mass or log weight that is added to each score."""

    cache: Any
    stats: Any
    constants: Array
    log_mass: Array


@compiled()
def largest_of(score: Array, n: int) -> float:
    """The largest of the first n scores, -inf for none. Four running maxima: each would wait for itself."""
    a = b = c = d = -math.inf
    whole = n - n % 4
    for k in range(0, whole, 4):
        a = score[k] if score[k] > a else a
        b = score[k + 1] if score[k + 1] > b else b
        c = score[k + 2] if score[k + 2] > c else c
        d = score[k + 3] if score[k + 3] > d else d
    for k in range(whole, n):
        a = score[k] if score[k] > a else a
    return max(max(a, b), max(c, d))


@compiled()
def gather_near(score: Array, n: int, least: float, active: IntArray, resp: Array) -> int:
    """Rows whose score is at least `least`, in order, and their scores; how many."""
    count = 0
    for k in range(n):
        active[count] = k
        resp[count] = score[k]
        count += 1 if score[k] >= least else 0
    return count


@compiled()
def rescored(
    terms: Terms,
    x: Array,
    i: int,
    n: int,
    bounded: int,
    cut: float,
    ceiling: SingleArray,
    active: IntArray,
    resp: Array,
    scratch: Array,
) -> tuple[int, float, bool]:
    """Score row i of x by the components that may be within `cut` of the best, and gather them as `gather_near` does.

    Returns how many are near, the best score, and whether exactly one component was scored. Components k < bounded have
    ceilings, those up to n have none. The one with the highest ceiling is scored first: its score excludes most others.
    """
    cache, stats, constants, log_mass = terms
    first = place_of_largest(ceiling, bounded)
    best = log_mass[first] + score_one(cache, stats, constants, x, i, first, scratch)
    least = best - cut
    count = places_from(ceiling, bounded, np.float32(max(least - UNIT * abs(least), LOWEST)), active)
    for k in range(np.uint64(bounded), np.uint64(n)):
        active[count] = k
        count += _ONE
    if count == _ONE:  # `first` itself, whose ceiling is no less than its score
        resp[0] = best
        return 1, best, True
    for a in range(count):  # `first` once more: a branch to spare it would be guessed wrong, which costs more
        k = active[a]
        score = log_mass[k] + score_one(cache, stats, constants, x, i, k, scratch)
        resp[a] = score
        best = score if score > best else best
    least = best - cut
    kept = _NONE
    for a in range(count):
        score = resp[a]
        active[kept], resp[kept] = active[a], score
        kept += _ONE if score >= least else _NONE
    found: Any = np.int64(kept)
    return found, best, False


@compiled(fastmath=REORDER)
def exponentials(resp: Array, count: int, best: float) -> float:
    """Replace scores by exp(score - best); their sum. Most points of clusters that lie apart have one."""
    if count == 1:
        resp[0] = 1.0
        return 1.0
    total = 0.0
    for a in range(count):
        resp[a] = exp_negative(resp[a] - best)
        total += resp[a]
    return total


@compiled()
def parted(gap: float, total: float) -> tuple[float, float, float]:
    """The share of a new component whose score is `gap` above the best of the others, theirs together, whose
    exponentials relative to the best sum to `total`, and exp(log density - the larger of the two scores)."""
    far = exp_negative(-abs(gap))
    if gap > 0.0:
        start, old = 1.0, far * total
    else:
        start, old = (far if gap > -EXP_RANGE else 0.0), total  # `exp_negative` does not reach zero
    return start / (start + old), old / (start + old), start + old
