"""One point's responsibilities, from its shares (`families.log_sum_exp_kernel`); and the running pair sums."""

import math
from typing import Any

import numpy as np

from shoal.points.arrays import Array, IntArray
from shoal.runtime.kernels import compiled

NO_PAIRS, ENTROPY, OVERLAP = 0, 1, 2
"""Rules of the running pair sums."""

SMALLEST_OVERLAP = 1e-12
"""Pairs whose smaller responsibility is not above this add nothing to the overlap."""


@compiled()
def place_of(resp: Array, count: int, best: float, active: IntArray) -> Any:
    """The first row whose score is the best, -1 for none."""
    for a in range(count):
        if resp[a] == best:
            return np.int64(active[a])
    return -1


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
