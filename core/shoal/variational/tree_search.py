"""The search for components on the nodes of a tree: Fast-VDP's, and with single points to follow the start of VDP's."""

from typing import Any, Literal, NamedTuple

from shoal.families import AnyFamily
from shoal.points.arrays import IntArray
from shoal.variational.tree import Tree, cells_of, expanded, grow, leaves, top
from shoal.variational.vdp_cells import Cells
from shoal.variational.vdp_default import FEW, bursts, improve, polish
from shoal.variational.vdp_paper import release
from shoal.variational.vdp_run import Run
from shoal.variational.vdp_start import start
from shoal.variational.vdp_state import State

Moves = Literal["default", "paper"]

_FIRST_NODES = 64
"""Nodes that the search starts on."""
_LEAF_POINTS, _TYING, _POINT_ROUNDS = 30.0, 1e-3, 10
"""Of a start on a tree: points a leaf at least, nats a point that tying may cost, and rounds on single points that
follow."""
_ELEMENTS = 1 << 26
"""Of such a tree, 512 MiB: leaves are larger where there would be more."""
_NODES_A_LEAF, _WIDTHS_A_NODE = 3.2, 3.0
"""Nodes for N / _LEAF_POINTS leaves (they end smaller than asked for), and elements of one, its scatter included, for
those of a component's statistics; both as measured."""


class Found(NamedTuple):
    """What the search ends with."""

    frontier: IntArray  # (A,) nodes of the tree
    cells: Cells
    state: State
    cost: float  # nats that freeing the leaves would gain at once
    converged: bool


def search_on_tree(run: Run, tree: Tree, expansion: float, moves: Moves) -> Found:
    """Components on a frontier, then nodes opened where tying costs most, in turns; the finer search comes last.

    `expansion`: nats a point that tying may cost in the end; half of it is left each time, so that there are few turns.
    """
    family, n = run.model.family, float(tree.mass[0])
    frontier = top(tree, _FIRST_NODES) if expansion > 0.0 else leaves(tree)
    cells = cells_of(family, tree, frontier, run.model.origin)
    state = start(run, cells, None)
    searches = (release,) if moves == "paper" else (bursts, improve if n <= FEW else polish)
    stage = 0
    while True:
        state, converged = searches[stage](run, cells, run.settle(cells, state, "settling"))
        opened, cost = expanded(run.model, tree, frontier, state, 0.5 * expansion * n)
        if not run.exhausted and cost > expansion * n and opened.size > frontier.size:
            frontier, cells = opened, cells_of(family, tree, opened, run.model.origin)
        elif run.exhausted or stage == len(searches) - 1:
            return Found(frontier, cells, state, cost, converged)
        else:
            stage += 1


def start_on_tree(run: Run, cells: Cells, family: AnyFamily, x: Any) -> State:
    """Components of points x (N, D), found while points in one leaf share their responsibilities, then set free.

    The bound goes on rising where they are freed. From here the default search ended .048 nats a point above where it
    ended from bursts of splits on all points on 60,000 digits in 50-D, in a fifth more time.
    """
    per_leaf = _NODES_A_LEAF * _WIDTHS_A_NODE * cells.n_cells * cells.reach.size / _ELEMENTS
    tree = grow(family, x, run.model.origin, max(_LEAF_POINTS, per_leaf), run.rng)
    found = search_on_tree(run, tree, _TYING, "default")
    return run.settle(cells, found.state, "settling points", _POINT_ROUNDS)
