"""Sweeps until they converge, over-relaxed: where components overlap, plain sweeps may take hundreds.

Salakhutdinov and Roweis (2003), adaptive over-relaxed bound optimisation. The next sweep starts not at the end of the
last one but beyond it: at its start plus its step times a factor, which grows while the bound rises. The parameters
there need not be those of any responsibilities. The sweep from them still is one, so its bound is a bound, and it is
kept only where the bound rose. Otherwise a plain sweep is made, and the factor grows from one again.

Steps are those of the natural parameters and the masses in the window.
"""

from collections import deque
from typing import Any

import numpy as np

from shoal.families.capabilities import log_partition_with_gradient
from shoal.families.natural_statistics import Origin, origin_for, seen_from
from shoal.inference.data import WindowData
from shoal.inference.sweep import Model, State, SweepStart, converged, swept, swept_from
from shoal.points.arrays import Array

_GROWTH = 1.5
"""By how much the factor grows with every sweep that raised the bound."""
_MOST_ROUNDS_TO_GOAL = 20
_LEAST_SHARE_LEFT = 0.1
"""Share of a component's mass that an over-relaxed step leaves at least. A component that would keep less takes the
plain step: sweeps that empty it follow a straight line below zero."""
_NEAR = 10.0
"""A sweep that gains more than so many times the least gain is not the last but one."""


def converge(
    data: WindowData,
    model: Model,
    state: State,
    least: float,
    at_most: int,
    *,
    goal: float = -np.inf,
    message: str = "settling",
    judged_by: int = 1,
) -> State:
    """Sweeps until the first, or two in a row, raise the bound by at most `least` nats each, or `at_most` of them.

    No sweep is made from a converged state. Sweeps end earlier where twenty more like the best of the last `judged_by`
    would not reach `goal`: the plain sweep after a failed step may gain little between two that gain much.
    Returns the best state on the way: with a past, a sweep may lower the bound.
    """
    relaxation = _Relaxation(data, model)
    quiet, gains = 0, deque[float](maxlen=judged_by)
    for done in range(0 if state.converged else at_most):
        if data.exhausted:
            break
        start = relaxation.proposal()
        after = None if start is None else relaxation.swept(state, start, message)
        if after is None or after.bound <= state.bound:
            relaxation.factor = 1.0
            start, after = None, watched_sweep(data, model, state, least, message)
        gain = after.bound - state.bound
        if gain <= 0.0:
            break
        relaxation.note(relaxation.vector(state) if start is None else start, relaxation.vector(after))
        state = after
        gains.append(gain)
        quiet = quiet + 1 if gain <= least else 0
        if state.converged or quiet > 1 or (quiet > 0 and done == 0):
            break
        if state.bound + _MOST_ROUNDS_TO_GOAL * max(gains) < goal:
            break
    return state


def watched_sweep(data: WindowData, model: Model, state: State, least: float, message: str = "settling") -> State:
    """A sweep that also finds out whether another is worth more than `least` nats."""
    after = swept(data, model, state, message)
    if abs(after.bound - state.bound) > _NEAR * least:
        return after
    params = model.family.posterior(state.stats)
    return after._replace(converged=converged(model.family, params, state.window_mass, after, least))


class _Relaxation:
    """The last sweep, from one vector (T, P + 1) to another: natural parameters, and mass in the window."""

    def __init__(self, data: WindowData, model: Model) -> None:
        self.data, self.model = data, model
        self.origin = origin_for(model.family, data.x)
        self.last: tuple[Array, Array] | None = None
        self.factor = 1.0

    def note(self, start: Array, end: Array) -> None:
        """Remember a sweep that raised the bound."""
        self.last = start, end
        self.factor *= _GROWTH

    def vector(self, state: State) -> Array:
        """(T, P + 1) of a state."""
        family = self.model.family
        params = seen_from(family, family.posterior(state.stats), self.origin)
        return np.column_stack([family.natural(params), state.window_mass])

    def proposal(self) -> Array | None:
        """The start of the next sweep; None before a sweep is known."""
        if self.last is None:
            return None
        start, end = self.last
        result: Array = start + self.factor * (end - start)
        least = _LEAST_SHARE_LEFT * end[:, -1]
        dying = result[:, -1] < least
        result[dying] = end[dying]
        result[dying, -1] = least[dying]
        return result

    def swept(self, state: State, start: Array, message: str) -> State | None:
        """A sweep from a vector; None where its parameters are outside their domain."""
        family, mass = self.model.family, start[:, -1]
        try:
            with np.errstate(all="ignore"):
                params: Any = family.from_natural(start[:, :-1])
                value, gradient = log_partition_with_gradient(family, params)
                proper = np.isfinite(value) & np.isfinite(gradient).all(axis=1)
        except np.linalg.LinAlgError:
            return None
        if not proper.all():
            return None
        params = seen_from(family, params, Origin(-self.origin.point, self.origin.located))
        after = swept_from(self.data, self.model, SweepStart(params, mass, state.past, state.tags, state.resp))
        self.data.count_pass(after.bound, after.n_components, message)
        return after
