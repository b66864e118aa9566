"""A tree over the points whose nodes keep the statistics of theirs: mass, location, mean of t(x), log carrier, scatter.

Points below a node of the frontier share their responsibilities, so that a round costs what the frontier is large
(Kurihara, Welling and Vlassis 2006, section 5). What is cached are means of t(x) and of log h(x), not of x: with those
of x alone the free energy bounds nothing (ERRATA 1.14).
"""

import heapq
from typing import Any, NamedTuple, cast

import numpy as np
from scipy.sparse import csr_array

from shoal.families import AnyFamily
from shoal.families.natural_statistics import Origin, Statistics, statistics, statistics_of_moments
from shoal.inference.locations import locations_of, units_of
from shoal.kernels.linalg import outer
from shoal.points.arrays import Array, IntArray
from shoal.points.rows import Points
from shoal.variational.cells import Cells
from shoal.variational.rounds import Model, State, normalize, scorer
from shoal.variational.tree_planes import Leaves, leaves_of, planes_of

_BLOCK_ROWS = 4096


class Tree(NamedTuple):
    """M nodes, children after their parent, the root first."""

    left: IntArray  # (M,) -1 for a leaf
    right: IntArray  # (M,)
    mass: Array  # (M,) points below
    location: Array  # (M, E) the mean of their locations (`inference.locations`)
    rows: Array  # (M, P) mean of t(x)
    log_carrier: Array  # (M,) mean of log h(x)
    spread: Array  # (M, E, E) mean scatter about the location
    leaf: IntArray  # (N,) the leaf of each point


def grow(family: AnyFamily, x: Points, origin: Origin, leaf_points: float, rng: np.random.Generator) -> Tree:
    """The tree of points x (N, D) with leaves of about `leaf_points` points; 1: every distinct point a leaf."""
    where = locations_of(family, x)
    planes = planes_of(where, leaf_points, rng, units_of(family))
    found = leaves_of(planes, where)
    means = statistics_of_moments(family, found.location, found.spread, origin)
    if means is None:
        means = _statistics_of_points(family, x, found, origin)
    m, d = planes.n_nodes, where.shape[1]
    tree = Tree(
        planes.left,
        planes.right,
        np.zeros(m),
        np.zeros((m, d)),
        np.zeros((m, means.rows.shape[1])),
        np.zeros(m),
        np.zeros((m, d, d)),
        found.node[found.of_point],
    )
    at = found.node
    tree.mass[at], tree.location[at], tree.spread[at] = found.mass, found.location, found.spread
    tree.rows[at], tree.log_carrier[at] = means.rows, means.log_carrier
    _sum_upwards(tree)
    return tree


def _statistics_of_points(family: AnyFamily, x: Points, found: Leaves, origin: Origin) -> Statistics:
    """Means over the leaves of any t(x) and log h(x), from the points."""
    width = statistics(family, x[:1], origin).rows.shape[1]
    rows, carrier = np.zeros((len(found.node), width)), np.zeros(len(found.node))
    for start in range(0, len(x), _BLOCK_ROWS):
        part = slice(start, start + _BLOCK_ROWS)
        block = statistics(family, x[part], origin)
        member = csr_array((np.ones(n := len(block.log_carrier)), (found.of_point[part], np.arange(n))), (len(rows), n))
        sums: Any = member @ block.rows
        rows += cast(Array, sums.toarray() if isinstance(sums, csr_array) else sums)
        carrier += np.asarray(member @ block.log_carrier)
    share = 1.0 / np.maximum(found.mass, 1.0)
    return Statistics(rows * share[:, None], carrier * share)


def _sum_upwards(tree: Tree) -> None:
    """Every inner node from its two children, level by level from the deepest."""
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
    """A first frontier: level by level, while it has at most that many nodes."""
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
    """The frontier with nodes opened, the worst first, until what tying costs is at most `most` nats; and that cost.

    A node costs sum over its leaves of n log sum exp S - the same of the node: by how much the bound rises if its
    leaves go free at the parameters as they are, never negative. All levels below count: one level's look-ahead stops
    early, where two cuts are needed to set a cluster free.
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
    """Values (A, ...) of the frontier's nodes for each of the N points."""
    result: Array = values[above(tree, frontier)[tree.leaf]]
    return result


def above(tree: Tree, frontier: IntArray) -> IntArray:
    """(M,) for every node which of the frontier's nodes (its place in there) it is or is below; -1 above them."""
    place = np.full(len(tree.mass), -1)
    place[frontier] = np.arange(frontier.size)
    for nodes in _levels(tree):
        for below in (tree.left[nodes], tree.right[nodes]):
            place[below] = np.where(place[nodes] >= 0, place[nodes], place[below])
    return place
