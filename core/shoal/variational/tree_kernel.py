"""Points down a tree of planes, and the moments of those that end in the same leaf."""

import numpy as np

from shoal.points.arrays import Array, IntArray
from shoal.runtime.kernels import kernel

_BLOCK = 512
"""Points that go down together, a level at a time: their dot products overlap in the processor, where those of a
single point wait for each other: half the time."""


@kernel(fastmath={"reassoc", "contract"})
def sort_down(
    x: Array,
    child: IntArray,
    axis: Array,
    threshold: Array,
    slot: IntArray,
    reference: Array,
    leaf: IntArray,
    count: IntArray,
    first: Array,
    second: Array,
) -> None:
    """Write to leaf (N,) the slot of the leaf that each point of x (N, D) falls into, and add up the leaves' moments.

    child (2 M,): the two nodes below each, -1 for none; a point goes to the second where axis (M, D) . x exceeds
    threshold (M,). Moments of slot s (S of them, slot (M,) by node) are those of x - reference[s]: count (S,), first
    (S, D) and second (S, D, D), all zero before. About a reference inside the leaf they keep their digits wherever the
    data lie. Whole rows of the scatter are added: rows that begin at the diagonal took longer at 16, 50 and 128-D.
    """
    n_points, n_features = x.shape
    node, point = np.zeros(_BLOCK, np.int64), np.zeros(_BLOCK, np.int64)
    y = np.zeros(n_features)
    for start in range(0, n_points, _BLOCK):
        stop = min(start + _BLOCK, n_points)
        waiting = stop - start if child[0] >= 0 else 0
        for i in range(stop - start):
            node[i], point[i], leaf[start + i] = 0, start + i, 0
        while waiting > 0:
            left = 0
            for i in range(waiting):
                k, n = node[i], point[i]
                height = 0.0
                for d in range(n_features):
                    height += axis[k, d] * x[n, d]
                k = child[2 * k + (1 if height > threshold[k] else 0)]
                leaf[n] = k
                node[left], point[left] = k, n
                left += 1 if child[2 * k] >= 0 else 0
            waiting = left
        for n in range(start, stop):
            s = slot[leaf[n]]
            leaf[n] = s
            count[s] += 1
            for d in range(n_features):
                y[d] = x[n, d] - reference[s, d]
                first[s, d] += y[d]
            for d in range(n_features):
                for e in range(n_features):
                    second[s, d, e] += y[d] * y[e]
