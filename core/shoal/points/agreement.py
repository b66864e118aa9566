"""Agreement of two clusterings of the same points.

It stands here because a process that learns a stream needs it, and scikit-learn's takes that process a second of CPU
time to import.
"""

import numpy as np

from shoal.points.arrays import IntArray


def adjusted_rand_index(first: IntArray, second: IntArray) -> float:
    """Adjusted Rand index of two labellings (N,), at most 1: 1 for equal partitions, about 0 for independent ones.

    Counts pairs of points that are together in both, in one, or in neither (Hubert and Arabie 1985), in whole numbers,
    so that no digit is lost. Raises ValueError if the lengths differ.
    """
    if first.shape != second.shape:
        raise ValueError(f"labellings have shapes {first.shape} and {second.shape}; give both for the same points")
    _, i = np.unique(first, return_inverse=True)
    _, j = np.unique(second, return_inverse=True)
    wide = int(j.max(initial=0)) + 1
    both = _ordered_pairs(np.unique(i * wide + j, return_counts=True)[1])
    in_first, in_second = _ordered_pairs(np.bincount(i)), _ordered_pairs(np.bincount(j))
    only_first, only_second = in_first - both, in_second - both
    if not only_first and not only_second:
        return 1.0
    neither = len(first) * (len(first) - 1) - both - only_first - only_second
    chance = (both + only_first) * (only_first + neither) + (both + only_second) * (only_second + neither)
    return 2.0 * (both * neither - only_first * only_second) / chance


def _ordered_pairs(sizes: IntArray) -> int:
    """Ordered pairs of different points within groups of these sizes."""
    return int((sizes * (sizes - 1)).sum())
