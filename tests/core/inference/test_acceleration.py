"""Sweeps to rest: what is called at rest is, and what is at rest is left alone."""

from contextlib import suppress
from functools import cache

import numpy as np
import pytest

from harness.refinement_problems import CONCENTRATION, FAMILIES, functional, points_for, problem_of, sharpened
from shoal.families import KnownCovariance
from shoal.inference import Model, State, StickPrior, SweepStart, WindowData, past_of, swept, swept_from
from shoal.inference.acceleration import _Relaxation, converge
from shoal.inference.sweep import converged
from shoal.mixture import Past
from shoal.refinement import Problem

STICKS = StickPrior(1.0, CONCENTRATION)


def start_state(problem: Problem, data: WindowData, model: Model) -> State:
    """The live components after a sweep."""
    past = past_of(problem.past)
    params, mass = model.family.posterior(problem.live), problem.live[0]
    return swept_from(data, model, SweepStart(params, mass, past, np.arange(len(mass))))


def start_of(name: str) -> tuple[WindowData, Model, State]:
    """Three components where there are two groups, without a past: every sweep raises the bound."""
    rng = np.random.default_rng(11)
    family, x = FAMILIES[name], points_for(name, 80, rng)
    data = WindowData(x, np.ones(80))
    model = Model(family, STICKS)
    return data, model, start_state(problem_of(family, x, sharpened(rng, 80, 3), 0), data, model)


@cache
def settled(name: str) -> tuple[WindowData, Model, State, State]:
    """The state from `start_of` after 499 plain sweeps, and after 500."""
    data, model, state = start_of(name)
    for _ in range(500):
        before, state = state, swept(data, model, state)
    return data, model, before, state


@pytest.mark.parametrize("name", FAMILIES)
def test_no_sweep_gains_more_than_a_state_at_rest_is_said_to(name: str) -> None:
    """From where second order is the whole of it, gains below a nat, and where sweeps draw nearer to where they end."""
    data, model, before = start_of(name)
    state, judged = swept(data, model, before), 0
    for _ in range(60):
        after = swept(data, model, state)
        gain, step = after.bound - state.bound, state.bound - before.bound
        if 1e-9 < gain < step < 1.0:
            params = model.family.posterior(before.stats)
            assert not converged(model.family, params, before.window_mass, state, 0.99 * gain)
            judged += 1
        before, state = state, after
    assert judged > 2


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.short_form("bernoulli", "gaussian", "spherical", "diagonal")
def test_a_state_that_has_settled_is_at_rest_and_is_left_as_it_is(name: str) -> None:
    data, model, before, state = settled(name)
    params = model.family.posterior(before.stats)
    assert converged(model.family, params, before.window_mass, state, 1e-6)
    known, passes = state._replace(converged=True), data.passes
    assert converge(data, model, known, 1e-6, 60) is known
    assert data.passes == passes


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.short_form("bernoulli", "gaussian", "spherical", "diagonal")
def test_settling_ends_where_many_plain_sweeps_do(name: str) -> None:
    data, model, state = start_of(name)
    found = converge(data, model, state, 1e-8, 400)
    assert found.bound == pytest.approx(settled(name)[-1].bound, abs=1e-4)


def test_components_that_sweeps_empty_do_not_hold_the_others_up() -> None:
    """Four components too many on nine clusters die off a little in every sweep; the straight line that an over-relaxed
    step follows takes their mass below zero. This takes 46 sweeps, 88 if no such step is made, and 118 plain ones."""
    rng = np.random.default_rng(1)
    centres = 4.0 * np.stack([np.arange(9) % 3, np.arange(9) // 3], axis=1)
    z = rng.integers(9, size=9_000)
    x = centres[z] + rng.normal(size=(9_000, 2))
    family = KnownCovariance(x.mean(axis=0), 20.0, 1.0)
    side = (z < 4) & (rng.random(9_000) < 0.1)
    resp = np.eye(13)[np.where(side, 9 + z, z)]
    data, model = WindowData(x, np.ones(9_000)), Model(family, STICKS)
    stats = family.suffstats(x, resp)
    past = past_of(Past(family.empty_stats(13), np.zeros((13, 13))))
    state = swept_from(data, model, SweepStart(family.posterior(stats), stats[0], past, np.arange(13)))
    found = converge(data, model, state, 1e-4, 400)
    assert data.passes < 60
    assert np.sum(found.mass > 1.0) == 9
    plain = state
    for _ in range(200):
        plain = swept(data, model, plain)
    assert found.bound >= plain.bound - 1e-3


@pytest.mark.parametrize("name", FAMILIES)
def test_sweeps_are_those_of_adaptive_over_relaxed_bound_optimisation(name: str) -> None:
    """The algorithm of Salakhutdinov and Roweis (2003) written out, without an origin, as steps of natural parameters
    are the same about any. A component that would lose nine tenths of its mass loses just these."""
    data, model, first = start_of(name)
    family, state, factor, compared = model.family, first, 1.0, 0
    last: tuple[np.ndarray, np.ndarray] | None = None

    def vector(state: State) -> np.ndarray:
        return np.column_stack([family.natural(family.posterior(state.stats)), state.window_mass])

    for n_sweeps in range(1, 15):
        after = None
        if last is not None:
            start = last[0] + factor * (last[1] - last[0])
            for row, (mass, before) in enumerate(zip(start[:, -1], last[1][:, -1], strict=True)):
                if mass < 0.1 * before:
                    start[row] = [*last[1][row, :-1], 0.1 * before]
            with suppress(np.linalg.LinAlgError), np.errstate(invalid="ignore"):  # parameters may be none of the family
                params = family.from_natural(start[:, :-1])
                if np.isfinite(family.log_partition(params)).all():
                    given = SweepStart(params, start[:, -1], state.past, state.tags, state.resp)
                    after = swept_from(data, model, given)
        if after is None or not after.bound > state.bound:
            start, factor, after = vector(state), 1.0, swept(data, model, state)
        if after.bound - state.bound < 1e-6:  # below that, rounding decides which steps raise the bound
            break
        last, factor, state = (start, vector(after)), 1.5 * factor, after
        assert converge(data, model, first, 0.0, n_sweeps).bound == pytest.approx(state.bound, abs=1e-7)
        compared += 1
    assert compared > 5


def test_an_over_relaxed_step_leaves_a_tenth_of_the_mass_of_a_component_that_dies() -> None:
    data, model, state = start_of("spherical")
    relaxation = _Relaxation(data, model)
    vector = relaxation.vector(state)
    start, end = vector.copy(), vector.copy()
    start[:, -1], end[:, -1] = (100.0, 100.0, 100.0), (30.0, 90.0, 110.0)
    relaxation.note(start, end)
    found = relaxation.proposal()
    assert found is not None
    assert found[0, -1] == 3.0
    assert 3.0 < found[1, -1] < 90.0
    assert found[2, -1] > 110.0
    np.testing.assert_array_equal(found[:, :-1], vector[:, :-1])


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.short_form("spherical", "poisson")
def test_every_sweep_that_is_kept_raises_the_bound_of_its_responsibilities(name: str) -> None:
    """The bound is worked out again, a point at a time, from the responsibilities of all that is kept."""
    data, model, state = start_of(name)
    bounds = [state.bound]
    for n_sweeps in (*range(1, 10), *range(10, 25, 3)):
        found = converge(data, model, state, 0.0, n_sweeps)
        resp = found.resp.toarray()
        np.testing.assert_allclose(resp.sum(axis=1), 1.0, atol=1e-12)
        assert found.bound == pytest.approx(functional(model.family, data.x, resp, data.weights), abs=1e-8)
        bounds.append(found.bound)
        if found.bound - bounds[-2] < 1e-9:
            break
    assert len(bounds) > 5
    assert np.all(np.diff(bounds[:-1]) > 0.0)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("outside", [True, False], ids=["outside the domain", "a lower bound"])
def test_steps_that_all_fail_leave_plain_sweeps(name: str, outside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of a step that fails is kept, and the next one is no longer than the first."""
    factors = []

    def failed(relaxation: _Relaxation, state: State, start: np.ndarray, message: str) -> State | None:
        factors.append(relaxation.factor)
        return None if outside else state._replace(bound=state.bound - 1.0, resp=state.resp[::-1])

    monkeypatch.setattr(_Relaxation, "swept", failed)
    data, model, state = start_of(name)
    found = converge(data, model, state, 0.0, 5)
    for _ in range(5):
        state = swept(data, model, state)
    assert found.bound == state.bound
    np.testing.assert_array_equal(found.resp.toarray(), state.resp.toarray())
    assert len(set(factors)) == 1 < len(factors)


@pytest.mark.parametrize("name", FAMILIES)
def test_no_sweep_is_made_from_outside_the_domain(name: str) -> None:
    data, model, state = start_of(name)
    relaxation = _Relaxation(data, model)
    assert relaxation.swept(state, relaxation.vector(state), "settling") is not None
    assert relaxation.swept(state, np.full_like(relaxation.vector(state), np.nan), "settling") is None
    if name in ("gaussian", "diagonal", "spherical"):
        assert relaxation.swept(state, -relaxation.vector(state), "settling") is None


@pytest.mark.parametrize("name", FAMILIES)
def test_a_plain_sweep_leaves_the_end_where_it_is(name: str) -> None:
    data, model, state = start_of(name)
    found = converge(data, model, state, 1e-10, 400)
    after = swept(data, model, found)
    assert after.bound - found.bound == pytest.approx(0.0, abs=1e-8)
    np.testing.assert_allclose(after.resp.toarray(), found.resp.toarray(), atol=1e-4)
