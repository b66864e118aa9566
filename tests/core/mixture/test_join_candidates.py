"""The quick look at a check against the gains themselves: never below them, exact of two, low where nothing joins."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.special import gammaln

import shoal.families.located.join_ceiling_kernel as kernels
import shoal.mixture.moves as moves
from harness.short_form import longer
from shoal.families import FAMILIES
from shoal.mixture import MixtureState, StreamSettings, merge_by_bound_inplace, merge_gain
from shoal.mixture.join_candidates import join_ceiling
from shoal.process import join_label_gain
from shoal.runtime.kernels import kernel
from shoal.sequential import assimilate_inplace, initial_state

Array = np.ndarray
MakeState = Callable[..., MixtureState]
ALWAYS_VALUED = -1e300


@kernel()
def _masses(mass: Any, n: Any, concentration: Any) -> Any:
    return kernels._masses(mass, n, concentration)


@kernel()
def _label_gain(masses: Any, a: Any, b: Any) -> Any:
    return kernels._label_gain(masses, a, b)


@kernel()
def _label_ceiling(masses: Any, a: Any, b: Any) -> Any:
    return kernels._label_ceiling(masses, a, b)


@kernel()
def _log_gamma_ceiling(x: Any) -> Any:
    return kernels._log_gamma_ceiling(x)


def _is_screened(kind: type) -> bool:
    return bool(kind.domain.located) and hasattr(kind, "join_ceiling")  # type: ignore[attr-defined]


@pytest.fixture(params=[name for name, kind in sorted(FAMILIES.items()) if _is_screened(kind)])
def family_name(request: pytest.FixtureRequest) -> str:
    """Each family of these tests that has such a look."""
    return str(request.param)


def clusters(n: int, d: int, k: int, spread: float, seed: int, offset: float = 0.0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % k
    return offset + spread * rng.normal(size=(k, d))[labels] + rng.normal(size=(n, d)), np.eye(k)[labels]


def largest_gain(state: MixtureState, fresh: Array | None = None) -> float:
    i, j = np.triu_indices(state.n_components, 1)
    asked = np.ones(i.size, dtype=bool) if fresh is None else fresh[i] | fresh[j]
    return float(merge_gain(state, i, j)[asked].max(initial=-np.inf))


@pytest.mark.parametrize("seed", range(6))
def test_no_join_gains_more_than_the_ceiling(family_name: str, seed: int, make_state: MakeState) -> None:
    """Asked whether any gains a little less than the best does, ceilings alone decide on all the others."""
    k, d = 2 + 2 * seed, 1 + seed
    for spread, concentration in product((0.0, 1.0, 5.0), (1e-3, 0.5, 20.0)):
        x, hard = clusters(40 + 10 * seed, d, k, spread, seed)
        resp = 0.7 * hard + 0.3 * np.random.default_rng(seed).dirichlet(np.full(k, 0.2), size=len(x))
        state = make_state(family_name, x, resp, concentration=concentration)
        fresh = np.arange(k) % 3 == 1
        for asking in (None, fresh):
            gain = largest_gain(state, asking)
            for enough in (gain - 1e-2, gain - 30.0, ALWAYS_VALUED):
                ceiling = join_ceiling(state, asking, enough)
                assert gain <= ceiling <= gain + 2e-3
            assert join_ceiling(state, asking, gain + 1.0) < gain + 1.0
        assert join_ceiling(state, np.zeros(k, dtype=bool), -np.inf) == -np.inf


@pytest.mark.parametrize("largest", [12, longer(40)])
def test_the_label_ceiling_and_the_log_gamma_ceiling_are_none_too_low(largest: int) -> None:
    rng = np.random.default_rng(0)
    for n in (2, 3, 7, largest):
        for concentration in (1e-3, 1.0, 50.0):
            mass = 10.0 ** rng.uniform(-3.0, 5.0, size=n)
            masses = _masses(mass, n, concentration)
            i, j = np.triu_indices(n, 1)
            exact = join_label_gain(mass, concentration, i, j)
            for a, b, gain in zip(i.tolist(), j.tolist(), exact.tolist(), strict=True):
                assert abs(_label_gain(masses, a, b) - gain) <= max(1e-9 * abs(gain), 1e-8)
                assert _label_ceiling(masses, a, b) >= gain - 1e-9 * abs(gain)
    for x in 10.0 ** np.linspace(-4.0, 8.0, 200):
        exact, rounding = gammaln(x), 1e-12 * abs(gammaln(x))
        assert exact - rounding <= _log_gamma_ceiling(x) <= exact + 1.0 / (12.0 * x) + rounding


def test_of_equal_masses_and_few_points_the_slack_of_the_label_ceiling_is_needed() -> None:
    """Where all tails count: the gain stands above the log gammas by more than half of what is allowed."""
    mass = np.full(30, 2.0)
    masses = _masses(mass, 30, 1e-3)
    i, j = np.triu_indices(30, 1)
    gammas = gammaln(5.0) - 2.0 * gammaln(3.0)
    assert (join_label_gain(mass, 1e-3, i, j) - gammas).max() > 0.5 * masses.slack


@pytest.mark.parametrize("pair", [(0, 1), (0, 2), (1, 2)])
def test_a_gain_that_is_no_number_gives_no_answer(
    family_name: str, pair: tuple[int, int], make_state: MakeState
) -> None:
    x, hard = clusters(60, 2, 3, 20.0, 0)
    state = make_state(family_name, x, hard)
    state.pairs[pair] = state.pairs[pair[::-1]] = np.nan
    assert join_ceiling(state, None, 0.0) == np.inf


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
    few = np.arange(10) == 3  # nine pairs
    limits = {"known_covariance": ("DIFFERENCES", 179), "diagonal": ("LOGARITHMS", 179), "gaussian": ("PRODUCTS", 719)}
    for family, (name, limit) in limits.items():
        monkeypatch.setattr(f"shoal.families.{family}.prior.MOST_{name}", limit)
    assert join_ceiling(state, None, 0.0) == np.inf
    assert join_ceiling(state, few, 0.0) < 0.0


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
@pytest.mark.short_form("gaussian-None", "known_covariance-700.0", "diagonal-None")
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
