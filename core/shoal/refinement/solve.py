"""The refinement of a mixture: from a problem to a solution, judged by one functional before and after.

The functional is the bound of `inference.sweep`. Before, it is the bound of the live components after one E- and one
M-step, under the prior in force. After, it is the bound of the result, whose last step is an M-step too, under its own
prior. Both are lower bounds on the log evidence of the same points (window and past), each given its prior, with all
constants kept. Their difference is the gain of the refinement.

The prior may be estimated again from the components found (`inference.estimated_prior`).
"""

from typing import NamedTuple

import numpy as np

from shoal.errors import SettingError
from shoal.families import take
from shoal.families.prior_choices import restated
from shoal.inference import (
    Model,
    Search,
    State,
    StickPrior,
    WindowData,
    past_of,
    reestimated,
    reestimated_wholly,
    stats_by_share,
)
from shoal.mixture import Progress, ProgressCallback
from shoal.refinement.fixed_k import METHODS, reassigned, reassigned_by_leaves
from shoal.refinement.problem import Problem, RefinementMethod, Solution

_FEW_ROWS, _SURE_ROWS, _SOME_ROWS = 1_000, 10_000, 20_000
"""Window rows up to which a search also starts from one component, where nothing has left the window.

First: always, as early components are a poor start and the search is cheap. Second: where the first search moved and
the last refinement kept the structure. Third: where the first search moved and the structure is not confirmed. Splits
and joins may not escape from the structure that few rows suggested, such as two components that share a third
cluster."""
_MOST_COST = 5e7
"""Rows x components x parameters up to which that search takes seconds; above, it is not made."""
_NOT_CONVERGED = 2.0
"""Nats by which the first search must improve on the live components for them to count as a poor start."""
_MANY = 64
"""Components above which that search is not made: each of its rounds at best doubles their number."""


class _Found(NamedTuple):
    """A mixture, its priors, and the moves that led to it."""

    model: Model
    state: State
    splits: int
    joins: int


def solve(
    problem: Problem,
    *,
    method: RefinementMethod = "vdp",
    rng: np.random.Generator,
    progress: ProgressCallback = None,
    max_rounds: int = 15,
) -> Solution:
    """The best mixture found from the live one, in decreasing mass; the live one after a step if no other is better.

    `vdp` splits and joins components; the other methods divide the window again among the present components. At most
    `max_rounds` rounds of splits and joins. Deterministic given `rng`. Memory: sparse responsibilities, distance bounds
    (four bytes a row and component, up to 256 MiB), blocks of some MiB; the tree of `fast-vdp` has a matrix (D, D) a
    node. Raises SettingError for an unknown method.
    """
    observer = None
    if progress is not None:

        def observer(passes: int, bound: float, n_components: int, message: str) -> None:
            progress(Progress(passes, bound, n_components, message, None))

    data = WindowData(problem.rows, problem.weights, observer)
    search = _search(problem, data, rng)
    start = search.live_start(problem.live, past_of(problem.past))
    before = _Found(search.model, start, 0, 0)
    found = _searched(problem, search, start, max_rounds) if method == "vdp" else _fixed(search, start, method)
    return _solution(problem, data, before, found if found.state.bound > start.bound else before)


def _search(problem: Problem, data: WindowData, rng: np.random.Generator) -> Search:
    model = Model(problem.family, StickPrior(1.0, problem.concentration))
    estimate = reestimated_wholly if problem.hierarchical else reestimated
    return Search(data, model, rng, estimate if problem.reestimate_prior else None)


def _searched(problem: Problem, search: Search, start: State, max_rounds: int) -> _Found:
    """Splits and joins, from the live components, and from one component too where that costs little."""
    data, found = search.data, _run(search, start, max_rounds)
    if start.n_components > 1 and found.state.n_components <= _MANY and not np.any(start.past.mass > 0.0):
        cost = data.n_rows * found.state.n_components * problem.family.n_free_parameters
        most = _SURE_ROWS if problem.confirmed else _SOME_ROWS
        moved = found.state.bound > start.bound + _NOT_CONVERGED
        if data.n_rows <= _FEW_ROWS or (moved and data.n_rows <= most and cost <= _MOST_COST):
            other = _search(problem, data, search.rng)
            again = _run(other, other.single_start(start.n_components), max_rounds)
            found = again if again.state.bound > found.state.bound + search.worth else found
    return found


def _run(search: Search, start: State, max_rounds: int) -> _Found:
    end = search.run(start, max_rounds)
    return _Found(search.model, end, search.splits, search.joins)


def _fixed(search: Search, start: State, method: str) -> _Found:
    """Rounds with the present components, without splits or joins. The prior is estimated before and after."""
    if method != "fast-vdp" and method not in METHODS:
        names = ", ".join(("vdp", "fast-vdp", *METHODS))
        raise SettingError(f"method is {method!r}; choose one of {names}")
    state = search.with_prior(start)
    if method == "fast-vdp":
        state = reassigned_by_leaves(search.data, search.model, state, search.rng)
    else:
        state = reassigned(search.data, search.model, state, METHODS[method])
    state = search.with_prior(search.without_light(state))
    return _Found(search.model, state, 0, start.n_components - state.n_components)


def _solution(problem: Problem, data: WindowData, before: _Found, found: _Found) -> Solution:
    family, state = found.model.family, found.state
    order = np.argsort(-state.mass, kind="stable")
    place = np.argsort(order, kind="stable")
    given = problem.past._replace(stats=restated(family, problem.past.stats, problem.family))
    past, past_row = stats_by_share(family, state.past, given)
    return Solution(
        family=family,
        stats=take(state.stats, order),
        resp=state.resp[:, order].tocsr(),
        live_resp=before.state.resp,
        past_stats=take(past, order),
        past_pairs=state.past.pairs[np.ix_(order, order)],
        past_entropy=state.past.entropy,
        past_row=place[past_row],
        bound_before=before.state.bound,
        bound_after=state.bound,
        tail_mass=state.dropped,
        rounds=data.passes,
        changed=found.splits + found.joins > 0,
        report={
            "splits": found.splits,
            "joins": found.joins,
            "prior_changed": family != problem.family,
            "components_before": before.state.n_components,
            "components_after": state.n_components,
        },
    )
