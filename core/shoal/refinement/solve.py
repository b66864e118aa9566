"""The refinement of a mixture: from a problem to a solution, judged by one functional before and after.

The functional is the bound of `inference.sweep`. Before, it is the bound of the live components after one E- and one
M-step, under the prior in force. After, it is the bound of the result, whose last step is an M-step too, under its own
prior. Both are lower bounds on the log evidence of the same points (window and past), each given its prior, with all
constants kept. Their difference is the gain of the refinement.

The prior may be estimated again from the components found (`inference.estimated_prior`).
"""

from functools import partial
from typing import Any

import numpy as np

from shoal.errors import SettingError
from shoal.families import take
from shoal.families.prior_choices import restated
from shoal.inference import (
    Found,
    Model,
    Search,
    State,
    StickPrior,
    WindowData,
    best_found,
    past_of,
    reestimated,
    reestimated_wholly,
    stats_by_share,
)
from shoal.mixture import Progress, ProgressCallback
from shoal.refinement.fixed_k import METHODS, reassigned, reassigned_by_leaves
from shoal.refinement.problem import Problem, RefinementMethod, Solution

_LEAST_A_PARAMETER = 1e-4
"""Nats for every free parameter of the mixture that a last sweep must gain. Each gains about half a nat from chance
alone (Wilks 1938), so that later sweeps change nothing that the data could tell apart."""


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

    data = WindowData(problem.rows, problem.bound_weights, observer)
    search = _search(problem, data, rng)
    start = search.live_start(problem.start, past_of(problem.past))
    before = Found(search.model, start, 0, 0)
    if method == "vdp":
        again = partial(_search, problem, data, rng)
        found = best_found(search, start, max_rounds, again, confirmed=problem.confirmed)
    else:
        found = _fixed(search, start, method)
    return _solution(problem, data, before, found if found.state.bound > start.bound else before)


def _search(problem: Problem, data: WindowData, rng: np.random.Generator) -> Search:
    model = Model(problem.family, StickPrior(1.0, problem.concentration))
    estimate = reestimated_wholly if problem.hierarchical else reestimated
    estimate_prior = estimate if problem.reestimate_prior else None
    return Search(data, model, rng, estimate_prior, least_a_parameter=_LEAST_A_PARAMETER)


def _fixed(search: Search, start: State, method: str) -> Found:
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
    return Found(search.model, state, 0, start.n_components - state.n_components)


def _solution(problem: Problem, data: WindowData, before: Found, found: Found) -> Solution:
    family, state = found.model.family, found.state
    given = problem.past._replace(stats=restated(family, problem.past.stats, problem.family))
    past, past_row = stats_by_share(family, state.past, given)
    stats = state.stats if problem.copies == 1 else _stats_of_all(problem, found)
    order = np.argsort(-stats[0], kind="stable")
    place = np.argsort(order, kind="stable")
    return Solution(
        family=family,
        stats=take(stats, order),
        resp=state.resp[:, order].tocsr(),
        live_resp=before.state.resp,
        past_stats=take(past, order),
        past_pairs=state.past.pairs[np.ix_(order, order)],
        past_entropy=state.past.entropy,
        past_row=place[past_row],
        bound_before=before.state.bound,
        bound_after=state.bound,
        tail_mass=problem.copies * state.dropped,
        rounds=data.passes,
        changed=found.splits + found.joins > 0,
        report={
            "splits": found.splits,
            "joins": found.joins,
            "prior_changed": family != problem.family,
        },
    )


def _stats_of_all(problem: Problem, found: Found) -> Any:
    """Statistics of past and window (T') in which every copy of a row counts."""
    family, state = found.model.family, found.state
    data = WindowData(problem.rows, problem.weights)
    window = data.suffstats_under(family, state.resp, family.posterior(state.stats))
    return family.add(window, state.past.stats)
