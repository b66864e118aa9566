"""Dividing the points of one or two components between two anchors, and how probable the division that came out was.

The proposals of split-merge samplers. `divide_pair` works on those points alone, the two anchors first:

* restricted Gibbs scans (Jain and Neal 2004, section 3.2): every other point starts on either side with equal odds;
  scans draw each in turn from its conditional given the rest; the last scan is the proposal, and its density is the
  product of the probabilities of what it drew, from the state that the scans before it launched it from.
* sequential allocation (Dahl 2005): the points, in an order that the caller has drawn, join either side with
  probability proportional to its size times its predictive density; the density is the product of these.

With a `target`, the division that a merge would undo, every draw of the last pass is what the target says, and the
same product is the probability of reaching it.
"""

import math
from typing import Any

import numpy as np

import shoal.families.every_kernel  # noqa: F401 - for its overloads
from shoal.families.steps_kernel import SCRATCH_ROWS, absorb, clear_row, release, score_all
from shoal.kernels.copy_rows import copy_row
from shoal.points.arrays import Array, IntArray
from shoal.runtime.kernels import compiled, kernel

_SPARE = 2


@compiled()
def _take_in(cache: Any, stats: Any, constants: Array, x: Any, i: int, k: int, score: Array, scratch: Array) -> None:
    score_all(cache, stats, constants, x, i, 0, score, scratch)  # leaves in scratch what `absorb` wants of the point
    absorb(cache, stats, constants, x, i, k, 1.0, scratch)


@compiled()
def _take_out(
    cache: Any,
    stats: Any,
    constants: Array,
    empty: Any,
    x: Any,
    i: int,
    k: int,
    labels: IntArray,
    score: Array,
    scratch: Array,
) -> None:
    """Remove point i from side k, which has others: a downdate, or the sum of the others where digits would be lost."""
    if release(cache, stats, constants, x, i, k, scratch):
        return
    clear_row(cache, stats, k, empty)
    for j in range(x.shape[0]):
        if labels[j] == k and j != i:
            _take_in(cache, stats, constants, x, j, k, score, scratch)


@compiled()
def _log_odds(cache: Any, stats: Any, constants: Array, x: Any, i: int, score: Array, scratch: Array) -> float:
    """log of side 1's probability over side 0's for point i, which is in neither."""
    score_all(cache, stats, constants, x, i, 2, score, scratch)
    odds: float = score[1] - score[0] + math.log(stats.mass[1]) - math.log(stats.mass[0])
    return odds


@compiled()
def _log_probability(odds: float, side: int) -> float:
    """log of the probability of a side, given log odds of side 1."""
    against = -odds if side == 1 else odds
    return -math.log1p(math.exp(against)) if against < 0.0 else -against - math.log1p(math.exp(-against))


@compiled()
def _choose(odds: float, uniform: float, target: IntArray, i: int) -> int:
    if target.shape[0] > 0:
        return int(target[i])
    return 1 if math.log(max(uniform, 1e-300)) < _log_probability(odds, 1) else 0


@kernel()
def divide_pair(
    x: Any,
    uniforms: Array,
    target: IntArray,
    n_scans: int,
    sequential: bool,
    empty: Any,
    constants: Array,
    stats: Any,
    cache: Any,
    labels: IntArray,
) -> float:
    """Divide points x (M, D) between the anchors x[0] and x[1]; log of the probability of the result, nats.

    Writes labels (M,), 0 for the side of x[0] and 1 for that of x[1], and rows 0 and 1 of `stats` and `cache`, which
    have three. `uniforms`: ((n_scans + 2) M,) for scans, (M,) for sequential allocation, each in [0, 1). `target`
    (M,) of the same meaning as labels, or (0,): none.
    """
    m = x.shape[0]
    score = np.empty(3)
    scratch = np.empty((SCRATCH_ROWS, x.shape[1]))
    none = target[:0]
    for k in range(2):
        clear_row(cache, stats, k, empty)
        _take_in(cache, stats, constants, x, k, k, score, scratch)
        labels[k] = k
    log_q = 0.0
    if sequential:
        for i in range(2, m):
            odds = _log_odds(cache, stats, constants, x, i, score, scratch)
            side = _choose(odds, uniforms[i], target, i)
            absorb(cache, stats, constants, x, i, side, 1.0, scratch)
            labels[i] = side
            log_q += _log_probability(odds, side)
        return log_q
    for i in range(2, m):
        labels[i] = 1 if uniforms[i] < 0.5 else 0
        _take_in(cache, stats, constants, x, i, labels[i], score, scratch)
    for scan in range(1, n_scans + 2):
        last = scan == n_scans + 1
        for i in range(2, m):
            k = labels[i]
            copy_row(cache, stats, k, _SPARE)
            _take_out(cache, stats, constants, empty, x, i, k, labels, score, scratch)
            odds = _log_odds(cache, stats, constants, x, i, score, scratch)
            side = _choose(odds, uniforms[scan * m + i], target if last else none, i)
            if side == k:
                copy_row(cache, stats, _SPARE, k)
            else:
                absorb(cache, stats, constants, x, i, side, 1.0, scratch)
                labels[i] = side
            if last:
                log_q += _log_probability(odds, side)
    return log_q
