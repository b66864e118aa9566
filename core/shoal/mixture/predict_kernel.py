"""Predictions of a mixture for points, compiled once for each form of the predictive cache; see `MixtureSnapshot`.

The log predictive density (Lin 2013, eq. 12; ERRATA 5.19) and the shares of its terms. Components whose terms are so
far below the largest of theirs (`cut_of`) that all of them together are lost in its rounding count for nothing; those
that a bound proves to be so are not scored.
What is said of a point depends on that point alone, to the bit: bounds are worked out for a block of points, but
decide only what is left unscored.
"""

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np

import shoal.families.every_kernel  # noqa: F401 - for its overloads
from shoal.families.bounds_kernel import FEWEST_BOUNDED
from shoal.families.log_sum_exp_kernel import Terms, exponentials, gather_near, largest_of, parted, rescored
from shoal.families.steps_kernel import LIMIT_ROWS, SCRATCH_ROWS, ceilings, freeze, lift, limit, score_all, score_one
from shoal.kernels.math import log_positive
from shoal.kernels.threshold import BLOCK, fill_up
from shoal.points.arrays import Array, IntArray, SingleArray
from shoal.runtime.kernels import compiled, kernel

ROUNDING = 37.0
"""Nats: exp(-37) is 9e-17."""

SHORTEST_BLOCK, LONGEST_BLOCK, MOST_BOUNDS = 16, 1_024, 1 << 19
"""Points that bounds are worked out for at a time: at least, or they are not worth it; at most; and at most so many
points x components of more than the least, which bounds the memory."""

PROBED, CROWDED = 32, 0.5
"""Where of the first points, or of the last block, more than this share of the components is near, the next block goes
without bounds: they would rule little out, and cost more."""

LEAST_SHARE = 1e-300
"""Smaller responsibilities are given as 0: `exponentials` do not reach it."""


@compiled()
def cut_of(n: int) -> float:
    """Nats below the largest of n > 0 terms from where on a term counts for nothing."""
    return ROUNDING + math.log(n)


Memory: TypeAlias = tuple[Array, SingleArray]
"""What the arrays of `Scratch` are parts of: numbers in double and in single precision."""

_DOUBLES, _SINGLES = 5, LIMIT_ROWS + 1
"""Arrays of a number a component, in double and in single precision."""


class Scratch(NamedTuple):
    """What the kernel writes for itself. Arrays of K numbers have room for more."""

    score: Array  # (K + 1,)
    share: Array  # (K,)
    active: IntArray  # (K + 1,)
    ceiling: SingleArray  # (K,) and the rest of its last block
    limits: SingleArray  # (LIMIT_ROWS, K)
    bounds: SingleArray  # (rows of the longest block, K)
    loosened: Array  # (2, K) what `limit` reads of components that have not changed: drift and shrink
    step: Array  # (SCRATCH_ROWS, D), the family's own


def longest_block(n_components: int, n_points: int) -> int:
    """Points that bounds are computed for at a time, at most."""
    return min(LONGEST_BLOCK, max(MOST_BOUNDS // n_components, SHORTEST_BLOCK), n_points)


def new_memory(n_components: int, d: int, n_points: int) -> Memory:
    """Memory for the predictions of points of d features."""
    n, rows = n_components, longest_block(n_components, n_points)
    return np.empty(_DOUBLES * (n + 1) + SCRATCH_ROWS * d), np.empty(_SINGLES * (n + BLOCK) + rows * n, np.float32)


@compiled(inline="always")
def _scratch_in(memory: Memory, n: int, d: int) -> Scratch:
    """Views of `new_memory`."""
    width, single_width = n + 1, n + BLOCK
    doubles = memory[0][: _DOUBLES * width].reshape((_DOUBLES, width))
    singles = memory[1][: _SINGLES * single_width].reshape((_SINGLES, single_width))
    for k in range(n):
        doubles[3, k], doubles[4, k] = 0.0, 1.0
    return Scratch(
        doubles[0],
        doubles[1],
        doubles[2].view(np.uint64),
        singles[LIMIT_ROWS],
        singles[:LIMIT_ROWS],
        memory[1][_SINGLES * single_width :].reshape((-1, n)),
        doubles[3:],
        memory[0][_DOUBLES * width :].reshape((SCRATCH_ROWS, d)),
    )


@compiled(inline="always")
def _bounded(
    cache: Any, stats: Any, constants: Array, log_weight: Array, x: Array, i: int, rows: int, scratch: Any
) -> int:
    """How many components have bounds in the block of points x[i:i+rows]: all, or none."""
    n = log_weight.size - 1
    if rows < SHORTEST_BLOCK or n < FEWEST_BOUNDED:
        return 0
    if not freeze(cache, stats, constants, log_weight, cut_of(n), x, i, rows, n, scratch.bounds):
        return 0
    fill_up(scratch.ceiling, n)
    for k in range(np.uint64(n)):
        limit(cache, k, scratch.loosened[0], scratch.loosened[1], log_weight, scratch.limits)
    return n


@compiled(inline="always")
def _near(
    cache: Any,
    stats: Any,
    constants: Array,
    log_weight: Array,
    x: Array,
    i: int,
    bounded: int,
    j: int,
    scratch: Any,
) -> tuple[int, float, float]:
    """How many components are near point i, the j-th of its block, the largest of their terms, and the empty one's.
    Their rows go to scratch.active, their terms to scratch.share."""
    n, score = log_weight.size - 1, scratch.score
    if bounded == 0:
        score_all(cache, stats, constants, x, i, n + 1, score, scratch.step)
        for k in range(n + 1):
            score[k] += log_weight[k]
        best = largest_of(score, n)
        return gather_near(score, n, best - cut_of(n), scratch.active, scratch.share), best, score[n]
    ceilings(cache, scratch.bounds, j, n, scratch.limits, scratch.ceiling)
    lift(cache, x, i, n, scratch.ceiling)
    new = log_weight[n] + score_one(cache, stats, constants, x, i, np.uint64(n), scratch.step)
    terms = Terms(cache, stats, constants, log_weight)
    near = rescored(terms, x, i, n, n, cut_of(n), scratch.ceiling, scratch.active, scratch.share, scratch.step)
    return near[0], near[1], new


@compiled(inline="always")
def _first_of_the_largest(share: Array, count: int, best: float, active: IntArray) -> Any:
    """The row whose term is the largest, the first of equals."""
    for a in range(count):
        if share[a] == best:
            return np.int64(active[a])
    return np.int64(active[0])


@kernel(makes_arrays=False)
def predict_rows(
    x: Any,
    cache: Any,
    stats: Any,
    constants: Array,
    log_weight: Array,
    best_row: IntArray,
    log_density: Array,
    novelty: Array,
    resp: Array,
    memory: Memory,
) -> None:
    """Write for each point of x (N, D) the row of the best component, the log density in nats, the responsibility of
    the empty component, and, where resp is (N, K) and not (N, 0), those of the K components into it; it holds zeros.

    Rows K of `cache` and `stats` are the empty component's, log_weight (K + 1,) ends with its. `memory` is from
    `new_memory`.
    """
    n, n_points = log_weight.size - 1, x.shape[0]
    scratch = _scratch_in(memory, n, x.shape[1])
    longest = scratch.bounds.shape[0]
    active, share = scratch.active, scratch.share
    start, crowded = 0, False
    while start < n_points:
        probing = start == 0 and n_points > 2 * PROBED
        rows = min(PROBED if probing else longest, n_points - start)
        unbounded = probing or crowded
        bounded = 0 if unbounded else _bounded(cache, stats, constants, log_weight, x, start, rows, scratch)
        n_near = 0
        for j in range(rows):
            i = start + j
            count, best, new = _near(cache, stats, constants, log_weight, x, i, bounded, j, scratch)
            best_row[i] = _first_of_the_largest(share, count, best, active)
            total = exponentials(share, count, best)
            fresh, rest, surplus = parted(new - best, total)
            log_density[i] = max(new, best) + log_positive(surplus)
            novelty[i] = fresh
            if resp.shape[1] > 0:
                for a in range(count):
                    own = share[a] * (rest / total)
                    resp[i, active[a]] = own if own > LEAST_SHARE else 0.0
            n_near += count
        crowded = n_near > CROWDED * rows * n
        start += rows
