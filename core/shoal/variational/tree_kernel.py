"""Points down a tree of planes."""

from shoal._numba import kernel
from shoal.arrays import Array, IntArray


@kernel(fastmath={"reassoc", "contract"})
def descend(x: Array, left: IntArray, right: IntArray, axis: Array, threshold: Array, leaf: IntArray) -> None:
    """Write to leaf (N,) the node without children that each point of x (N, D) falls into.

    left, right (M,): the children, -1 for none; a point goes right where axis (M, D) . x > threshold (M,).
    """
    n_features = x.shape[1]
    for n in range(x.shape[0]):
        node = 0
        while left[node] >= 0:
            height = 0.0
            for d in range(n_features):
                height += axis[node, d] * x[n, d]
            node = right[node] if height > threshold[node] else left[node]
        leaf[n] = node
