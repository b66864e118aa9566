"""A refinement from start to end, without any change to the live state: the job of a worker."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from shoal.families import AnyFamily, concatenated, join_gain, take
from shoal.families.capabilities import is_refitted, log_left_out, refitted, working_rows
from shoal.families.predictive_cache import refresh
from shoal.families.prior_choices import restated
from shoal.inference import (
    Model,
    Responsibilities,
    Rows,
    StickPrior,
    SweepStart,
    WindowData,
    best_entries,
    m_step,
    pair_entropies,
    past_of,
    swept_from,
)
from shoal.mixture import MisfitMonitor, MixtureState, ProgressCallback, StatsAtOffset, empty_lineage, grow
from shoal.points.arrays import Array, IntArray
from shoal.points.rows import Points
from shoal.refinement.problem import Problem, RefinementMethod, Solution, window_points, window_problem
from shoal.refinement.schedule import schedule_after
from shoal.refinement.solve import solve
from shoal.sequential.kernel import LEAST_SHORTFALL, LEAST_SPREAD, MOST_SHORTFALL
from shoal.sequential.learn import limit_of

_LEAST_SHARED = 1e-6
"""Shared points below which two components count as sharing none."""
_LEAST_KEPT = 1e-3
"""Share of its mass that the shared mass of a live component must reach to name its successor."""
FEWEST_MONITORED = 30
"""Fewest points in the window for a component to be monitored."""
_MOST_SCORED = 200
_MOST_SPREAD = 1e150
"""Largest deviation of such scores, in nats. The square of a larger one overflows."""


class Refinement(NamedTuple):
    """The result of a refinement, with all that adoption needs and without the rows. `codec` writes it."""

    base_offset: int
    """Points seen by the state that was refined."""
    worthwhile: bool
    """Whether it should be adopted: the bound rose by more than 1e-6 nats a window row, and there is room for it."""
    reason: str
    """The reason, in words, why it should be adopted or not."""
    changed: bool
    """Whether it is worthwhile and components were split, joined or removed."""
    report: dict[str, Any]
    """For people, plain JSON values: method, bound_before, bound_after, components_before, components_after,
    window_rows, copies (of a typical row), tail_mass, rounds, and the counts of the search's moves."""
    refined: MixtureState
    """The stream at `base_offset` with its T' refined components under provisional ids 0..T'-1, without retired ids.
    Where the refinement is not worthwhile, the components are the old ones."""
    live_ids: IntArray
    """(T,) ids of the components of the state that was refined."""
    shared: csr_matrix
    """(T, T') decayed points that old and refined components share."""


def refine(
    state: MixtureState,
    rows: Rows,
    *,
    method: RefinementMethod = "vdp",
    rng: np.random.Generator | None = None,
    progress: ProgressCallback = None,
) -> Refinement:
    """Refine the components of a live state on its window. The state is not changed.

    rows (N, D): the raw rows (past.offset, points_seen] of the stream, oldest first, as sent (and checked).
    rng: None derives one from the setting `seed` and the offset, so that the same state gives the same refinement.

    Raises RefinementError where the state keeps no window (`window=0`, method `sva` or `sva-pm`, still warming up), or
    where the number of rows is not that of the window. Raises SettingError for an unknown method.
    """
    problem = window_problem(state, rows)
    rng = np.random.default_rng([state.settings.seed, state.points_seen]) if rng is None else rng
    refit = refitted_problem(problem, partial(window_points, state, rows))
    if refit is not None:
        found = solve(refit.problem, method=method, rng=rng, progress=progress)
        solution = found._replace(bound_before=refit.bound_before)
    if refit is None or not solution.worthwhile:
        solution = solve(problem, method=method, rng=rng, progress=progress)
    else:
        problem = refit.problem
    worthwhile, reason = _verdict(state, solution)
    if problem.copies > 1:
        reason += f"; a typical row occurs {problem.copies} times in the window, and the bound counts it once"
    return Refinement(
        state.points_seen,
        worthwhile,
        reason,
        worthwhile and solution.changed,
        _report(method, problem, solution),
        _refined(state, problem, solution) if worthwhile else _unrefined(state, solution),
        state.live_ids.copy(),
        _shared(problem, solution) if worthwhile else csr_matrix(np.diag(problem.live[0])),
    )


def postponed(state: MixtureState, refinement: Refinement) -> MixtureState:
    """The state with its schedule advanced past a refinement that is not adopted; it shares the arrays of `state`.

    An alarm raised after the refinement's base stays.
    """
    schedule = refinement.refined.schedule
    later = state.schedule.alarm if state.schedule.alarm > refinement.base_offset else -1
    return state._replace(
        schedule=state.schedule._replace(
            refined_at=schedule.refined_at, periods=schedule.periods, misfit_gap=schedule.misfit_gap, alarm=later
        ),
        round=None,
    )


def _verdict(state: MixtureState, solution: Solution) -> tuple[bool, str]:
    assert state.prior is not None
    gain, found = solution.bound_after - solution.bound_before, len(solution.stats[0])
    limit = limit_of(state.settings, solution.family)
    if found > limit:
        return False, f"it found {found} components, but there is room for {limit}"
    if not solution.worthwhile:
        return False, f"the bound rose by only {gain:.3g} nats"
    return True, f"the bound rose by {gain:.6g} nats"


def _report(method: str, problem: Problem, solution: Solution) -> dict[str, Any]:
    return {
        "method": method,
        "bound_before": float(solution.bound_before),
        "bound_after": float(solution.bound_after),
        "components_before": len(problem.live[0]),
        "components_after": len(solution.stats[0]),
        "window_rows": int(problem.rows.shape[0]),
        "copies": problem.copies,
        "tail_mass": float(solution.tail_mass),
        "rounds": int(solution.rounds),
        **solution.report,
    }


def _refined(state: MixtureState, problem: Problem, solution: Solution) -> MixtureState:
    """The base state with the components of the solution in place of its own."""
    assert state.past is not None
    assert state.mid is not None
    family, stats = solution.family, solution.stats
    t, n = len(stats[0]), state.n_components
    past = StatsAtOffset(
        state.past.offset,
        solution.past_stats,
        solution.past_pairs,
        state.past.pruned_mass,
        state.past.decayed_count,
    )
    mid, between = _mid(state.mid, past, problem, solution)
    later = slice(mid.offset - past.offset, None)
    base, spread = own_fit(family, stats, problem.rows, problem.weights, solution.resp)
    seen = _last_seen(state, solution)
    return state._replace(
        prior=family,
        stats=stats,
        cache=refresh(family, stats),
        ids=np.arange(t, dtype=np.int64),
        born_at=np.minimum(np.full(t, state.born_at[:n].min()), seen),
        last_seen_at=seen,
        pairs=past.pairs + between + pair_entropies(solution.resp[later], problem.weights[later]),
        n_components=t,
        next_id=t,
        pruned_mass=past.pruned_mass,
        buffer=state.buffer[:0],
        lineage=empty_lineage(),
        archive=None,
        watch=None,
        past=past,
        mid=mid,
        monitor=MisfitMonitor(np.full(t, state.points_seen, dtype=np.int64), base, spread, np.zeros(t), np.zeros(t)),
        schedule=schedule_after(state, changed=solution.changed),
        round=None,
    )


def _unrefined(state: MixtureState, solution: Solution) -> MixtureState:
    """The base state under provisional ids, with its schedule advanced: the result where nothing is worthwhile."""
    n = state.n_components
    kept = grow(state, state.capacity + 1)  # a copy
    return kept._replace(
        ids=np.append(np.arange(n), np.zeros(kept.capacity - n, dtype=np.int64)),
        next_id=n,
        lineage=empty_lineage(),
        archive=None,
        watch=None,
        schedule=schedule_after(state, changed=False, gained=solution.worthwhile),  # without room for it
        round=None,
    )


def _mid(old: StatsAtOffset, past: StatsAtOffset, problem: Problem, solution: Solution) -> tuple[StatsAtOffset, Array]:
    """Statistics at the later offset: the past, and the rows between the two offsets under the solution's
    responsibilities. Returns them with the pair entropies (T', T') of those rows."""
    n = old.offset - past.offset
    resp = _first_rows(solution.resp, n)
    pairs = pair_entropies(resp, problem.weights[:n])
    if n == 0:
        return past, pairs
    data, params = WindowData(problem.rows[:n], problem.weights[:n]), solution.family.posterior(solution.stats)
    between = data.suffstats_under(solution.family, resp, params)
    stats = solution.family.add(past.stats, between)
    return StatsAtOffset(old.offset, stats, past.pairs + pairs, past.pruned_mass, old.decayed_count), pairs


def _first_rows(resp: csr_matrix, n: int) -> csr_matrix:
    """The first n rows, as a view."""
    end = resp.indptr[n]
    return csr_matrix((resp.data[:end], resp.indices[:end], resp.indptr[: n + 1]), shape=(n, resp.shape[1]))


def _last_seen(state: MixtureState, solution: Solution) -> IntArray:
    """Offset (T',) of the last row assigned to each component; without one, that of the component whose past it has."""
    assert state.past is not None
    seen = np.zeros(len(solution.stats[0]), dtype=np.int64)
    n = state.n_components
    np.maximum.at(seen, solution.past_row, np.minimum(state.last_seen_at[:n], state.past.offset))
    best, _ = best_entries(solution.resp)
    np.maximum.at(seen, best, state.past.offset + 1 + np.arange(best.size))
    return seen


def _shared(problem: Problem, solution: Solution) -> csr_matrix:
    """(T, T') shared mass: of the past as the solution assigns it, of rows as both mixtures divide them.

    A live component that gets almost no mass from the rows shares a trace of it with its best join partner. That
    component becomes its successor, though it does not inherit its id.
    """
    shared = np.zeros((len(problem.live[0]), len(solution.stats[0])))
    shared[np.arange(len(shared)), solution.past_row] += problem.past.stats[0]
    live, resp = solution.live_resp, solution.resp
    weights = np.repeat(problem.weights, np.diff(live.indptr))
    weighted = csr_matrix((live.data * weights, live.indices, live.indptr), shape=live.shape)
    shared += (weighted.T @ resp).toarray()
    shared[shared < _LEAST_SHARED] = 0.0
    without = np.flatnonzero(shared.sum(axis=1) < _LEAST_KEPT * problem.live[0])
    if without.size:
        shared[without, _best_partners(problem, solution, without)] += np.minimum(
            problem.live[0][without], _LEAST_SHARED
        )
    return csr_matrix(shared)


def _best_partners(problem: Problem, solution: Solution, rows: IntArray) -> IntArray:
    """(R,) the component of the solution with which each live component of `rows` has the largest join gain."""
    family, t = solution.family, len(solution.stats[0])
    live = restated(family, take(problem.live, rows), problem.family)
    stats = concatenated(solution.stats, live)
    old, new = np.repeat(t + np.arange(rows.size), t), np.tile(np.arange(t), rows.size)
    return np.asarray(join_gain(family, stats, old, new).reshape(rows.size, t).argmax(axis=1))


def own_fit(family: AnyFamily, stats: Any, rows: Rows, weights: Array, resp: csr_matrix) -> tuple[Array, Array]:
    """Mean (T,) and deviation (T,) of the log predictive density, nats, of each component's own points.

    They are the reference of the misfit monitor. The deviation is 0 where there are too few points. In the stream a
    point is scored before it is learnt. So each point of the window is scored by its component without that point. A
    young component predicts its own points better than new ones. With points left in, it would seem to misfit later
    even in a stationary stream, by about (free parameters / mass) / sqrt(D / 2) deviations.

    stats (T rows) hold the rows (N, D) with responsibilities `resp` (N, T) times `weights` (N,).
    """
    t = len(stats[0])
    base, spread = np.zeros(t), np.zeros(t)
    best, share = best_entries(resp)
    order = np.argsort(best, kind="stable")
    ends = np.searchsorted(best[order], np.arange(t + 1))
    for k in range(t):
        own = order[ends[k] : ends[k + 1]]
        if own.size < FEWEST_MONITORED:
            continue
        own = own[np.linspace(0, own.size - 1, min(_MOST_SCORED, own.size)).astype(np.int64)]
        scores = log_left_out(family, take(stats, [k]), rows[own], share[own] * weights[own])
        base[k], spread[k] = _moments(scores)
    return base, spread


def _moments(scores: Array) -> tuple[float, float]:
    """Mean and deviation of scores, with outliers clipped as the monitor clips them, so that its mean level is 0."""
    with np.errstate(over="ignore"):
        middle, spread = float(np.mean(scores)), min(max(float(np.std(scores)), LEAST_SPREAD), _MOST_SPREAD)
    clipped = np.clip((middle - scores) / spread, LEAST_SHORTFALL, MOST_SHORTFALL)
    return middle - spread * float(clipped.mean()), spread


class Refit(NamedTuple):
    """A problem whose family was fitted to the rows again, and the bound, nats, of the live components before that.

    Some families have a part that is fitted to points (`families.capabilities.refitted`): the directions of a subspace.
    In the stream it stays as it is, since statistics are sums of what it lets through. A refinement has the points
    themselves, so it can begin with a new fit: the rows seen again, the past restated, and the live components as the
    statistics of their present responsibilities.
    """

    problem: Problem
    bound_before: float


def refitted_problem(problem: Problem, read_points: Callable[[], Points]) -> Refit | None:
    """The problem with its family fitted to its rows, which `read_points` gives as points (N, D); None where it stays.

    A prior that the user gave stays.
    """
    if not (problem.reestimate_prior and is_refitted(problem.family)):
        return None
    points, given = read_points(), problem.past.stats
    family = refitted(problem.family, points, problem.weights, given)
    if family is problem.family:
        return None
    model, past = Model(problem.family, StickPrior(1.0, problem.concentration)), past_of(problem.past)
    params, seen = problem.family.posterior(problem.start), np.maximum(problem.start[0] - past.mass, 0.0)
    begin = SweepStart(params, seen, past, np.arange(len(seen)))
    start = swept_from(WindowData(problem.rows, problem.bound_weights), model, begin)
    rows, new_past = working_rows(family, points), problem.past._replace(stats=restated(family, given, problem.family))
    found = Responsibilities(start.resp, start.entropy, start.dropped)
    data, model = WindowData(rows, problem.weights), model._replace(family=family)
    live = m_step(data, model, found, past_of(new_past), start.tags).stats
    return Refit(problem._replace(family=family, rows=rows, past=new_past, live=live), start.bound)
