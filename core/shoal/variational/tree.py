"""A tree over the points whose nodes keep the statistics of theirs: mass, location, mean of t(x), log carrier, scatter.

Points below a node of the frontier share their responsibilities, so that a round costs what the frontier is large
(Kurihara, Welling and Vlassis 2006, section 5). What is cached are means of t(x) and of log h(x), not of x: with those
of x alone the free energy bounds nothing (ERRATA 1.14).
"""

import heapq
from typing import Any, NamedTuple

import numpy as np

from shoal.arrays import Array, IntArray
from shoal.families import AnyFamily
from shoal.families.linalg import outer
from shoal.variational.tree_planes import Planes, leaves_of, planes_of
from shoal.variational.vdp_cells import Cells, group_of_points
from shoal.variational.vdp_features import Origin
from shoal.variational.vdp_state import Model, State, divide, scorer


class Tree(NamedTuple):
    """M nodes, children after their parent, the root first."""

    left: IntArray  # (M,) -1 for a leaf
    right: IntArray  # (M,)
    mass: Array  # (M,) points below
    location: Array  # (M, D) their mean
    rows: Array  # (M, P) mean of t(x)
    log_carrier: Array  # (M,) mean of log h(x)
    spread: Array  # (M, D, D) mean scatter about the location
    order: IntArray  # (N,) points such that those below a node are a run of them
    first: IntArray  # (M,) start of that run


def grow(family: AnyFamily, x: Array, origin: Origin, leaf_points: float, rng: np.random.Generator) -> Tree:
    """The tree of points x (N, D) with leaves of about `leaf_points` points; 1: every distinct point a leaf."""
    planes = planes_of(x, leaf_points, rng)
    leaf = leaves_of(planes, x)
    depth_first = _depth_first(planes)
    rank = np.empty(planes.n_nodes, dtype=np.int64)
    rank[depth_first] = np.arange(planes.n_nodes)
    keys = rank[leaf].astype(np.uint16) if planes.n_nodes < 1 << 16 else rank[leaf]  # radix sort below 65,536 nodes
    order = np.argsort(keys, kind="stable")
    count = np.bincount(leaf, minlength=planes.n_nodes)
    return _filled(family, x[order], origin, planes, count, order, depth_first)


def _depth_first(planes: Planes) -> IntArray:
    """Nodes with every one before those below it, left before right."""
    found, waiting = [], [0]
    while waiting:
        node = waiting.pop()
        found.append(node)
        if planes.left[node] >= 0:
            waiting += [int(planes.right[node]), int(planes.left[node])]
    return np.array(found)


def _filled(
    family: AnyFamily, x: Array, origin: Origin, planes: Planes, count: IntArray, order: IntArray, depth_first: IntArray
) -> Tree:
    """Statistics of the leaves from their points (x is in tree order), sums upwards."""
    m, d = planes.n_nodes, x.shape[1]
    width = group_of_points(family, x[:1], origin).row.size
    tree = Tree(
        planes.left,
        planes.right,
        np.zeros(m),
        np.zeros((m, d)),
        np.zeros((m, width)),
        np.zeros(m),
        np.zeros((m, d, d)),
        order,
        np.zeros(m, dtype=np.int64),
    )
    start = 0
    for node in depth_first:
        tree.first[node] = start
        if planes.left[node] >= 0:
            continue
        group = group_of_points(family, x[start : start + count[node]], origin)
        start += int(count[node])
        tree.mass[node], tree.location[node], tree.rows[node] = group.mass, group.location, group.row
        tree.log_carrier[node], tree.spread[node] = group.log_carrier, group.spread
    _sum_upwards(tree)
    return tree


def _sum_upwards(tree: Tree) -> None:
    """Every inner node from its two children, level by level from the deepest."""
    for nodes in reversed(_levels(tree)):
        a, b = tree.left[nodes], tree.right[nodes]
        mass = tree.mass[a] + tree.mass[b]
        share = tree.mass[b] / mass
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
        np.abs(rows).max(axis=0),
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
        own[part] = divide(slopes, offsets, tree.rows[part])[1]
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
    by_run = np.argsort(tree.first[frontier], kind="stable")
    length = tree.mass[frontier][by_run].astype(np.int64)
    out = np.empty((len(tree.order), *values.shape[1:]))
    out[tree.order] = np.repeat(values[by_run], length, axis=0)
    return out
