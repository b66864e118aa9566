"""The rows of a window: what each weighs, against decays walked through one by one; which are asked for."""

from types import SimpleNamespace

import numpy as np
import pytest

from harness.short_form import longer
from shoal.errors import RefinementError
from shoal.mixture import StreamSettings, decay_step
from shoal.refinement import forget_window, refine, window_start
from shoal.refinement.problem import row_weights, window_problem
from shoal.refinement.schedule import schedule_after
from shoal.sequential import assimilate_inplace, initial_state


@pytest.mark.parametrize("half_life", [None, 1.0, 40.0, 333.3, 2_000.0])
@pytest.mark.parametrize("n", [longer(1_000), 1_037, longer(1_560)])
def test_weights_are_what_decays_have_left(stream: SimpleNamespace, half_life: float | None, n: int) -> None:
    x, _ = stream.far(n, 2, 3)
    prior = stream.prior("diagonal", 2, 1.0, 1e4)
    settings = stream.settings(n_features=2, family="diagonal", prior=prior, half_life=half_life, window=400)
    state = stream.feed(settings, x, 97).state
    assert state.past is not None
    start = state.past.offset
    assert window_start(state) == start
    weights = np.zeros(n)
    for row in range(n):
        weights[row] = 1.0
        if half_life is not None and (row + 1) % decay_step(half_life) == 0:
            weights[: row + 1] *= 2.0 ** (-decay_step(half_life) / half_life)
    np.testing.assert_allclose(row_weights(state, start, n - start), weights[start:], rtol=1e-9)
    total = float(row_weights(state, start, n - start).sum()) + state.past.decayed_count
    assert total == pytest.approx(state.decayed_count, rel=1e-9)


def test_the_window_holds_between_a_half_and_the_whole_of_its_rows(stream: SimpleNamespace) -> None:
    x, _ = stream.nine(1_300)
    settings = stream.settings(n_features=2, warmup_points=100, window=251)
    assert settings.window_rows == 250
    state, seen = settings, 0
    for n in (1, 100, 125, 126, 250, 251, 375, 376, 1_300):
        state, seen = stream.feed(state, x[seen:n]).state, n
        start = window_start(state)
        assert start == max(0, -(-n // 125) * 125 - 250)


def test_a_half_life_bounds_the_window(stream: SimpleNamespace) -> None:
    assert stream.settings(n_features=2, half_life=2_000.0).window_rows == 5_000
    assert stream.settings(n_features=2, half_life=10.0).window_rows == 1_000  # the warm-up's rows
    assert stream.settings(n_features=2, half_life=1e9).window_rows == 100_000
    assert stream.settings(n_features=1 << 20).window_rows == 32  # 256 MiB


def test_the_problem_is_in_the_coordinates_of_the_components(stream: SimpleNamespace) -> None:
    x, _ = stream.nine(2_000, seed=2)
    x = np.round(100.0 + 7.0 * x)  # ties: learnt with noise
    state = stream.feed(stream.settings(n_features=2), x).state
    assert state.jitter.any()
    problem = window_problem(state, x)
    assert problem.rows.std() < 20.0
    learnt = state.prior.suffstats(problem.rows, np.ones((len(x), 1)))  # type: ignore[union-attr]
    mass = state.stats[0][: state.n_components]
    mean = mass @ state.stats.mean[: state.n_components] / mass.sum()
    np.testing.assert_allclose(mean, learnt.mean[0], rtol=0, atol=1e-9)


def test_what_cannot_be_refined_says_so(stream: SimpleNamespace) -> None:
    x, _ = stream.nine(1_500)
    cases = {
        "warming up": ({}, x[:150]),
        "no window": ({"window": 0}, x),
        "'sva-pm'": ({"method": "sva-pm"}, x),
    }
    for words, (way, rows) in cases.items():
        state = stream.feed(stream.settings(n_features=2, warmup_points=200, **way), rows).state
        with pytest.raises(RefinementError, match=words):
            refine(state, rows)
    state = stream.feed(stream.settings(n_features=2, warmup_points=200), x).state
    with pytest.raises(RefinementError, match="1499 rows"):
        refine(state, x[1:])
    empty = forget_window(state)
    assert window_start(empty) == 1_500
    with pytest.raises(RefinementError, match="empty"):
        refine(empty, x[:0])


def test_components_are_confirmed_by_a_refinement_that_changed_nothing_until_one_is_born(
    stream: SimpleNamespace,
) -> None:
    x, _ = stream.nine(1_500)
    state = stream.feed(stream.settings(n_features=2), x).state
    assert not window_problem(state, x).confirmed
    changed = state._replace(schedule=schedule_after(state, changed=True))
    assert not window_problem(changed, x).confirmed
    same = state._replace(schedule=schedule_after(state, changed=False))
    assert window_problem(same, x).confirmed
    same.born_at[0], same.stats.mass[0] = 1_501, 30.0
    assert not window_problem(same, x).confirmed


@pytest.mark.parametrize("begins", [0, 1, 70])
def test_a_window_begun_again_in_the_warm_up_stays_there_through_its_fits(begins: int) -> None:
    """Each fit learns the buffer again. The rows before the window stay past, which may not be available again."""
    x = np.random.default_rng(5).normal(size=(300, 2))
    settings = StreamSettings(n_features=2, warmup_points=200, window=2000, refinement=None)
    state, _ = assimilate_inplace(initial_state(settings), x[:begins])
    state = forget_window(state) if begins else state
    state, _ = assimilate_inplace(state, x[begins:])
    whole, _ = assimilate_inplace(initial_state(settings), x)
    assert window_start(state) == begins
    assert state.stats is not None
    assert whole.stats is not None
    for own, same in zip(state.stats, whole.stats, strict=True):
        np.testing.assert_array_equal(own, same)
    assert len(refine(state, x[begins:], method="vdp").report) > 0
