"""What holds of every refinement, whatever it finds."""

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from harness.refinement_problems import COUNTS, FAMILIES, fed, points_for, problem_of, sharpened
from harness.short_form import longer, short_form
from shoal.errors import SettingError
from shoal.families import NormalInverseGamma, NormalInverseWishart
from shoal.inference import (
    Model,
    Responsibilities,
    Search,
    State,
    StickPrior,
    WindowData,
    m_step,
    past_of,
    restart,
    search,
)
from shoal.mixture import Past
from shoal.refinement import Problem, Solution
from shoal.refinement.fixed_k import METHODS
from shoal.refinement.solve import solve

ALL_METHODS = ("vdp", "fast-vdp", *METHODS)


def _solved(problem: Problem, seed: int = 0, **how: Any) -> Solution:
    return solve(problem, rng=np.random.default_rng(seed), **how)


def _model(problem: Problem) -> Model:
    return Model(problem.family, StickPrior(1.0, problem.concentration))


def _holds(problem: Problem, solution: Solution) -> None:
    n, t = len(problem.weights), len(solution.stats[0])
    assert solution.resp.shape == (n, t)
    np.testing.assert_allclose(np.asarray(solution.resp.sum(axis=1)).ravel(), 1.0, rtol=0.0, atol=1e-12)
    assert solution.resp.data.min() > 0.0
    total = problem.past.stats[0].sum() + problem.weights.sum()
    assert solution.stats[0].sum() == pytest.approx(total, rel=1e-9)
    assert np.all(np.diff(solution.stats[0]) <= 0.0)
    window = solution.family.suffstats(problem.rows, solution.resp.toarray() * problem.weights[:, None])
    for found, expected in zip(solution.stats, solution.family.add(window, solution.past_stats), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)
    assert solution.past_row.shape == (len(problem.live[0]),)
    assert solution.past_pairs.shape == (t, t)
    assert solution.bound_after >= solution.bound_before
    assert 0.0 <= solution.tail_mass <= 1e-5 * problem.weights.sum()


@pytest.mark.parametrize("name", list(FAMILIES))
@pytest.mark.parametrize(("n_past", "reestimate"), [(0, False), (150, True), longer(0, True), longer(150, False)])
def test_mass_is_kept_and_the_bound_does_not_fall(name: str, n_past: int, reestimate: bool) -> None:
    rng = np.random.default_rng(8)
    x, resp = points_for(name, 400, rng), sharpened(rng, 400, 4)
    problem = problem_of(FAMILIES[name], x, resp, n_past, weights=rng.uniform(0.3, 1.0, 400), reestimate=reestimate)
    solution = _solved(problem)
    _holds(problem, solution)
    assert solution.worthwhile
    assert solution.past_stats[0].sum() == pytest.approx(problem.past.stats[0].sum(), rel=1e-12)


def test_children_are_split_again_within_a_round() -> None:
    """Clusters that part from the rest one at a time: fifteen rounds of one generation each left 161 of two hundred."""
    rng, n_clusters = np.random.default_rng(4), 20
    z = rng.choice(n_clusters, size=3_000, p=(weights := 0.8 ** np.arange(n_clusters)) / weights.sum())
    x = 4.0 * rng.normal(size=(n_clusters, 12))[z] + rng.normal(size=(3_000, 12))
    family = NormalInverseGamma(np.zeros(12), 0.05, 2.0, np.full(12, 2.0))
    problem = problem_of(family, x, np.ones((3_000, 1)), 0)
    solution = _solved(problem, max_rounds=2)
    _holds(problem, solution)
    assert len(solution.stats[0]) > 2**2
    assert len(_solved(problem).stats[0]) == n_clusters


def test_what_settling_empties_is_gone_however_often_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    x, resp = rng.normal(size=(60, 2)), np.eye(4)[np.arange(60) % 4]
    problem = problem_of(FAMILIES["gaussian"], x, resp, 0)
    engine = Search(WindowData(x, np.ones(60)), _model(problem), rng)
    calls = []

    def emptying(data: WindowData, model: Model, state: State, *rest: Any, **more: Any) -> State:
        calls.append(state.n_components)
        if len(calls) > 2:
            return state
        left = state.resp.toarray()
        left[:, 0] += left[:, -1]
        left[:, -1] = 0.0
        return m_step(data, model, Responsibilities(csr_matrix(left), 0.0, 0.0), state.past, state.tags)

    monkeypatch.setattr(search, "converge", emptying)
    rested = engine.converge(engine.live_start(problem.live, past_of(problem.past)))
    assert calls == [4, 3, 2]
    assert rested.n_components == 2
    assert rested.mass.min() > 1.0


def test_last_sweeps_end_far_below_what_chance_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Overlapping clusters: sweeps go on for long, and gain less than a twentieth of half a nat a parameter in all."""
    rng = np.random.default_rng(6)
    x = 1.5 * rng.normal(size=(6, 8))[np.arange(4_000) % 6] + rng.normal(size=(4_000, 8))
    family = NormalInverseWishart(np.zeros(8), 0.05, 10.0, 5.0 * np.eye(8))
    problem = problem_of(family, x, np.eye(6)[np.arange(4_000) % 6], 0)
    found = _solved(problem)
    monkeypatch.setattr("shoal.refinement.solve._LEAST_A_PARAMETER", 0.0)
    longer = _solved(problem)
    n_parameters = len(found.stats[0]) * family.n_free_parameters
    assert len(longer.stats[0]) == len(found.stats[0]) > 1
    assert longer.rounds > found.rounds
    assert 0.0 < longer.bound_after - found.bound_after < 0.05 * 0.5 * n_parameters


def test_sweeps_of_a_trial_end_where_one_lowers_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a past one may: what it led to was handed on."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(200, 2)) + 8.0 * (np.arange(200) % 2)[:, None]
    problem = problem_of(FAMILIES["gaussian"], x, np.ones((200, 1)), 0)
    engine = Search(WindowData(x, np.ones(200)), _model(problem), rng)
    start = engine.live_start(problem.live, past_of(problem.past))
    splits = engine.proposals(start)
    monkeypatch.setattr(engine, "proposals", lambda state: [])
    parted = engine.with_splits(start, splits)
    swept = []

    def falling(data: WindowData, model: Model, state: State, message: str) -> State:
        swept.append(state.bound)
        return state._replace(bound=state.bound - 50.0)

    monkeypatch.setattr(search, "swept", falling)
    assert engine.tried(start, splits).bound == parted.bound
    assert swept == [parted.bound]


@pytest.mark.parametrize(("n_clusters", "restarted"), [(60, True), (70, False)])
def test_many_components_are_not_searched_for_from_one(
    n_clusters: int, restarted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    z = np.arange(700) % n_clusters
    x = 40.0 * rng.normal(size=(n_clusters, 3))[z] + 0.1 * rng.normal(size=(700, 3))
    problem = problem_of(NormalInverseGamma(np.zeros(3), 0.01, 2.0, np.full(3, 0.02)), x, np.eye(n_clusters)[z], 0)
    made = []
    one = Search.single_start
    monkeypatch.setattr(Search, "single_start", lambda *given: made.append(1) or one(*given))
    assert len(_solved(problem).stats[0]) == n_clusters
    assert bool(made) == restarted


@pytest.mark.parametrize(
    ("name", "method"),
    short_form(
        [(name, method) for name in ("diagonal", "multinomial") for method in ALL_METHODS],
        [*(("diagonal", method) for method in ALL_METHODS), ("multinomial", "vdp"), ("multinomial", "ctsb")],
    ),
)
def test_every_method_redivides_the_window_and_is_judged_by_the_same_bound(name: str, method: Any) -> None:
    rng = np.random.default_rng(9)
    x, resp = points_for(name, 500, rng), sharpened(rng, 500, 3)
    problem = problem_of(FAMILIES[name], x, resp, 100, weights=np.linspace(0.4, 1.0, 500))
    solution = _solved(problem, method=method)
    _holds(problem, solution)
    assert solution.worthwhile
    if method != "vdp":
        assert solution.report["splits"] == 0
        best = _solved(problem)
        assert solution.bound_after <= best.bound_after + 1e-6 * abs(best.bound_after)


def test_a_method_that_there_is_not_is_refused() -> None:
    rng = np.random.default_rng(0)
    problem = problem_of(FAMILIES["diagonal"], points_for("diagonal", 20, rng), sharpened(rng, 20, 2), 0)
    with pytest.raises(SettingError, match="gibbs"):
        _solved(problem, method="gibbs")


def test_the_same_numbers_give_the_same_solution_to_the_bit() -> None:
    rng = np.random.default_rng(10)
    problem = problem_of(FAMILIES["gaussian"], points_for("gaussian", 600, rng), sharpened(rng, 600, 1), 0)
    a, b = (_solved(problem, seed=4) for _ in range(2))
    for left, right in zip(a.stats, b.stats, strict=True):
        np.testing.assert_array_equal(left, right)
    assert (a.resp != b.resp).nnz == 0
    assert a.bound_after == b.bound_after


def test_a_component_that_the_window_has_not_seen_lives_on() -> None:
    rng = np.random.default_rng(12)
    family = NormalInverseGamma([0.0, 0.0], 0.01, 1.5, 0.1)
    here, there = rng.normal(size=(900, 2)), rng.normal([5.0, 0.0], 1.0, size=(40, 2))
    x = np.vstack([there, here])
    resp = np.zeros((940, 2))
    resp[:40, 1] = resp[40:, 0] = 1.0
    problem = problem_of(family, x, resp, 40, reestimate=True)
    for _ in range(5):
        solution = _solved(problem)
        problem = fed(problem, solution)
    unseen = int(solution.past_row[-1])
    assert 40.0 <= solution.stats.mass[unseen] < 46.0  # some of the window's outermost points are nearer to it
    np.testing.assert_allclose(solution.stats.mean[unseen], there.mean(axis=0), atol=0.3)


def test_a_past_that_was_made_of_two_clusters_is_shared_and_its_entropy_counted() -> None:
    rng = np.random.default_rng(13)
    x = rng.normal(size=(4_100, 2))
    x[:, 0] += 3.0 * rng.integers(2, size=4_100)
    problem = problem_of(NormalInverseWishart.weak(2), x, np.ones((4_100, 1)), 100, reestimate=True)
    solution = _solved(problem)
    assert len(solution.stats[0]) == 2
    share = solution.past_stats[0] / 100.0
    np.testing.assert_allclose(share, solution.stats[0] / 4_100.0, atol=0.05)
    assert solution.past_entropy == pytest.approx(-100.0 * float(share @ np.log(share)), rel=1e-9)
    assert solution.past_pairs[0, 1] == pytest.approx(solution.past_entropy, rel=1e-9)
    assert solution.past_row[0] == np.argmax(share)


def test_a_past_of_one_cluster_goes_to_the_child_that_it_is_like() -> None:
    rng = np.random.default_rng(14)
    old = rng.normal(size=(1_000, 2))
    window = rng.normal(size=(2_000, 2)) + 8.0 * rng.integers(2, size=2_000)[:, None]
    problem = problem_of(NormalInverseWishart.weak(2), np.vstack([old, window]), np.ones((3_000, 1)), 1_000)
    solution = _solved(problem)
    assert len(solution.stats[0]) == 2
    keeper = int(solution.past_row[0])
    assert solution.past_stats[0][keeper] == 1_000.0
    np.testing.assert_allclose(solution.stats.mean[keeper], [0.0, 0.0], atol=0.2)


@pytest.mark.parametrize("name", list(COUNTS))
def test_counts_in_two_groups_are_told_apart(name: str) -> None:
    x = points_for(name, 2_000, np.random.default_rng(15))
    problem = problem_of(FAMILIES[name], x, np.ones((2_000, 1)), 0, reestimate=True)
    assert len(_solved(problem).stats[0]) == 2


def test_points_far_out_or_all_alike_do_not_break_it() -> None:
    rng = np.random.default_rng(16)
    x = np.vstack([rng.normal(size=(300, 3)), np.full((200, 3), 2.0), 1e6 * rng.standard_cauchy((20, 3))])
    for family in (NormalInverseWishart.weak(3), NormalInverseGamma.weak(3)):
        problem = problem_of(family, x, np.ones((520, 1)), 0, reestimate=True)
        _holds(problem, _solved(problem))


def test_one_row_and_no_past_is_a_problem_too() -> None:
    family = FAMILIES["gaussian"]
    x = np.array([[0.3, 0.1]])
    live = family.suffstats(x, np.ones((1, 1)))
    problem = Problem(family, 1.0, x, np.ones(1), Past(family.empty_stats(1), None), live, True)
    _holds(problem, _solved(problem))


def test_progress_is_told_pass_by_pass() -> None:
    rng = np.random.default_rng(17)
    problem = problem_of(FAMILIES["diagonal"], points_for("diagonal", 300, rng), sharpened(rng, 300, 2), 0)
    told: list[Any] = []
    solution = _solved(problem, progress=told.append)
    assert [step.round for step in told] == list(range(1, solution.rounds + 1))
    assert all(np.isfinite(step.elbo) and step.n_components >= 1 for step in told)


@pytest.mark.parametrize("confirmed", [False, True])
def test_confirmed_components_that_move_are_not_searched_for_again_in_many_rows(
    confirmed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Overlapping groups, blurred: the bound rises from where they stand, so that a search from one follows or not."""
    begun: list[int] = []
    rounds = Search.rounds

    def told(self: Search, state: State, max_rounds: int) -> State:
        begun.append(state.n_components)
        return rounds(self, state, max_rounds)

    monkeypatch.setattr(Search, "rounds", told)
    monkeypatch.setattr(restart, "_SURE_ROWS", 1_100)
    rng = np.random.default_rng(3)
    side = rng.integers(2, size=1_200)
    x = rng.normal(size=(1_200, 2)) + 3.0 * side[:, None]
    resp = 0.9 * np.eye(2)[side] + 0.05
    problem = problem_of(NormalInverseWishart.weak(2, within_variance=1.0), x, resp, 0)
    solution = _solved(problem._replace(confirmed=confirmed))
    assert solution.bound_after > solution.bound_before
    assert begun == ([2] if confirmed else [2, 1])
