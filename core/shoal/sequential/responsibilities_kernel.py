"""One point's responsibilities, from the scores of the components that are near it; and the running pair sums."""

import math
from typing import Any

import numpy as np

from shoal._numba import compiled
from shoal.arrays import Array, IntArray
from shoal.families.math_kernel import EXP_RANGE, REORDER, exp_negative

NO_PAIRS, ENTROPY, OVERLAP = 0, 1, 2
"""Rules of the running pair sums."""

SMALLEST_OVERLAP = 1e-12
"""Pairs whose smaller responsibility is not above this add nothing to the overlap."""


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
def place_of(resp: Array, count: int, best: float, active: IntArray) -> Any:
    """The first row whose score is the best, -1 for none."""
    for a in range(count):
        if resp[a] == best:
            return np.int64(active[a])
    return -1


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


@compiled()
def gather_kept(count: int, share: float, floor: float, born: bool, active: IntArray, resp: Array) -> int:
    """Keep the rows whose responsibility, share * resp, reaches the floor, in order; how many.

    The largest (resp 1) is kept in any case, unless the point founds a component, which takes its place.
    """
    kept = 0
    for a in range(count):
        r = resp[a]
        active[kept], resp[kept] = active[a], r * share
        kept += 1 if r * share >= floor or (r == 1.0 and not born) else 0
    return kept


@compiled()
def normalise(resp: Array, count: int) -> None:
    """Make the first `count` > 0 sum to one."""
    if count == 1:
        resp[0] = 1.0
        return
    total = 0.0
    for a in range(count):
        total += resp[a]
    for a in range(count):
        resp[a] /= total


@compiled()
def clear_pairs(pairs: Array, k: int) -> None:
    """No sums for component k, those before it being in use."""
    for j in range(k + 1):
        pairs[k, j] = 0.0
        pairs[j, k] = 0.0


@compiled()
def add_pairs(pairs: Array, rule: int, active: IntArray, resp: Array, count: int) -> None:
    """Add one point to the pair sums of its active components, both triangles.

    entropy: -[a log(a/(a+b)) + b log(b/(a+b))] = (a + b) log1p(s/l) - s log(s/l) with s <= l of a, b: no
    cancellation, never < 0. overlap: min(a, b).
    """
    for p in range(count):
        for q in range(p):
            small = min(resp[p], resp[q])
            large = max(resp[p], resp[q])
            if rule == ENTROPY:
                ratio = small / large
                amount = (small + large) * math.log1p(ratio) - small * math.log(ratio)
            else:
                amount = small if small > SMALLEST_OVERLAP else 0.0
            pairs[active[p], active[q]] += amount
            pairs[active[q], active[p]] += amount
