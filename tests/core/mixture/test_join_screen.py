"""The quick look at a check against the gains themselves: never below them, exact of two, low where nothing joins."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shoal.mixture.moves as moves
from shoal.mixture import MixtureState, StreamSettings, merge_by_bound_inplace, merge_gain
from shoal.mixture.join_screen import join_ceiling
from shoal.sequential import assimilate_inplace, initial_state

Array = np.ndarray
MakeState = Callable[..., MixtureState]
ALWAYS_VALUED = -1e300


def clusters(n: int, d: int, k: int, spread: float, seed: int, offset: float = 0.0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % k
    return offset + spread * rng.normal(size=(k, d))[labels] + rng.normal(size=(n, d)), np.eye(k)[labels]


def largest_gain(state: MixtureState, fresh: Array | None = None) -> float:
    i, j = np.triu_indices(state.n_components, 1)
    asked = np.ones(i.size, dtype=bool) if fresh is None else fresh[i] | fresh[j]
    return float(merge_gain(state, i, j)[asked].max(initial=-np.inf))


@pytest.mark.parametrize("enough", [1e-6, ALWAYS_VALUED])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("spread", [0.0, 1.0, 5.0])
def test_no_join_gains_more_than_the_ceiling(
    family_name: str, spread: float, seed: int, enough: float, make_state: MakeState
) -> None:
    k, d = 2 + 2 * seed, 1 + seed
    x, hard = clusters(40 + 10 * seed, d, k, spread, seed)
    resp = 0.7 * hard + 0.3 * np.random.default_rng(seed).dirichlet(np.full(k, 0.2), size=len(x))
    state = make_state(family_name, x, resp, concentration=0.5)
    gain, ceiling = largest_gain(state), join_ceiling(state, None, enough)
    assert ceiling >= gain if max(gain, ceiling) > enough else True
    fresh = np.arange(k) % 3 == 1
    some, bound = largest_gain(state, fresh), join_ceiling(state, fresh, enough)
    assert bound >= some if max(some, bound) > enough else True
    assert join_ceiling(state, np.zeros(k, dtype=bool), enough) == -np.inf


@pytest.mark.parametrize("spread", [0.0, 2.0, 30.0])
@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_where_everything_is_valued_it_is_the_gain(
    family_name: str, spread: float, offset: float, make_state: MakeState
) -> None:
    """What is added is the allowance for rounding."""
    x, hard = clusters(300, 4, 2, spread, 0, offset)
    state = make_state(family_name, x, 0.9 * hard + 0.05, concentration=1.5)
    assert join_ceiling(state, None, ALWAYS_VALUED) == pytest.approx(
        largest_gain(state) + 1e-3 + 3e-6, rel=1e-9, abs=1e-4
    )


def test_components_of_fewer_points_than_features_are_bounded_too(family_name: str, make_state: MakeState) -> None:
    """A scatter without full rank bounds nothing: what is left is the one component's own matrix."""
    for seed in range(20):
        x, hard = clusters(14, 8, 5, 2.0, seed)
        state = make_state(family_name, x, hard)
        gain = largest_gain(state)
        assert join_ceiling(state, None, gain - 1.0) >= gain


def test_what_cannot_join_ends_at_the_screen(family_name: str, make_state: MakeState) -> None:
    x, hard = clusters(2_000, 16, 10, 5.0, 3)
    state = make_state(family_name, x, hard)
    assert largest_gain(state) < 0.0
    assert join_ceiling(state, None, moves.LEAST_GAIN) < 0.0


def test_where_looking_at_every_pair_takes_longer_the_ceiling_is_infinite(
    family_name: str, make_state: MakeState, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, hard = clusters(80, 4, 10, 50.0, 0)
    state = make_state(family_name, x, hard)
    assert join_ceiling(state, None, 0.0) < 0.0
    for name in ("MOST_DIFFERENCES", "MOST_LOGARITHMS", "MOST_FACTORS"):
        monkeypatch.setattr(f"shoal.mixture.join_screen.{name}", 159)
    assert join_ceiling(state, None, 0.0) == np.inf


@pytest.mark.parametrize("seed", range(3))
def test_a_check_joins_the_same_with_the_screen_and_without(
    family_name: str, seed: int, make_state: MakeState, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, hard = clusters(600, 3, 9, 2.0, seed)
    resp = 0.6 * hard + 0.4 * np.roll(hard, 1, axis=1)
    screened, events = merge_by_bound_inplace(make_state(family_name, x, resp))
    monkeypatch.setattr(moves, "join_ceiling", lambda *_: np.inf)
    plain, expected = merge_by_bound_inplace(make_state(family_name, x, resp))
    assert events == expected
    assert screened.n_components == plain.n_components
    for got, wanted in zip(screened.stats, plain.stats, strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("half_life", [None, 700.0])
def test_a_stream_is_the_same_with_the_screen_and_without(
    family_name: str, half_life: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    x = 2.5 * rng.normal(size=(12, 4))[rng.integers(12, size=9_000)] + rng.normal(size=(9_000, 4))
    settings = StreamSettings(n_features=4, family=family_name, half_life=half_life, refinement=None)  # type: ignore[arg-type]

    def learnt() -> tuple[MixtureState, Any]:
        return assimilate_inplace(initial_state(settings), x)

    state, info = learnt()
    monkeypatch.setattr(moves, "join_ceiling", lambda *_: np.inf)
    expected, told = learnt()
    assert info.events == told.events
    np.testing.assert_array_equal(state.stats[0], expected.stats[0])
