"""Responsibilities as sparse rows, from scores; and the entropy between every two components of such rows.

`reference.py` has both in plain NumPy.
"""

import numpy as np

from shoal._numba import compiled, kernel
from shoal.arrays import Array, IntArray

LEAST = -40.0
"""Log of a share below which an entry counts as nothing even where dropped ones are counted."""


@compiled()
def divide_row(
    value: Array, place: IntArray, m: int, top: float, log_floor: float, indices: IntArray, resp: Array, filled: int
) -> tuple[int, float, float]:
    """Normalise exp(value[:m]) of the components `place`, the largest of them `top`, as entries from `filled` on.

    Back: where the entries end, their entropy, nats, and the share that the dropped ones had.
    """
    total, rest, surprise, end = 0.0, 0.0, 0.0, filled
    for e in range(m):
        difference = value[e] - top
        if difference >= log_floor:
            share = np.exp(difference)
            indices[end] = place[e]
            resp[end] = share
            total += share
            surprise += share * difference
            end += 1
        elif difference > LEAST:
            rest += np.exp(difference)
    for e in range(filled, end):
        resp[e] /= total
    return end, np.log(total) - surprise / total, rest / (total + rest)


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
    value, place = np.empty(t), np.arange(t)
    for i in range(n):
        top = -np.inf
        for k in range(t):
            value[k] = score[i, k] + log_weight[k]
            top = max(top, value[k])
        filled, h, lost = divide_row(value, place, t, top, log_floor, indices, resp, filled)
        entropy += weights[i] * h
        dropped += weights[i] * lost
        ends[i] = filled
    return filled, entropy, dropped


@kernel()
def pair_entropies(indptr: IntArray, indices: IntArray, resp: Array, weights: Array, n_components: int) -> Array:
    """E (T, T), symmetric, nats: sum_i w_i [(u + v) log(u + v) - u log u - v log v] over rows with entries u, v > 0."""
    found = np.zeros((n_components, n_components))
    for i in range(weights.size):
        for e in range(indptr[i], indptr[i + 1]):
            u = resp[e]
            for f in range(indptr[i], e):
                v = resp[f]
                if u > 0.0 and v > 0.0:
                    between = weights[i] * (u * np.log1p(v / u) + v * np.log1p(u / v))
                    found[indices[e], indices[f]] += between
    for k in range(n_components):
        for j in range(k):
            both = found[k, j] + found[j, k]
            found[k, j] = both
            found[j, k] = both
    return found
