"""The refinement of a mixture: from a problem to a solution, judged by one functional before and after.

The functional is the bound of `inference.m_step`. Before, it is the bound of the live components after one E- and one
M-step, under the prior in force. After, it is the bound of the result, whose last step is an M-step too, under its own
prior. Both are lower bounds on the log evidence of the same points (window and past), each given its prior, with all
constants kept. Their difference is the gain of the refinement. Where the prior was estimated again this is type II
maximum likelihood.
"""

from typing import NamedTuple

import numpy as np

from shoal.errors import SettingError
from shoal.families import take
from shoal.families.prior_choices import restated
from shoal.inference import Model, Search, State, StickPrior, WindowData, no_past, past_of, sweep_from_stats
from shoal.inference.past import stats_by_share
from shoal.inference.search import SETTLED_SHARE, WORTH
from shoal.inference.sweep import converged
from shoal.mixture.batch import Progress, ProgressCallback
from shoal.refinement.fixed_k import METHODS, reassigned, reassigned_by_leaves
from shoal.refinement.prior import reestimated
from shoal.refinement.problem import Problem, RefinementMethod, Solution

_FEW_ROWS, _SURE_ROWS, _SOME_ROWS = 1_000, 10_000, 20_000
"""Window rows up to which a search also starts from one component, where nothing has left the window.

First: always, as early components are a poor start and the search is cheap. Second: where the first search moved and
the last refinement kept the structure. Third: where the first search moved and the structure is not confirmed. Splits
and joins may not escape from the structure that few rows suggested, such as two components that share a third
cluster."""
_MOST_WORK = 5e7
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
    model = Model(problem.family, StickPrior(1.0, problem.concentration))
    start = _start(problem, data, model)
    before = _Found(model, start, 0, 0)
    if method == "vdp":
        found = _searched(problem, data, model, start, rng, max_rounds)
    else:
        found = _fixed(problem, data, model, start, method, rng)
    return _solution(problem, data, before, found if found.state.bound > start.bound else before)


def _start(problem: Problem, data: WindowData, model: Model) -> State:
    """The live components after one E- and one M-step."""
    past = past_of(problem.past)
    tags = np.arange(len(problem.live[0]))
    seen = np.maximum(problem.live[0] - past.mass, 0.0)
    family = problem.family
    state = sweep_from_stats(data, model, problem.live, seen, past, tags)
    least = SETTLED_SHARE * WORTH * data.total
    return state._replace(converged=converged(family, family.posterior(problem.live), seen, state, least))


def _search(problem: Problem, data: WindowData, model: Model, rng: np.random.Generator) -> Search:
    return Search(data, model, rng, reestimated if problem.reestimate_prior else None)


def _searched(
    problem: Problem, data: WindowData, model: Model, start: State, rng: np.random.Generator, max_rounds: int
) -> _Found:
    """Splits and joins, from the live components, and from one component too where that costs little."""

    def searched(state: State) -> _Found:
        search = _search(problem, data, model, rng)
        end = search.run(state, max_rounds)
        return _Found(search.model, end, search.splits, search.joins)

    found = searched(start)
    if start.n_components > 1 and found.state.n_components <= _MANY and not np.any(start.past.mass > 0.0):
        work = data.n_rows * found.state.n_components * problem.family.n_free_parameters
        most = _SURE_ROWS if problem.confirmed else _SOME_ROWS
        moved = found.state.bound > start.bound + _NOT_CONVERGED
        if data.n_rows <= _FEW_ROWS or (moved and data.n_rows <= most and work <= _MOST_WORK):
            again = searched(_one(problem, data, model))
            found = again if again.state.bound > found.state.bound + WORTH * data.total else found
    return found


def _one(problem: Problem, data: WindowData, model: Model) -> State:
    """All points in one component; there is no past."""
    stats = data.suffstats(problem.family, [slice(None)], [np.ones(data.n_rows)])
    past = no_past(problem.family, 1)._replace(share=np.ones((1, len(problem.live[0]))))
    return sweep_from_stats(data, model, stats, stats[0], past, np.zeros(1, dtype=np.int64))


def _fixed(
    problem: Problem, data: WindowData, model: Model, start: State, method: str, rng: np.random.Generator
) -> _Found:
    """Rounds with the present components, without splits or joins. The prior is estimated before and after."""
    if method != "fast-vdp" and method not in METHODS:
        names = ", ".join(("vdp", "fast-vdp", *METHODS))
        raise SettingError(f"method is {method!r}; choose one of {names}")
    search = _search(problem, data, model, rng)
    state = search.with_prior(start)
    if method == "fast-vdp":
        state = reassigned_by_leaves(data, search.model, state, rng)
    else:
        state = reassigned(data, search.model, state, METHODS[method])
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
