"""The second search, from one component, and when it is made."""

import numpy as np
import pytest

from shoal.families import AnyFamily, NormalInverseGamma, NormalInverseWishart
from shoal.inference import Model, Search, State, StickPrior, WindowData, best_found, no_past

N, MANY = 2_000, 70
FAMILY = NormalInverseGamma(np.zeros(2), 0.05, 2.0, np.full(2, 2.0))


def pieces(search: Search, n: int) -> State:
    """Components of every n-th row, all alike."""
    resp = np.eye(n)[np.arange(search.data.n_rows) % n]
    return search.live_start(
        search.data.suffstats(search.model.family, [slice(None)] * n, list(resp.T.copy())),
        no_past(search.model.family, n, n),
    )


class StuckSearch(Search):
    """A search that ends in so many pieces."""

    n_pieces = 0

    def rounds(self, state: State, max_rounds: int) -> State:
        return pieces(self, self.n_pieces)

    def finish(self, state: State) -> State:
        return state


@pytest.mark.parametrize(("n_end", "n_found"), [(2 * MANY, 3), (MANY + 5, MANY + 5)])
def test_many_components_that_the_search_has_multiplied_are_a_poor_start(n_end: int, n_found: int) -> None:
    rng = np.random.default_rng(3)
    x = np.array([[0.0, 0.0], [30.0, 0.0], [0.0, 30.0]])[np.arange(N) % 3] + rng.normal(size=(N, 2))
    data, model = WindowData(x, np.ones(N)), Model(FAMILY, StickPrior(1.0, 1.0))
    stuck = StuckSearch(data, model, rng)
    stuck.n_pieces = n_end
    start = pieces(stuck, MANY)
    found = best_found(stuck, start, 10, lambda: Search(data, model, rng), confirmed=False)
    assert found.state.n_components == n_found
    assert found.state.past.share.shape == (n_found, MANY if n_found == 3 else n_end)


D, COSTLY = 25, 8_000
INVERSE_GAMMA = NormalInverseGamma(np.zeros(D), 0.05, 2.0, np.full(D, 2.0))  # 50 parameters a component
INVERSE_WISHART = NormalInverseWishart(np.zeros(D), 0.05, D + 2.0, np.eye(D))  # 350


@pytest.mark.parametrize(("family", "n_found"), [(INVERSE_GAMMA, 2 * MANY), (INVERSE_WISHART, 3)])
@pytest.mark.short_form("family0-140")
def test_a_costly_search_from_one_component_is_for_components_with_fewer_points_than_parameters(
    family: AnyFamily, n_found: int
) -> None:
    """57 points a component support 50 parameters, and not 350."""
    rng = np.random.default_rng(3)
    x = 30.0 * np.eye(3, D)[np.arange(COSTLY) % 3] + rng.normal(size=(COSTLY, D))
    data, model = WindowData(x, np.ones(COSTLY)), Model(family, StickPrior(1.0, 1.0))
    stuck = StuckSearch(data, model, rng)
    stuck.n_pieces = 2 * MANY
    found = best_found(stuck, pieces(stuck, MANY), 10, lambda: Search(data, model, rng), confirmed=False)
    assert found.state.n_components == n_found


def overlapping(rng: np.random.Generator) -> np.ndarray:
    """Points of twelve Gaussians in the plane, which overlap: sweeps settle slowly."""
    return 2.5 * rng.normal(size=(12, 2))[np.arange(N) % 12] + rng.normal(size=(N, 2))


@pytest.mark.parametrize("n_start", [MANY, 4])
@pytest.mark.short_form("4")
def test_the_better_of_two_searches_is_found_though_the_other_is_not_finished(n_start: int) -> None:
    x = overlapping(np.random.default_rng(8))
    ends, passes = [], 0
    for alone in (False, True):
        search = Search(WindowData(x, np.ones(N)), Model(FAMILY, StickPrior(1.0, 1.0)), np.random.default_rng(0))
        ends.append(search.run(search.single_start(n_start) if alone else pieces(search, n_start), 10).bound)
        passes += search.data.passes
    data, model = WindowData(x, np.ones(N)), Model(FAMILY, StickPrior(1.0, 1.0))
    search = Search(data, model, np.random.default_rng(0))
    other = Search(data, model, np.random.default_rng(0))
    found = best_found(search, pieces(search, n_start), 10, lambda: other, confirmed=False)
    assert found.state.bound == pytest.approx(max(ends), abs=search.worth)
    assert data.passes <= passes


def test_a_search_that_cannot_come_up_to_its_goal_gives_up() -> None:
    x = overlapping(np.random.default_rng(8))
    passes = []
    for goal in (-np.inf, 0.0):
        data = WindowData(x, np.ones(N))
        search = Search(data, Model(FAMILY, StickPrior(1.0, 1.0)), np.random.default_rng(0), goal=goal)
        state = pieces(search, 5)
        before = data.passes
        search.finish(state)
        passes.append(data.passes - before)
    assert passes[1] == 1 < passes[0]


@pytest.mark.parametrize(("seed", "n_start"), [(0, 30), (4, 15), (6, 15)])
def test_no_search_gives_up_that_comes_up_to_its_goal(seed: int, n_start: int) -> None:
    """Plain sweeps that gain little stand between over-relaxed ones that gain much."""
    x = overlapping(np.random.default_rng(seed))
    nearest = np.square(x[:, None] - x[:n_start]).sum(axis=2).argmin(axis=1)
    resp = list(np.eye(n_start)[nearest].T.copy())
    goal = -np.inf
    for _ in range(2):
        data = WindowData(x, np.ones(N))
        search = Search(data, Model(FAMILY, StickPrior(1.0, 1.0)), np.random.default_rng(0), goal=goal)
        stats = data.suffstats(FAMILY, [slice(None)] * n_start, resp)
        end = search.finish(search.live_start(stats, no_past(FAMILY, n_start, n_start))).bound
        assert end >= goal
        goal = end
