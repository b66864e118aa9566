"""The search for components on the nodes of a tree: that of Fast-VDP, and before single points that of VDP."""

from typing import Any, Literal, NamedTuple

from shoal.points.arrays import IntArray
from shoal.variational.cells import Cells
from shoal.variational.default_search import FEW, search_nodes
from shoal.variational.greedy_release import release
from shoal.variational.rounds import State
from shoal.variational.run import Run
from shoal.variational.tree import Tree, cells_of, expanded, grow, leaves, top

Moves = Literal["default", "paper"]

_FIRST_NODES = 64
"""Nodes that the search starts on."""
_LEAF_POINTS, _TYING, _POINT_ROUNDS = 30.0, 1e-3, 10
"""Of a start on a tree: points a leaf at least, nats a point that tying may cost, and rounds on single points that
follow."""
_ELEMENTS = 1 << 26
"""Elements of such a tree, 512 MiB: leaves are larger where there would be more."""
_NODES_A_LEAF, _WIDTHS_A_NODE = 3.2, 3.0
"""Nodes for N / _LEAF_POINTS leaves (they end smaller than asked for), and elements of one, with its scatter, for those
of a component's statistics; both as measured."""


class Found(NamedTuple):
    """The end of a search."""

    frontier: IntArray  # (A,) nodes of the tree
    cells: Cells
    state: State
    cost: float  # nats that freeing the leaves would gain at once
    converged: bool


def search_on_tree(run: Run, tree: Tree, expansion: float, moves: Moves) -> Found:
    """Components on a frontier, then nodes opened where tying costs most, in turns.

    `expansion`: nats a point that tying may cost in the end. Half of it is left each time, so that turns are few.
    """
    family, n = run.model.family, float(tree.mass[0])
    frontier = top(tree, _FIRST_NODES) if expansion > 0.0 else leaves(tree)
    cells = cells_of(family, tree, frontier, run.model.origin)
    state = run.start(cells)
    while True:
        state = run.settle(cells, state, "settling")
        if moves == "paper" or n <= FEW:
            state, _ = release(run, cells, state)
        if moves == "default":
            state = run.settle(cells, search_nodes(run, cells, tree.log_carrier[frontier], state), "settling")
        opened, cost = expanded(run.model, tree, frontier, state, 0.5 * expansion * n)
        if run.exhausted or cost <= expansion * n or opened.size <= frontier.size:
            return Found(frontier, cells, state, cost, not run.exhausted)
        frontier, cells = opened, cells_of(family, tree, opened, run.model.origin)


def start_on_tree(run: Run, cells: Cells, x: Any) -> State:
    """Components of points x (N, D), found while points in one leaf share their responsibilities, then freed.

    The bound goes on rising where they are freed.
    """
    per_leaf = _NODES_A_LEAF * _WIDTHS_A_NODE * cells.n_cells * cells.width / _ELEMENTS
    tree = grow(cells.family, x, run.model.origin, max(_LEAF_POINTS, per_leaf), run.rng)
    found = search_on_tree(run, tree, _TYING, "default")
    return run.settle(cells, found.state, "settling points", _POINT_ROUNDS)
