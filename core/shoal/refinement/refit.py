"""The problem of a refinement for a family that is fitted to the rows again.

Some families have a part that is fitted to points (`families.capabilities.refitted`): the directions of a subspace. In
the stream it stays as it is, since statistics are sums of what it lets through. A refinement has the points themselves,
so it can begin with a new fit: the rows seen again, the past restated, and the live components as the statistics of
their present responsibilities.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from shoal.families.capabilities import is_refitted, refitted, working_rows
from shoal.families.prior_choices import restated
from shoal.inference import (
    Model,
    Responsibilities,
    StickPrior,
    SweepStart,
    WindowData,
    m_step,
    past_of,
    swept_from,
)
from shoal.points.rows import Points
from shoal.refinement.problem import Problem


class Refit(NamedTuple):
    """A problem under the new fit, and the bound, nats, of the live components under the old one."""

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
    params, seen = problem.family.posterior(problem.live), np.maximum(problem.live[0] - past.mass, 0.0)
    begin = SweepStart(params, seen, past, np.arange(len(seen)))
    start = swept_from(WindowData(problem.rows, problem.weights), model, begin)
    rows, new_past = working_rows(family, points), problem.past._replace(stats=restated(family, given, problem.family))
    found = Responsibilities(start.resp, start.entropy, start.dropped)
    data, model = WindowData(rows, problem.weights), model._replace(family=family)
    live = m_step(data, model, found, past_of(new_past), start.tags).stats
    return Refit(problem._replace(family=family, rows=rows, past=new_past, live=live), start.bound)
