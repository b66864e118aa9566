"""The refinement of a mixture: from a problem to a solution that is judged by one functional, before and after.

The functional is the one of `sweeps`. Before: the live components, after one E- and one M-step, under the prior in
force. After: the result, its last step an M-step too, under its own prior. Both are lower bounds on the log evidence of
the same points (window and past), each given its prior, with the same constants kept, so that their difference says by
how much more the second explains the points: type II maximum likelihood where the prior was re-estimated.
"""

from typing import NamedTuple

import numpy as np

from shoal.errors import SettingError
from shoal.families import take
from shoal.families.prior_choices import restated
from shoal.mixture.batch import ProgressCallback
from shoal.refinement.ground import Ground
from shoal.refinement.held import Held, held_of, released
from shoal.refinement.problem import Problem, RefinementMethod, Solution
from shoal.refinement.redivide import METHODS, redivided
from shoal.refinement.search import SETTLED, WORTH, Search
from shoal.refinement.sweeps import Model, State, at_rest, resumed
from shoal.refinement.tied import redivided_by_leaves

_FEW_ROWS, _SURE_ROWS, _SOME_ROWS = 1_000, 10_000, 20_000
"""Window rows up to which a search also starts from one component, where nothing has left the window: early components
are a poor start, and the search is cheap. Up to the last only where the live components were not at rest: what few
rows suggested, say two components that share a third cluster, is a place that splits and joins do not lead out of. Up
to the second where the last refinement left the structure as it was: of clusters that overlap more rows tell more."""
_SOME_WORK = 5e7
"""Rows x components x parameters of one, above which that search is not worth its time: seconds, or minutes beyond."""
_RESTLESS = 2.0
"""Nats by which the live components must have been improved on, to be doubted as a start."""
_MANY = 64
"""Components found above which it is not made: it parts them a generation at a time and ends far behind."""


class _Found(NamedTuple):
    """A mixture and how it came about."""

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
    """The best mixture found from the live one, in decreasing mass; the live one after a step if none is better.

    `vdp` splits and joins components; the others re-divide the window among those that there are. At most `max_rounds`
    rounds of splits and joins. Deterministic given `rng`. Memory: sparse responsibilities, bounds of distances
    (two bytes a row and component, up to 256 MiB), blocks of some MiB; the tree of `fast-vdp` has a matrix (D, D) a
    node. Raises SettingError for a method that there is not.
    """
    ground = Ground(problem.rows, problem.weights, progress)
    start = _start(problem, ground)
    before = _Found(Model(problem.family, problem.concentration), start, 0, 0)
    if method == "vdp":
        found = _searched(problem, ground, start, rng, max_rounds)
    else:
        found = _redivided(problem, ground, start, method, rng)
    return _solution(problem, ground, before, found if found.state.bound > start.bound else before)


def _start(problem: Problem, ground: Ground) -> State:
    """The live components after one E- and one M-step."""
    held = held_of(problem.past)
    tags = np.arange(len(problem.live[0]))
    seen = np.maximum(problem.live[0] - held.mass, 0.0)
    family = problem.family
    state = resumed(ground, Model(family, problem.concentration), problem.live, seen, held, tags)
    return state._replace(at_rest=at_rest(family, family.posterior(problem.live), seen, state, SETTLED * ground.total))


def _searched(problem: Problem, ground: Ground, start: State, rng: np.random.Generator, max_rounds: int) -> _Found:
    """Splits and joins, from the live components; also from one where that costs little."""
    least = WORTH * ground.total

    def searched(state: State) -> _Found:
        search = Search(ground, Model(problem.family, problem.concentration), rng, problem.reestimate_prior)
        end = search.run(state, max_rounds)
        return _Found(search.model, end, search.splits, search.joins)

    found = searched(start)
    if start.n_components > 1 and found.state.n_components <= _MANY and not np.any(start.held.mass > 0.0):
        work = ground.n_rows * found.state.n_components * problem.family.n_free_parameters
        most = _SURE_ROWS if problem.confirmed else _SOME_ROWS
        moved = found.state.bound > start.bound + _RESTLESS
        if ground.n_rows <= _FEW_ROWS or (moved and ground.n_rows <= most and work <= _SOME_WORK):
            anew = searched(_one(problem, ground))
            found = anew if anew.state.bound > found.state.bound + least else found
    return found


def _one(problem: Problem, ground: Ground) -> State:
    """All points in one component; there is no past."""
    family, model = problem.family, Model(problem.family, problem.concentration)
    stats = ground.suffstats(family, [slice(None)], [np.ones(ground.n_rows)])
    held = Held(family.empty_stats(1), np.zeros((1, 1)), 0.0, np.ones((1, len(problem.live[0]))))
    return resumed(ground, model, stats, stats[0], held, np.zeros(1, dtype=np.int64))


def _redivided(problem: Problem, ground: Ground, start: State, method: str, rng: np.random.Generator) -> _Found:
    """No component is born or joined; the prior is estimated before and after."""
    if method != "fast-vdp" and method not in METHODS:
        names = ", ".join(("vdp", "fast-vdp", *METHODS))
        raise SettingError(f"method is {method!r}; choose one of {names}")
    search = Search(ground, Model(problem.family, problem.concentration), rng, problem.reestimate_prior)
    state = search.with_prior(start)
    if method == "fast-vdp":
        state = redivided_by_leaves(ground, search.model, state, rng)
    else:
        state = redivided(ground, search.model, state, METHODS[method])
    state = search.with_prior(search.without_light(state))
    return _Found(search.model, state, 0, start.n_components - state.n_components)


def _solution(problem: Problem, ground: Ground, before: _Found, found: _Found) -> Solution:
    family, state = found.model.family, found.state
    order = np.argsort(-state.mass, kind="stable")
    place = np.argsort(order, kind="stable")
    given = problem.past._replace(stats=restated(family, problem.past.stats, problem.family))
    past, past_row = released(family, state.held, given)
    return Solution(
        family=family,
        stats=take(state.stats, order),
        resp=state.resp[:, order].tocsr(),
        live_resp=before.state.resp,
        past_stats=take(past, order),
        past_pairs=state.held.pairs[np.ix_(order, order)],
        past_entropy=state.held.entropy,
        past_row=place[past_row],
        bound_before=before.state.bound,
        bound_after=state.bound,
        tail_mass=state.dropped,
        rounds=ground.passes,
        changed=found.splits + found.joins > 0,
        report={
            "splits": found.splits,
            "joins": found.joins,
            "prior_changed": family != problem.family,
            "components_before": before.state.n_components,
            "components_after": state.n_components,
        },
    )
