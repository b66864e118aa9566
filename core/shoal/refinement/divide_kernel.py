"""Responsibilities as sparse rows, from scores; and the entropy between every two components of such rows.

`reference.py` has both in plain NumPy.
"""

import numpy as np

from shoal.kernels.math import REORDER, exp_negative, log_one_plus, log_positive
from shoal.points.arrays import Array, IntArray
from shoal.runtime.kernels import compiled, kernel

LEAST = -40.0
"""Log of a share below which it counts as nothing, even where dropped ones are counted."""
PAIRS = 64
"""Entropies between two shares that are worked out together."""


@compiled(fastmath=REORDER)
def divide_row(
    value: Array, share: Array, log_floor: float, indices: IntArray, resp: Array, filled: int
) -> tuple[int, float, float]:
    """Normalise exp(value), value (m,), as entries from `filled` on, without those below exp(log_floor) of the largest.

    `share`, with room for m, is for scratch; `value` is used up. Back: where the entries end, their entropy, nats, and
    the share that the dropped ones had.
    """
    m, top, total, rest, surprise, end = value.size, -np.inf, 0.0, 0.0, 0.0, filled
    for e in range(m):
        top = max(top, value[e])
    for e in range(m):
        value[e] -= top
        share[e] = exp_negative(value[e])
    for e in range(m):
        kept = share[e] if value[e] >= log_floor else 0.0
        total += kept
        surprise += kept * value[e]
        rest += share[e] - kept if value[e] > LEAST else 0.0
    for e in range(m):
        if value[e] >= log_floor:
            indices[end] = e
            resp[end] = share[e]
            end += 1
    scale = 1.0 / total
    for e in range(filled, end):
        resp[e] *= scale
    return end, log_positive(total) - surprise * scale, rest / (total + rest)


@kernel()
def divide_block(
    score: Array,
    log_weight: Array,
    weights: Array,
    log_floor: float,
    indices: IntArray,
    resp: Array,
    ends: IntArray,
) -> tuple[int, float, float]:
    """Normalise exp(score + log_weight), score (n, T), without the entries below exp(log_floor) of a row's largest.

    Written: `indices` and `resp`, room for n T, the entries row after row; `ends` (n,), where each row ends. Back: the
    number of entries; their entropy, and the share that the dropped ones had, both summed over rows times `weights`.
    """
    n, t = score.shape
    filled, entropy, dropped = 0, 0.0, 0.0
    value, share = np.empty(t), np.empty(t)
    for i in range(n):
        for k in range(t):
            value[k] = score[i, k] + log_weight[k]
        filled, h, lost = divide_row(value, share, log_floor, indices, resp, filled)
        entropy += weights[i] * h
        dropped += weights[i] * lost
        ends[i] = filled
    return filled, entropy, dropped


@kernel(fastmath=REORDER)
def divide_in_two(score: Array, log_odds: float, weight: Array, share: Array) -> tuple[float, float, float]:
    """Shares of the first of two children, 1 / (1 + exp(-score - log_odds)), into `share` (m,).

    Back: the weight of each child and the entropy of the division, nats, both summed over rows times `weight` (m,).
    """
    first, second, entropy = 0.0, 0.0, 0.0
    for i in range(score.size):
        odds = score[i] + log_odds
        distance = abs(odds)
        e = exp_negative(-distance)
        small = e / (1.0 + e)
        p = 1.0 - small if odds >= 0.0 else small
        share[i] = p
        first += weight[i] * p
        second += weight[i] * (1.0 - p)
        entropy += weight[i] * (log_one_plus(e) + distance * small)
    return first, second, entropy


@compiled(fastmath=REORDER)
def _count_pairs(large: Array, small: Array, weight: Array, between: Array) -> None:
    """w [(u + v) log(u + v) - u log u - v log v] of pairs u >= v > 0, all (PAIRS,), into `between`."""
    for p in range(PAIRS):
        share = small[p] / large[p]
        total = (large[p] + small[p]) * log_one_plus(share)
        between[p] = weight[p] * (total - small[p] * log_positive(share))


@kernel(fastmath=REORDER)
def pair_entropies(indptr: IntArray, indices: IntArray, resp: Array, weights: Array, n_components: int) -> Array:
    """E (T, T), symmetric, nats: sum_i w_i [(u + v) log(u + v) - u log u - v log v] over rows with entries u, v > 0.

    Pairs are gathered and worked out `PAIRS` at a time, which fills vector registers.
    """
    found = np.zeros((n_components, n_components))
    large, small, weight, between = np.ones(PAIRS), np.ones(PAIRS), np.zeros(PAIRS), np.empty(PAIRS)
    first, second, waiting = np.zeros(PAIRS, dtype=np.int64), np.zeros(PAIRS, dtype=np.int64), 0
    for i in range(weights.size):
        for e in range(indptr[i], indptr[i + 1]):
            u = resp[e]
            for f in range(indptr[i], e):
                v = resp[f]
                if min(u, v) <= 0.0:
                    continue
                large[waiting], small[waiting], weight[waiting] = max(u, v), min(u, v), weights[i]
                first[waiting], second[waiting] = indices[e], indices[f]
                waiting += 1
                if waiting == PAIRS:
                    _count_pairs(large, small, weight, between)
                    for p in range(PAIRS):
                        found[first[p], second[p]] += between[p]
                    waiting = 0
    weight[waiting:] = 0.0  # of pairs counted before
    _count_pairs(large, small, weight, between)
    for p in range(waiting):
        found[first[p], second[p]] += between[p]
    for k in range(n_components):
        for j in range(k):
            both = found[k, j] + found[j, k]
            found[k, j] = both
            found[j, k] = both
    return found
