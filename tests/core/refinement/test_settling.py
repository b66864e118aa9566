"""Sweeps to rest: what is called at rest is, and what is at rest is left alone."""

import numpy as np
import pytest

from shoal.refinement.ground import Ground
from shoal.refinement.settling import settled
from shoal.refinement.solve import _start
from shoal.refinement.sweeps import Model, State, at_rest, sweep

from .refinement_cases import CONCENTRATION, FAMILIES, points_for, problem_of, sharpened


def start_of(name: str) -> tuple[Ground, Model, State]:
    """Three components where there are two groups, without a past: every sweep raises the bound."""
    rng = np.random.default_rng(11)
    family, x = FAMILIES[name], points_for(name, 80, rng)
    ground = Ground(x, np.ones(80))
    return ground, Model(family, CONCENTRATION), _start(problem_of(family, x, sharpened(rng, 80, 3), 0), ground)


@pytest.mark.parametrize("name", FAMILIES)
def test_no_sweep_gains_more_than_a_state_at_rest_is_said_to(name: str) -> None:
    """From where second order is the whole of it, gains below a nat, and where sweeps draw nearer to where they end."""
    ground, model, before = start_of(name)
    state, judged = sweep(ground, model, before), 0
    for _ in range(60):
        after = sweep(ground, model, state)
        gain, step = after.bound - state.bound, state.bound - before.bound
        if 1e-9 < gain < step < 1.0:
            params = model.family.posterior(before.stats)
            assert not at_rest(model.family, params, before.window_mass, state, 0.99 * gain)
            judged += 1
        before, state = state, after
    assert judged > 2


@pytest.mark.parametrize("name", FAMILIES)
def test_a_state_that_has_settled_is_at_rest_and_is_left_as_it_is(name: str) -> None:
    ground, model, state = start_of(name)
    for _ in range(500):
        before, state = state, sweep(ground, model, state)
    params = model.family.posterior(before.stats)
    assert at_rest(model.family, params, before.window_mass, state, 1e-6)
    known, passes = state._replace(at_rest=True), ground.passes
    assert settled(ground, model, known, 1e-6, 60) is known
    assert ground.passes == passes


@pytest.mark.parametrize("name", FAMILIES)
def test_settling_ends_where_many_plain_sweeps_do(name: str) -> None:
    ground, model, state = start_of(name)
    found = settled(ground, model, state, 1e-8, 400)
    for _ in range(500):
        state = sweep(ground, model, state)
    assert found.bound == pytest.approx(state.bound, abs=1e-4)
