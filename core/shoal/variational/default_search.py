"""The default search of `vdp` and `fast-vdp`: that of `inference`, on points or on the nodes of a tree.

It keeps the tail empty and raises the bound with q(z > T) = 0, which is a bound too. Rounds with the tail follow and
raise it further. Where points are few, components are also released one by one by the paper's rule, and the search goes
on from there as from a second start. With the same generator this is the run of the paper's rule itself, so the default
does not end below it.
"""

from typing import Any

import numpy as np

from shoal.families import AnyFamily
from shoal.families.natural_statistics import Origin, natural_gain, seen_from
from shoal.inference import Model as SearchModel
from shoal.inference import PastStats, Search, WindowData, no_past, sweep_from_params
from shoal.inference import State as SearchState
from shoal.points.arrays import Array, IntArray
from shoal.variational.cells import Cells
from shoal.variational.greedy_release import release
from shoal.variational.node_family import NodeFamily, node_rows
from shoal.variational.rounds import Model, State, Totals, model_of, without_past
from shoal.variational.run import Run

FEW = 2000
FEW_ELEMENTS = 1 << 23
"""Points, or elements of their statistics, up to which components are also released one by one: a million points in the
plane, 54,000 in 16-D, 6,300 in 50-D."""
_MAX_ROUNDS, _SPLIT_TRIALS = 100, 5


def few_points(cells: Cells) -> bool:
    """Whether components are released one by one as well."""
    return cells.n_points <= FEW or cells.n_cells * cells.width <= FEW_ELEMENTS


def search_points(run: Run, cells: Cells, state: State) -> State:
    """The search on single points from a state, and the paper's rule from where it ends, in turns.

    Where components overlap much, a split may lose hundreds of nats and win more while everything settles. The search
    judges splits by less than that; the paper's rule settles them all.
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
    """The model's past by component: the rows `past_row` (T,) of it, -1 standing for none."""
    family, past = model.family, model.past
    if past.mass.size == 0:
        return no_past(family, past_row.size)
    has = past_row >= 0
    both = (np.concatenate(fields)[past_row] for fields in zip(past.stats, family.empty_stats(1), strict=True))
    pairs = np.where(has[:, None] & has, past.pairs[np.ix_(past_row, past_row)], 0.0)
    return PastStats(type(past.stats)(*both), pairs, past.entropy, past.share[past_row] * has[:, None])


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
    start = sweep_from_params(data, model, params, state.totals.mass[:-1], past, tags)
    data.count_pass(start.bound, start.n_components, "starting")
    search = Search(data, model, run.rng, None, run.threshold, _SPLIT_TRIALS, lambda kept: run.accept(kept.bound))
    end = search.run(start, _MAX_ROUNDS)
    return _state_of(run, cells, end, natural_gain(family, end.stats, origin)) if end.bound > state.elbo else state


def _state_of(run: Run, cells: Cells, end: SearchState, natural: Array) -> State:
    """The end of a search as a state of rounds; its past becomes the model's."""
    past_row = without_past(end.n_components)
    if run.model.past.mass.size:
        run.model = model_of(run.model.family, run.model.sticks, run.model.origin, end.past)
        past_row = np.arange(end.n_components)
        natural = natural - run.model.past_natural[past_row]
    totals = Totals(np.vstack([natural, np.zeros(natural.shape[1])]), np.append(end.window_mass, 0.0), end.entropy)
    return run.fitted(cells, totals, past_row)
