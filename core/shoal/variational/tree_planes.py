"""Planes that cut a set of points into ever smaller ones, each where it cuts the least.

A node is cut across its first principal axis, at the height that leaves the least variance within the two sides (Otsu
1979). A median or bisecting plane goes through the middle of a cluster as readily as between two, and the cluster's
points then need both halves of the tree for ever: free energy ratios 1.008 and 1.023 in place of 1.003.
"""

from typing import NamedTuple

import numpy as np

from shoal.arrays import Array, BoolArray, IntArray
from shoal.variational.tree_kernel import descend

SAMPLE = 40_000
"""Points that the planes are chosen from; all are then sorted down them."""
_POWER_STEPS = 16


class Planes(NamedTuple):
    """M nodes, children after their parent; node 0 is the root."""

    left: IntArray  # (M,) -1 for a leaf
    right: IntArray  # (M,)
    axis: Array  # (M, D)
    threshold: Array  # (M,)

    @property
    def n_nodes(self) -> int:
        """M."""
        return len(self.left)


def planes_of(x: Array, leaf_points: float, rng: np.random.Generator) -> Planes:
    """Planes for points x (N, D), until a leaf has at most `leaf_points` (>= 1) of them or all are equal."""
    n = len(x)
    sample = x if n <= SAMPLE else x[np.sort(rng.choice(n, SAMPLE, replace=False))]
    enough = max(1.0, leaf_points * len(sample) / n)
    left, right, axis, threshold = [-1], [-1], [np.zeros(x.shape[1])], [0.0]
    waiting = [(0, sample)]
    while waiting:
        node, points = waiting.pop()
        cut = best_plane(points) if len(points) > enough else None
        if cut is None:
            continue
        axis[node], threshold[node], above = cut
        left[node], right[node] = len(left), len(left) + 1
        left += [-1, -1]
        right += [-1, -1]
        axis += [axis[0], axis[0]]
        threshold += [0.0, 0.0]
        waiting += [(left[node], points[~above]), (right[node], points[above])]
    return Planes(np.array(left), np.array(right), np.array(axis), np.array(threshold))


def best_plane(points: Array) -> tuple[Array, float, BoolArray] | None:
    """Axis (D,), threshold and the points above it (n,) of Otsu's cut; None where all points are equal."""
    axis = principal_axis(points)
    height = points @ axis
    ordered = np.sort(height)
    n = len(ordered)
    count = np.arange(1, n)
    sums = np.cumsum(ordered - ordered[n // 2])
    below, above = sums[:-1] / count, (sums[-1] - sums[:-1]) / (n - count)
    between = np.where(ordered[1:] > ordered[:-1], count * (n - count) * np.square(above - below), -1.0)
    best = int(between.argmax()) if n > 1 else 0
    if n < 2 or between[best] < 0.0:
        return None
    threshold = 0.5 * (ordered[best] + ordered[best + 1])
    side = height > threshold
    if side.all() or not side.any():
        return None
    return axis, float(threshold), side


def principal_axis(points: Array) -> Array:
    """A unit vector (D,) near the first principal axis: sixteen power steps from the widest feature."""
    difference = points - points.mean(axis=0)
    covariance = difference.T @ difference
    axis = covariance[int(np.argmax(np.diagonal(covariance)))]
    for _ in range(_POWER_STEPS):
        length = float(np.sqrt(axis @ axis))
        if length == 0.0:
            break
        axis = covariance @ (axis / length)
    length = float(np.sqrt(axis @ axis))
    unit: Array = axis / length if length > 0.0 else np.eye(1, len(axis))[0]
    return unit


def leaves_of(planes: Planes, x: Array) -> IntArray:
    """(N,) the leaf of each point."""
    leaf = np.empty(len(x), dtype=np.int64)
    descend(x, planes.left, planes.right, planes.axis, planes.threshold, leaf)
    return leaf
