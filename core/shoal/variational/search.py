"""The default search of `vdp` and `fast-vdp`: the search of `inference`, on points or on the nodes of a tree.

It keeps the tail empty and raises the bound with q(z > T) = 0, which is a bound too. Rounds with the tail follow and
raise it further. On few points, components are also released one by one by the paper's rule. The search continues from
there as from a second start. With the same generator this is the run of the paper's rule itself, so the default does
not end below it.
"""

from typing import Any, Literal, NamedTuple

import numpy as np

from shoal.families import AnyFamily, concatenated, take
from shoal.families.natural_statistics import Origin, natural_gain, seen_from
from shoal.inference import Model as SearchModel
from shoal.inference import PastStats, Search, SweepStart, WindowData, no_past, swept_from
from shoal.inference import State as SearchState
from shoal.points.arrays import Array, IntArray
from shoal.variational.cells import Cells, NodeFamily, node_rows
from shoal.variational.greedy_release import release
from shoal.variational.rounds import Model, Run, State, Totals, model_of, without_past
from shoal.variational.tree import Tree, cells_of, expanded, grow_tree, leaves, top

Moves = Literal["default", "paper"]

_FIRST_NODES = 64
"""Nodes that the search starts on."""
_LEAF_POINTS, _TYING, _POINT_ROUNDS = 30.0, 1e-3, 10
"""Limits of a start on a tree: least points a leaf, most nats a point that tying may cost, and rounds on single points
afterwards."""
_ELEMENTS = 1 << 26
"""Most elements of such a tree, 512 MiB; beyond, its leaves are larger."""
_NODES_A_LEAF, _WIDTHS_A_NODE = 3.2, 3.0
"""Nodes over N / _LEAF_POINTS (leaves end smaller than their limit), and elements of a node with its scatter over those
of a component's statistics; both measured."""
FEW = 2000
FEW_ELEMENTS = 1 << 23
"""Points, or elements of their statistics, up to which components are also released one by one: a million points in the
plane, 54,000 in 16-D, 6,300 in 50-D."""
_MAX_ROUNDS, _SPLIT_TRIALS = 100, 5


def few_points(cells: Cells) -> bool:
    """Whether components are released one by one as well."""
    return cells.n_points <= FEW or cells.n_cells * cells.width <= FEW_ELEMENTS


def search_points(run: Run, cells: Cells, state: State) -> State:
    """The search on single points from a state, alternating with the paper's rule.

    Where components overlap much, a split may lose hundreds of nats at first and gain more while everything settles.
    The search judges a split before that; the paper's rule judges it after.
    """
    assert cells.points is not None, "every point is a cell"
    while True:
        past = past_in_order(run.model, state.past_row)
        state = _searched(run, cells, cells.family, cells.points, cells.origin, state, past)
        state = run.settle(cells, state, "settling")
        released, _ = release(run, cells, state, give_up=True)
        if run.exhausted or released.elbo - state.elbo <= run.threshold:
            return released if released.elbo > state.elbo else state
        state = released


def search_nodes(run: Run, cells: Cells, log_carrier: Array, state: State) -> State:
    """The search on nodes; log_carrier (A,) is the mean of log h(x) in each. There is no past."""
    nodes: Any = NodeFamily(cells.family, cells.origin, cells.width, cells.location.shape[1])
    at_zero = Origin(np.zeros(nodes.n_features), False)
    past = no_past(nodes, state.n_components)
    return _searched(run, cells, nodes, node_rows(cells, log_carrier), at_zero, state, past)


def better_of_two_starts(run: Run, cells: Cells, state: State) -> State:
    """The better of the searches from `state` and from the components of the paper's rule."""
    greedy, _ = release(run, cells, state)
    model = run.model
    first = search_points(run, cells, greedy)
    first_model, run.model = run.model, model
    second = search_points(run, cells, state)
    if second.elbo > first.elbo + run.threshold:
        return second
    run.model = first_model
    return first


def past_in_order(model: Model, past_row: IntArray) -> PastStats:
    """The past of each component: rows `past_row` (T,) of the model's past, -1 for none."""
    family, past = model.family, model.past
    if past.mass.size == 0:
        return no_past(family, past_row.size)
    has = past_row >= 0
    stats = take(concatenated(past.stats, family.empty_stats(1)), past_row)
    pairs = np.where(has[:, None] & has, past.pairs[np.ix_(past_row, past_row)], 0.0)
    return PastStats(stats, pairs, past.entropy, past.share[past_row] * has[:, None])


def _searched(
    run: Run, cells: Cells, family: AnyFamily, x: Any, origin: Origin, state: State, past: PastStats
) -> State:
    def observe(passes: int, bound: float, n_components: int, message: str) -> None:
        run.note(bound, n_components, message, trial=True)

    data = WindowData(x, cells.mass, observe, run.max_iter + 1 - len(run.history))
    if data.exhausted:
        return state
    model = SearchModel(family, run.model.sticks)
    params = seen_from(family, state.params, Origin(-origin.point, origin.located))
    tags = np.arange(state.n_components)
    start = swept_from(data, model, SweepStart(params, state.totals.mass[:-1], past, tags))
    data.count_pass(start.bound, start.n_components, "starting")
    search = Search(data, model, run.rng, None, run.threshold, _SPLIT_TRIALS, lambda kept: run.accept(kept.bound))
    end = search.run(start, _MAX_ROUNDS)
    return _state_of(run, cells, end, natural_gain(family, end.stats, origin)) if end.bound > state.elbo else state


def _state_of(run: Run, cells: Cells, end: SearchState, natural: Array) -> State:
    """The result of a search as a state of rounds; its past becomes that of the model."""
    past_row = without_past(end.n_components)
    if run.model.past.mass.size:
        run.model = model_of(run.model.family, run.model.sticks, run.model.origin, end.past)
        past_row = np.arange(end.n_components)
        natural = natural - run.model.past_natural[past_row]
    totals = Totals(np.vstack([natural, np.zeros(natural.shape[1])]), np.append(end.window_mass, 0.0), end.entropy)
    return run.fitted(cells, totals, past_row)


class Found(NamedTuple):
    """The result of a search on a tree."""

    frontier: IntArray  # (A,) nodes of the tree
    cells: Cells
    state: State
    cost: float  # nats that the bound would gain if leaves no longer shared responsibilities
    converged: bool


def search_on_tree(run: Run, tree: Tree, expansion: float, moves: Moves, start: State | None = None) -> Found:
    """Search for components on a frontier, then open nodes where tying costs most, and repeat.

    From one component on the top nodes, or from a state `start` on the leaves.
    `expansion`: nats a point that tying may cost at the end. Each expansion goes to half of it, so that few are needed.
    """
    family, n = run.model.family, float(tree.mass[0])
    frontier = top(tree, _FIRST_NODES) if expansion > 0.0 and start is None else leaves(tree)
    cells = cells_of(family, tree, frontier, run.model.origin)
    state = run.start(cells) if start is None else start
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
    """Components of points x (N, D): searched on a tree, whose nodes tie responsibilities, then settled on the points.

    The bound continues to rise on single points.
    """
    per_leaf = _NODES_A_LEAF * _WIDTHS_A_NODE * cells.n_cells * cells.width / _ELEMENTS
    tree = grow_tree(cells.family, x, run.model.origin, max(_LEAF_POINTS, per_leaf), run.rng)
    found = search_on_tree(run, tree, _TYING, "default")
    return run.settle(cells, found.state, "settling points", _POINT_ROUNDS)
