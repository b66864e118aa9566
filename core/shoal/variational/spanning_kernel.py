"""The heaviest spanning tree of a few components: SciPy's takes half a millisecond in every refinement."""

import numpy as np

from shoal.points.arrays import Array
from shoal.runtime.kernels import kernel


@kernel()
def heaviest_tree(weights: Array) -> float:
    """The largest sum of weights (T, T), symmetric and >= 0, over the edges of a spanning tree: Prim (1957), O(T^2)."""
    t, total = weights.shape[0], 0.0
    nearest = np.zeros(t)  # weight of the heaviest edge to the tree
    outside = np.ones(t, dtype=np.bool_)
    last = 0
    for _ in range(t - 1):
        outside[last] = False
        following = -1
        for j in range(t):
            if outside[j]:
                nearest[j] = max(nearest[j], weights[last, j])
                if following < 0 or nearest[j] > nearest[following]:
                    following = j
        total += nearest[following]
        last = following
    return total
