"""A sweep in one pass over the rows, where log densities are quadratic: each row is divided, then summed up at once.

The score of component k is constant_k - |A_k (x - centre_k)|^2 / 2, with A_k diagonal (`root` (T, D)); `tile_kernel`
has those with covariances. What is summed for each component is about its centre, near its mean, so that no digits are
lost. `quadratic.py` has what leads here and back, and sweeps without a kernel are the other road.
"""

import numpy as np

from shoal.kernels.math import REORDER
from shoal.points.arrays import Array, IntArray, SingleArray
from shoal.refinement.divide_kernel import divide_row
from shoal.refinement.reach_kernel import Reach, ceilings_of, far_at_least, mark_near, write_down
from shoal.runtime.kernels import compiled, kernel

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


@compiled()
def _score(x: Array, i: int, constant: Array, centre: Array, root: Array, k: int, reach: Reach) -> float:
    """The score of component k; the distance is written down."""
    square = _distance(x, i, centre, root, k)
    write_down(reach, i, k, square)
    return float(constant[k] - 0.5 * square)


@compiled()
def _worked_out(
    x: Array,
    i: int,
    reach: Reach,
    guess: int,
    constant: Array,
    ceiling: SingleArray,
    centre: Array,
    root: Array,
    below: float,
    marks: Array,
    eights: Array,
    value: Array,
    place: IntArray,
) -> int:
    """The scores that are no more than -`below` under the best, and their components, into `value` and `place`; how
    many. `marks` (8 W,) bytes, zero from T on, and `eights` (W,), the same eight at a time, are for scratch."""
    known = _score(x, i, constant, centre, root, guess, reach)
    top, near, m = known, 0, 0
    marks[:] = 0
    marks[guess] = 1
    mark_near(ceiling, reach, i, top + below, marks)
    for word in range(eights.size):
        if eights[word] == 0:
            continue
        for k in range(8 * word, min(8 * word + 8, constant.size)):
            if marks[k] == 0:
                continue
            score = known
            if k != guess:
                apart = far_at_least(reach, i, k)
                if constant[k] - 0.5 * apart * apart < top + below:
                    continue
                score = _score(x, i, constant, centre, root, k, reach)
            top = max(top, score)
            value[near] = score
            place[near] = k
            near += 1
    for e in range(near):
        if not value[e] < top + below:
            value[m] = value[e]
            place[m] = place[e]
            m += 1
    return m


@kernel()
def sweep_block(
    x: Array,
    reach: Reach,
    guess: IntArray,
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

    reach: what |A_k (x - centre_k)| is at least, by which components are left out whose share would not count; raised
    where it was worked out. guess: (n,) a component for each row, the one that it belongs to most as a rule.
    second: (T, D). The rest as in `divide_block`.
    """
    n, t = x.shape[0], constant.size
    value, share, place, apart = np.empty(t), np.empty(t), np.empty(t, dtype=np.int64), np.empty(x.shape[1])
    ceiling, eights = ceilings_of(constant), np.zeros(-(-t // 8), dtype=np.uint64)
    marks = eights.view(np.uint8)
    below = log_floor + LEFT_OUT
    filled, entropy, dropped = 0, 0.0, 0.0
    for i in range(n):
        m = _worked_out(x, i, reach, guess[i], constant, ceiling, centre, root, below, marks, eights, value, place)
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
