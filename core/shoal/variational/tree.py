"""A tree over the points; its nodes hold their points' mass, location, mean of t(x), log carrier and scatter.

Points below a node of the frontier share their responsibilities, so that the cost of a round follows the size of the
frontier (Kurihara, Welling and Vlassis 2006, section 5). The nodes hold means of t(x) and of log h(x), not of x: with
means of x alone the free energy is no bound (ERRATA 1.14).

Planes cut a node across its first principal axis, at the height that leaves the least variance within the two sides
(Otsu 1979). A median or bisecting plane often goes through the middle of a cluster. The cluster's points then need both
halves of the tree for ever: free energy ratios 1.008 and 1.023 in place of 1.003.
"""

import heapq
from typing import Any, NamedTuple, cast

import numpy as np
from scipy.sparse import csr_array

from shoal.families import AnyFamily
from shoal.families.natural_statistics import (
    Origin,
    Statistics,
    has_moment_statistics,
    statistics,
    statistics_of_moments,
)
from shoal.inference import locations_of, power_axis, units_of
from shoal.kernels.linalg import outer
from shoal.points.arrays import Array, BoolArray, IntArray
from shoal.points.rows import Points
from shoal.variational.cells import Cells
from shoal.variational.rounds import Model, State, normalize, scorer
from shoal.variational.tree_kernel import sort_down

_SAMPLE_A_LEAF = 16
_LEAST_SAMPLE = 8_000
"""Points from which the planes are chosen; all points are then sorted down the planes."""
_POWER_STEPS = 16
_CUTS_A_LEAF = 2
"""Levels of cuts below a leaf that is divided: four leaves in its place."""
_BLOCK_ROWS = 4096


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

    @property
    def leaves(self) -> IntArray:
        """(L,) the nodes that are leaves, in increasing order."""
        return np.flatnonzero(self.left < 0)


class LeafSums(NamedTuple):
    """Sums over the points of the L leaves; those of two sets of points add."""

    mass: IntArray  # (L,) points
    first: Array  # (L, D) of y = x - middle of the leaf
    second: Array  # (L, D, D) of y y'
    rows: Array | None = None  # (L, P) of t(x), for a family whose t(x) needs more than these moments
    log_carrier: Array | None = None  # (L,) of log h(x), for such a family


def added(a: LeafSums, b: LeafSums) -> LeafSums:
    """The sums of both sets of points, sorted down the same planes."""
    total = LeafSums(a.mass + b.mass, a.first + b.first, a.second + b.second)
    if a.rows is None or b.rows is None or a.log_carrier is None or b.log_carrier is None:
        return total
    return total._replace(rows=a.rows + b.rows, log_carrier=a.log_carrier + b.log_carrier)


class Leaves(NamedTuple):
    """Moments of the points of the L leaves."""

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


def finer_planes(
    planes: Planes, x: Array, chosen: IntArray, at_most: int, least: int, units: Array | None = None
) -> Planes:
    """Planes with some leaves divided: of the L, those of `chosen`, in that order, until there are `at_most`.

    Each is cut by the points of x (N, D) in it, then its halves once more, each time with at least `least` points on
    both sides; a leaf with fewer is left.
    """
    of_point = leaf_sums(planes, x)[1]
    nodes, n_leaves = planes.leaves, len(planes.leaves)
    left, right = planes.left.tolist(), planes.right.tolist()
    axis, threshold, middle = list(planes.axis), planes.threshold.tolist(), list(planes.middle)
    order = np.argsort(of_point, kind="stable")
    ends = np.searchsorted(of_point[order], np.arange(n_leaves + 1))
    for leaf in chosen.tolist():
        waiting = [(int(nodes[leaf]), x[order[ends[leaf] : ends[leaf + 1]]], _CUTS_A_LEAF)]
        while waiting and n_leaves < at_most:
            node, points, cuts = waiting.pop()
            cut = best_plane(points, units) if len(points) >= 2 * least and cuts > 0 else None
            if cut is None or not least <= np.count_nonzero(cut[2]) <= len(points) - least:
                continue
            axis[node], threshold[node], above = cut
            for child in (points[~above], points[above]):
                left.append(-1)
                right.append(-1)
                axis.append(np.zeros(x.shape[1]))
                threshold.append(0.0)
                middle.append(child.mean(axis=0))
                waiting.append((len(left) - 1, child, cuts - 1))
            left[node], right[node] = len(left) - 2, len(left) - 1
            middle[node] = np.zeros(x.shape[1])
            n_leaves += 1
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


def leaf_sums(planes: Planes, x: Array) -> tuple[LeafSums, IntArray]:
    """All points x (N, D) sorted into leaves: the sums of the leaves, and the leaf (N,), one of 0..L-1, of each."""
    node = planes.leaves
    slot = np.zeros(planes.n_nodes, dtype=np.int64)
    slot[node] = np.arange(node.size)
    d = x.shape[1]
    of_point, count = np.empty(len(x), dtype=np.int64), np.zeros(node.size, dtype=np.int64)
    first, second = np.zeros((node.size, d)), np.zeros((node.size, d, d))
    child = np.stack([planes.left, planes.right], axis=1).ravel()
    sort_down(x, child, planes.axis, planes.threshold, slot, planes.middle[node], of_point, count, first, second)
    return LeafSums(count, first, second), of_point


def leaves_of(planes: Planes, sums: LeafSums) -> Leaves:
    """The moments that follow from the sums."""
    share = 1.0 / np.maximum(sums.mass, 1)
    mean = sums.first * share[:, None]
    spread = sums.second * share[:, None, None] - mean[:, :, None] * mean[:, None, :]
    return Leaves(sums.mass.astype(np.float64), planes.middle[planes.leaves] + mean, spread)


class Tree(NamedTuple):
    """M nodes, children after their parent, the root first."""

    left: IntArray  # (M,) -1 for a leaf
    right: IntArray  # (M,)
    mass: Array  # (M,) points below
    location: Array  # (M, E) the mean of their locations (`inference.locations`)
    rows: Array  # (M, P) mean of t(x)
    log_carrier: Array  # (M,) mean of log h(x)
    spread: Array  # (M, E, E) mean scatter about the location
    leaf: IntArray  # (N,) the leaf of each point; (0,) where the points are not at hand


def grow_tree(family: AnyFamily, x: Points, origin: Origin, leaf_points: float, rng: np.random.Generator) -> Tree:
    """The tree of points x (N, D) with leaves of about `leaf_points` points; 1: every distinct point a leaf."""
    where = locations_of(family, x)
    planes = planes_of(where, leaf_points, rng, units_of(family))
    sums, of_point = leaf_sums_of(family, planes, x, origin, where)
    return tree_of(family, planes, sums, origin)._replace(leaf=planes.leaves[of_point])


def leaf_sums_of(
    family: AnyFamily, planes: Planes, x: Points, origin: Origin, where: Array | None = None
) -> tuple[LeafSums, IntArray]:
    """What `tree_of` needs of points x (N, D) at locations `where` (N, E), and the leaf (N,) of each, one of 0..L-1."""
    sums, of_point = leaf_sums(planes, locations_of(family, x) if where is None else where)
    if has_moment_statistics(family):
        return sums, of_point
    n_leaves = len(sums.mass)
    width = statistics(family, x[:1], origin).rows.shape[1]
    rows, carrier = np.zeros((n_leaves, width)), np.zeros(n_leaves)
    for start in range(0, len(x), _BLOCK_ROWS):
        part = slice(start, start + _BLOCK_ROWS)
        block = statistics(family, x[part], origin)
        n = len(block.log_carrier)
        member = csr_array((np.ones(n), (of_point[part], np.arange(n))), (n_leaves, n))
        own: Any = member @ block.rows
        rows += cast(Array, own.toarray() if isinstance(own, csr_array) else own)
        carrier += np.asarray(member @ block.log_carrier)
    return sums._replace(rows=rows, log_carrier=carrier), of_point


def tree_of(family: AnyFamily, planes: Planes, sums: LeafSums, origin: Origin) -> Tree:
    """The tree of the points behind the sums. Its field `leaf` is empty."""
    found = leaves_of(planes, sums)
    if sums.rows is None or sums.log_carrier is None:
        means = statistics_of_moments(family, found.location, found.spread, origin)
        assert means is not None, "sums without rows are for families whose t(x) follows from moments"
    else:
        share = 1.0 / np.maximum(found.mass, 1.0)
        means = Statistics(sums.rows * share[:, None], sums.log_carrier * share)
    m, d = planes.n_nodes, found.location.shape[1]
    tree = Tree(
        planes.left,
        planes.right,
        np.zeros(m),
        np.zeros((m, d)),
        np.zeros((m, means.rows.shape[1])),
        np.zeros(m),
        np.zeros((m, d, d)),
        np.zeros(0, dtype=np.int64),
    )
    at = planes.leaves
    tree.mass[at], tree.location[at], tree.spread[at] = found
    tree.rows[at], tree.log_carrier[at] = means.rows, means.log_carrier
    _sum_upwards(tree)
    return tree


def _sum_upwards(tree: Tree) -> None:
    """Compute every inner node from its two children, level by level from the deepest."""
    for nodes in reversed(_levels(tree)):
        a, b = tree.left[nodes], tree.right[nodes]
        mass = tree.mass[a] + tree.mass[b]
        share = tree.mass[b] / np.maximum(mass, 1.0)  # both may be empty: planes come from a part of the points
        keep = 1.0 - share
        delta = tree.location[b] - tree.location[a]
        tree.mass[nodes] = mass
        tree.location[nodes] = tree.location[a] + share[:, None] * delta
        tree.rows[nodes] = keep[:, None] * tree.rows[a] + share[:, None] * tree.rows[b]
        tree.log_carrier[nodes] = keep * tree.log_carrier[a] + share * tree.log_carrier[b]
        spread = keep[:, None, None] * tree.spread[a] + share[:, None, None] * tree.spread[b]
        tree.spread[nodes] = spread + outer(np.sqrt(keep * share)[:, None] * delta)


def _levels(tree: Tree) -> list[IntArray]:
    """Inner nodes by depth."""
    levels, nodes = [], np.zeros(1, dtype=np.int64)
    while nodes.size:
        nodes = nodes[tree.left[nodes] >= 0]
        levels.append(nodes)
        nodes = np.concatenate([tree.left[nodes], tree.right[nodes]])
    return levels


def top(tree: Tree, at_most: int) -> IntArray:
    """The deepest full level with at most that many nodes, as a first frontier."""
    frontier = np.zeros(1, dtype=np.int64)
    while True:
        inner = tree.left[frontier] >= 0
        below = np.concatenate([frontier[~inner], tree.left[frontier[inner]], tree.right[frontier[inner]]])
        if below.size == frontier.size or below.size > at_most:
            return np.sort(frontier)
        frontier = below


def leaves(tree: Tree) -> IntArray:
    """The finest frontier."""
    return np.flatnonzero(tree.left < 0)


def cells_of(family: AnyFamily, tree: Tree, frontier: IntArray, origin: Origin) -> Cells:
    """The nodes of a frontier as cells."""
    rows = tree.rows[frontier]
    return Cells(
        family,
        origin,
        tree.location[frontier],
        tree.mass[frontier],
        rows,
        float(tree.mass[0] * tree.log_carrier[0]),
        tree.spread[frontier],
        float(tree.mass[0]),
    )


def expanded(model: Model, tree: Tree, frontier: IntArray, state: State, most: float) -> tuple[IntArray, float]:
    """The frontier with its costliest nodes opened until tying costs at most `most` nats, and the cost before that.

    The cost of a node is the rise of the bound when its leaves no longer share responsibilities, at fixed parameters:
    the sum of n log sum exp S over its leaves, less its own. It is never negative. All levels below count: with a
    look-ahead of one level the search stops early where a cluster needs two cuts.
    """
    slopes, offsets = scorer(model, state)
    own = np.empty(len(tree.mass))
    step = max(64, (1 << 20) // max(len(offsets), 1))
    for start in range(0, own.size, step):
        part = slice(start, start + step)
        own[part] = normalize(slopes, offsets, tree.rows[part])[1]
    own *= tree.mass
    free = own.copy()
    for nodes in reversed(_levels(tree)):
        free[nodes] = free[tree.left[nodes]] + free[tree.right[nodes]]
    cost = free - own
    before = total = float(cost[frontier].sum())
    heap: list[Any] = [(-cost[node], int(node)) for node in frontier if tree.left[node] >= 0]
    heapq.heapify(heap)
    closed = set(frontier.tolist())
    while heap and total > most:
        lost, node = heapq.heappop(heap)
        closed.remove(node)
        total += lost
        for child in (int(tree.left[node]), int(tree.right[node])):
            closed.add(child)
            total += float(cost[child])
            if tree.left[child] >= 0:
                heapq.heappush(heap, (-cost[child], child))
    return np.array(sorted(closed), dtype=np.int64), before


def to_points(tree: Tree, frontier: IntArray, values: Array) -> Array:
    """Values (A, ...) of the frontier's nodes, copied to each of the N points."""
    result: Array = values[above(tree, frontier)[tree.leaf]]
    return result


def above(tree: Tree, frontier: IntArray) -> IntArray:
    """(M,) place in the frontier of the node that each node is or is below; -1 for nodes above the frontier."""
    place = np.full(len(tree.mass), -1)
    place[frontier] = np.arange(frontier.size)
    for nodes in _levels(tree):
        for below in (tree.left[nodes], tree.right[nodes]):
            place[below] = np.where(place[nodes] >= 0, place[nodes], place[below])
    return place
