"""A sweep in one pass over the rows, where log densities are quadratic: each row is divided, then summed up at once.

The score of component k is constant_k - |A_k (x - centre_k)|^2 / 2, with A_k diagonal (`root` (T, D)); `tile_kernel`
has those with covariances. What is summed for each component is about its centre, near its mean, so that no digits are
lost. `quadratic.py` has what leads here and back, and sweeps without a kernel are the other road.
"""

import numpy as np

from shoal._numba import compiled, kernel
from shoal.arrays import Array, IntArray
from shoal.families.math_kernel import REORDER
from shoal.refinement.divide_kernel import divide_row

LEAST_SQUARE = 1e-30
"""What a product of numbers too small for single precision may be wrong by."""
LEFT_OUT = -12.0
"""Log of a share, relative to the floor, below which a component is left out before its score is worked out."""


@compiled(fastmath=REORDER)
def _distance(x: Array, i: int, centre: Array, root: Array, k: int) -> float:
    """|root[k] (x[i] - centre[k])|^2."""
    distance = 0.0
    for a in range(x.shape[1]):
        part = root[k, a] * (x[i, a] - centre[k, a])
        distance += part * part
    return distance


@compiled(fastmath=REORDER)
def _add_up(x: Array, i: int, centre: Array, k: int, weight: float, apart: Array, first: Array, second: Array) -> None:
    """Count the row to component k; of a matrix the lower triangle."""
    d = x.shape[1]
    for a in range(d):
        apart[a] = x[i, a] - centre[k, a]
    for a in range(d):
        part = weight * apart[a]
        first[k, a] += part
        if second.ndim == 3:
            for b in range(a + 1):
                second[k, a, b] += part * apart[b]
        else:
            second[k, a] += part * apart[a]


@kernel(fastmath=REORDER)
def bound_scores(
    own: Array, product: Array, constant: Array, squares: Array, least: Array, slack: float, upper: Array
) -> None:
    """Into `upper` (n, T) what the scores do not exceed.

    own: (n,) squares of the rows' lengths; squares: (T,) of the centres'. product: (n, T) of rows and centres, to
    within `slack` times the mean of the two. least: (T,) what |A_k v|^2 / |v|^2 does not go below.
    """
    for i in range(own.size):
        for k in range(constant.size):
            distance = (own[i] + squares[k]) * (1.0 - slack) - 2.0 * product[i, k] - LEAST_SQUARE
            upper[i, k] = constant[k] - 0.5 * least[k] * max(distance, 0.0)


@kernel()
def sweep_block(
    x: Array,
    upper: Array,
    constant: Array,
    centre: Array,
    root: Array,
    weights: Array,
    log_floor: float,
    indices: IntArray,
    resp: Array,
    ends: IntArray,
    mass: Array,
    first: Array,
    second: Array,
) -> tuple[int, float, float]:
    """Divide the rows x (n, D) as `divide_block` does, and add them up in `mass` (T,), `first` (T, D) and `second`.

    upper: (n, T) values that scores do not exceed, by which components are left out whose share would not count.
    second: (T, D). The rest as in `divide_block`.
    """
    n, t = x.shape[0], constant.size
    value, share, place, apart = np.empty(t), np.empty(t), np.empty(t, dtype=np.int64), np.empty(x.shape[1])
    filled, entropy, dropped = 0, 0.0, 0.0
    for i in range(n):
        best = int(np.argmax(upper[i]))
        known = constant[best] - 0.5 * _distance(x, i, centre, root, best)
        top, m = known, 0
        for k in range(t):
            if k == best:
                value[m] = known
            elif upper[i, k] < top + log_floor + LEFT_OUT:
                continue
            else:
                value[m] = constant[k] - 0.5 * _distance(x, i, centre, root, k)
            top = max(top, value[m])
            place[m] = k
            m += 1
        start = filled
        filled, h, lost = divide_row(value[:m], share, log_floor, indices, resp, filled)
        ends[i] = filled
        entropy += weights[i] * h
        dropped += weights[i] * lost
        for e in range(start, filled):
            k = place[indices[e]]
            indices[e] = k
            counted = weights[i] * resp[e]
            mass[k] += counted
            _add_up(x, i, centre, k, counted, apart, first, second)
    return filled, entropy, dropped


@kernel()
def add_again(
    x: Array,
    starts: IntArray,
    indices: IntArray,
    resp: Array,
    weights: Array,
    place: IntArray,
    centre: Array,
    first: Array,
    second: Array,
) -> None:
    """Add up the rows x (N, D) about other centres (L, D), for the components k with place[k] >= 0: their row there.

    starts (N + 1,), indices, resp: the responsibilities as CSR. first: (L, D). second: (L, D, D) or (L, D).
    """
    apart = np.empty(x.shape[1])
    for i in range(x.shape[0]):
        for e in range(starts[i], starts[i + 1]):
            k = place[indices[e]]
            if k >= 0:
                _add_up(x, i, centre, k, weights[i] * resp[e], apart, first, second)
