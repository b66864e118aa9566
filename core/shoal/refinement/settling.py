"""Sweeps to rest, with Anderson's acceleration: overlapping components settle slowly, plain sweeps take hundreds.

Anderson (1965), in the form of Walker and Ni (2011), algorithm AA: from the last few inputs and outputs of a sweep the
combination is taken whose residual is least, and the next sweep starts there. The combined parameters need not be those
of any responsibilities; the sweep from them is one all the same, so its bound is a bound, and it is kept only where the
bound rose. Otherwise the memory is dropped and a plain sweep made. What is combined are the natural parameters and the
masses in the window; residuals are weighed by 1 / sqrt(mass), about the size of their noise.
"""

from typing import Any

import numpy as np

from shoal.families.natural_statistics import Origin, origin_for, seen_from
from shoal.points.arrays import Array
from shoal.refinement.ground import Ground
from shoal.refinement.sweeps import Model, State, at_rest, stepped, sweep

_MEMORY = 6
_PATIENCE = 20
_LEAST_LEFT = 0.1
"""Of a component's mass a combination leaves at least so much; the parameters of one that it would leave less are not
combined. Components that sweeps empty are dying at a rate that takes the straight line below zero."""
_NEAR = 10.0
"""A sweep that gains more than so many times what is worth another is not the last but one."""


def settled(
    ground: Ground,
    model: Model,
    state: State,
    least: float,
    at_most: int,
    goal: float = -np.inf,
    message: str = "settling",
) -> State:
    """Sweeps until the first, or two on end, raise the bound by no more than `least` nats each, until it is plain that
    the next one would not, or `at_most` of them; none from a state that is known to be at rest.

    Given up earlier where twenty more like the last would not reach `goal`. Gives the best state on the way: with a
    past the E-step's weights are not those of the bound, and a sweep may lower it.
    """
    memory = _Memory(ground, model)
    quiet = 0
    for done in range(0 if state.at_rest else at_most):
        start = memory.proposal()
        after = None if start is None else memory.swept(state, start, message)
        if after is None or after.bound <= state.bound:
            if start is not None:
                memory.clear()
            start, after = None, watched_sweep(ground, model, state, least, message)
        gain = after.bound - state.bound
        if gain <= 0.0:
            break
        memory.note(memory.vector(state) if start is None else start, memory.vector(after))
        state = after
        quiet = quiet + 1 if gain <= least else 0
        if state.at_rest or quiet > 1 or (quiet > 0 and done == 0) or state.bound + _PATIENCE * gain < goal:
            break
    return state


def watched_sweep(ground: Ground, model: Model, state: State, least: float, message: str = "settling") -> State:
    """A sweep that tells whether another is worth more than `least` nats."""
    after = sweep(ground, model, state, message)
    if abs(after.bound - state.bound) > _NEAR * least:
        return after
    family = model.family
    return after._replace(at_rest=at_rest(family, family.posterior(state.stats), state.window_mass, after, least))


class _Memory:
    """The last inputs and outputs of sweeps, as vectors of (T, P + 1): natural parameters, and mass in the window."""

    def __init__(self, ground: Ground, model: Model) -> None:
        self.ground, self.model = ground, model
        self.origin = origin_for(model.family, ground.x)
        self.inputs: list[Array] = []
        self.outputs: list[Array] = []

    def clear(self) -> None:
        """Forget."""
        self.inputs, self.outputs = [], []

    def note(self, start: Array, end: Array) -> None:
        """One sweep more."""
        self.inputs = [*self.inputs[1 - _MEMORY :], start]
        self.outputs = [*self.outputs[1 - _MEMORY :], end]

    def vector(self, state: State) -> Array:
        """(T, P + 1) of a state."""
        family = self.model.family
        params = seen_from(family, family.posterior(state.stats), self.origin)
        return np.column_stack([family.natural(params), state.window_mass])

    def proposal(self) -> Array | None:
        """Where to sweep from next; None before there are two sweeps to go by."""
        if len(self.inputs) < 2:
            return None
        mass = np.maximum(self.outputs[-1][:, -1:], 1.0)
        weight = 1.0 / np.sqrt(mass)
        outputs = np.array(self.outputs)
        residuals = outputs - np.array(self.inputs)
        changes = np.diff(residuals * weight, axis=0).reshape(len(outputs) - 1, -1)
        share = np.linalg.lstsq(changes.T, (residuals[-1] * weight).ravel(), rcond=1e-10)[0]
        result: Array = outputs[-1] - np.tensordot(share, np.diff(outputs, axis=0), axes=1)
        least = _LEAST_LEFT * outputs[-1, :, -1]
        dying = result[:, -1] < least
        result[dying] = outputs[-1, dying]
        result[dying, -1] = least[dying]
        return result

    def swept(self, state: State, start: Array, message: str) -> State | None:
        """A sweep from a vector; None where its parameters are out of their domain."""
        family, mass = self.model.family, start[:, -1]
        try:
            with np.errstate(all="ignore"):
                params: Any = family.from_natural(start[:, :-1])
                proper = np.isfinite(family.log_partition(params)) & np.isfinite(family.mean_params(params)).all(axis=1)
        except np.linalg.LinAlgError:
            return None
        if not proper.all():
            return None
        params = seen_from(family, params, Origin(-self.origin.point, self.origin.located))
        after = stepped(self.ground, self.model, params, mass, state.held, state.tags, state.resp)
        self.ground.tell(after.bound, after.n_components, message)
        return after
