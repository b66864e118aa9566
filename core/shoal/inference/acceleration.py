"""Sweeps until they converge, with Anderson's acceleration: where components overlap, plain sweeps may take hundreds.

Anderson (1965), in the form of Walker and Ni (2011), algorithm AA. From the last few inputs and outputs of a sweep, the
combination with the least residual is the start of the next sweep. The combined parameters need not be those of any
responsibilities. The sweep from them still is one, so its bound is a bound, and it is kept only where the bound rose.
Otherwise the memory is cleared and a plain sweep is made.

The combined vectors are the natural parameters and the masses in the window. Residuals are weighted by 1 / sqrt(mass),
about the size of their noise.
"""

from collections import deque
from typing import Any

import numpy as np

from shoal.families.capabilities import log_partition_with_gradient
from shoal.families.natural_statistics import Origin, origin_for, seen_from
from shoal.inference.data import WindowData
from shoal.inference.sweep import Model, State, SweepStart, converged, swept, swept_from
from shoal.points.arrays import Array

_MEMORY = 6
_MOST_ROUNDS_TO_GOAL = 20
_LEAST_SHARE_LEFT = 0.1
"""Share of a component's mass that a combination leaves at least. A component that would keep less is not combined:
sweeps that empty it follow a straight line below zero."""
_NEAR = 10.0
"""A sweep that gains more than so many times the least gain is not the last but one."""


def converge(
    data: WindowData,
    model: Model,
    state: State,
    least: float,
    at_most: int,
    goal: float = -np.inf,
    message: str = "settling",
    judged_by: int = 1,
) -> State:
    """Sweeps until the first, or two in a row, raise the bound by at most `least` nats each, or `at_most` of them.

    No sweep is made from a converged state. Sweeps end earlier where twenty more like the best of the last `judged_by`
    would not reach `goal`: an accelerated sweep may gain little between two that gain much.
    Returns the best state on the way: with a past, a sweep may lower the bound.
    """
    memory = _Memory(data, model)
    quiet, gains = 0, deque[float](maxlen=judged_by)
    for done in range(0 if state.converged else at_most):
        if data.exhausted:
            break
        start = memory.proposal()
        after = None if start is None else memory.swept(state, start, message)
        if after is None or after.bound <= state.bound:
            if start is not None:
                memory.clear()
            start, after = None, watched_sweep(data, model, state, least, message)
        gain = after.bound - state.bound
        if gain <= 0.0:
            break
        memory.note(memory.vector(state) if start is None else start, memory.vector(after))
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


class _Memory:
    """The last inputs and outputs of sweeps, as vectors (T, P + 1): natural parameters, and mass in the window."""

    def __init__(self, data: WindowData, model: Model) -> None:
        self.data, self.model = data, model
        self.origin = origin_for(model.family, data.x)
        self.inputs: list[Array] = []
        self.outputs: list[Array] = []

    def clear(self) -> None:
        """Forget all sweeps."""
        self.inputs, self.outputs = [], []

    def note(self, start: Array, end: Array) -> None:
        """Remember a sweep."""
        self.inputs = [*self.inputs[1 - _MEMORY :], start]
        self.outputs = [*self.outputs[1 - _MEMORY :], end]

    def vector(self, state: State) -> Array:
        """(T, P + 1) of a state."""
        family = self.model.family
        params = seen_from(family, family.posterior(state.stats), self.origin)
        return np.column_stack([family.natural(params), state.window_mass])

    def proposal(self) -> Array | None:
        """The start of the next sweep; None before two sweeps are known."""
        if len(self.inputs) < 2:
            return None
        weight = 1.0 / np.sqrt(np.maximum(self.outputs[-1][:, -1:], 1.0))
        outputs = np.array(self.outputs)
        residuals = outputs - np.array(self.inputs)
        changes = np.diff(residuals * weight, axis=0).reshape(len(outputs) - 1, -1)
        share = np.linalg.lstsq(changes.T, (residuals[-1] * weight).ravel(), rcond=1e-10)[0]
        result: Array = outputs[-1] - np.tensordot(share, np.diff(outputs, axis=0), axes=1)
        least = _LEAST_SHARE_LEFT * outputs[-1, :, -1]
        dying = result[:, -1] < least
        result[dying] = outputs[-1, dying]
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
