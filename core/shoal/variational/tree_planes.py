"""Planes that cut a set of points into ever smaller ones, each where it cuts the least.

A node is cut across its first principal axis, at the height that leaves the least variance within the two sides (Otsu
1979). A median or bisecting plane goes through the middle of a cluster as readily as between two, and the cluster's
points then need both halves of the tree for ever: free energy ratios 1.008 and 1.023 in place of 1.003.
"""

from typing import NamedTuple

import numpy as np

from shoal.inference.start_points import power_axis
from shoal.points.arrays import Array, BoolArray, IntArray
from shoal.variational.tree_kernel import sort_down

_SAMPLE_A_LEAF = 16
_LEAST_SAMPLE = 8_000
"""Points that the planes are chosen from; all are then sorted down them."""
_POWER_STEPS = 16


class Planes(NamedTuple):
    """M nodes, children after their parent; node 0 is the root."""

    left: IntArray  # (M,) -1 for a leaf
    right: IntArray  # (M,)
    axis: Array  # (M, D)
    threshold: Array  # (M,)
    middle: Array  # (M, D) of a leaf, the mean of the points that the planes were chosen from; else 0

    @property
    def n_nodes(self) -> int:
        """M."""
        return len(self.left)


class Leaves(NamedTuple):
    """What the points of the L leaves are."""

    node: IntArray  # (L,) in increasing order
    of_point: IntArray  # (N,) which of the L
    mass: Array  # (L,) 0 where no point fell
    location: Array  # (L, D) their mean
    spread: Array  # (L, D, D) their mean scatter about it


def planes_of(x: Array, leaf_points: float, rng: np.random.Generator, units: Array | None = None) -> Planes:
    """Planes for points x (N, D), until a leaf has at most `leaf_points` (>= 1) of them or all are equal.

    Distances are those of x @ units (D, D); None: of x.
    """
    n = len(x)
    size = max(_LEAST_SAMPLE, int(_SAMPLE_A_LEAF * n / leaf_points))
    sample = x if n <= size else x[np.sort(rng.choice(n, size, replace=False, shuffle=False))]
    enough = max(1.0, leaf_points * len(sample) / n)
    nothing = np.zeros(x.shape[1])
    left, right, axis, threshold, middle = [-1], [-1], [nothing], [0.0], [nothing]
    waiting = [(0, sample)]
    while waiting:
        node, points = waiting.pop()
        cut = best_plane(points, units) if len(points) > enough else None
        if cut is None:
            middle[node] = points.mean(axis=0)
            continue
        axis[node], threshold[node], above = cut
        left[node], right[node] = len(left), len(left) + 1
        left += [-1, -1]
        right += [-1, -1]
        axis += [nothing, nothing]
        threshold += [0.0, 0.0]
        middle += [nothing, nothing]
        waiting += [(left[node], points[~above]), (right[node], points[above])]
    return Planes(np.array(left), np.array(right), np.array(axis), np.array(threshold), np.array(middle))


def best_plane(points: Array, units: Array | None = None) -> tuple[Array, float, BoolArray] | None:
    """Axis (D,), threshold and the points above it (n,) of Otsu's cut; None where all points are equal."""
    axis = _principal_axis(points) if units is None else units @ _principal_axis(points @ units)
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


def _principal_axis(points: Array) -> Array:
    """A unit vector (D,) near the first principal axis."""
    difference = points - points.mean(axis=0)
    return power_axis(difference.T @ difference, _POWER_STEPS)


def leaves_of(planes: Planes, x: Array) -> Leaves:
    """All points x (N, D) sorted into leaves, and the leaves' moments."""
    node = np.flatnonzero(planes.left < 0)
    slot = np.zeros(planes.n_nodes, dtype=np.int64)
    slot[node] = np.arange(node.size)
    reference, d = planes.middle[node], x.shape[1]
    of_point, count = np.empty(len(x), dtype=np.int64), np.zeros(node.size, dtype=np.int64)
    first, second = np.zeros((node.size, d)), np.zeros((node.size, d, d))
    child = np.stack([planes.left, planes.right], axis=1).ravel()
    sort_down(x, child, planes.axis, planes.threshold, slot, reference, of_point, count, first, second)
    share = 1.0 / np.maximum(count, 1)
    first *= share[:, None]
    second *= share[:, None, None]
    second -= first[:, :, None] * first[:, None, :]
    return Leaves(node, of_point, count.astype(np.float64), reference + first, second)
