"""Growing, dropping rows, and the limits that memory sets."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shoal.errors import SettingError
from shoal.families import FAMILIES
from shoal.families.predictive_cache import refresh
from shoal.mixture import (
    MixtureState,
    StreamSettings,
    compact_inplace,
    component_bytes,
    component_limit,
    grow,
    next_capacity,
    state_bytes,
    to_bytes,
)
from shoal.mixture.state import _largest_rows

MakeState = Callable[..., MixtureState]


@pytest.fixture
def state(family_name: str, make_state: MakeState) -> MixtureState:
    rng = np.random.default_rng(0)
    return make_state(family_name, rng.normal(size=(40, 3)), rng.dirichlet(np.ones(5), size=40), extra_rows=0)


def test_growing_changes_nothing_but_the_room(state: MixtureState) -> None:
    before = to_bytes(state)
    grown = grow(state, 17)
    assert grown.capacity == 17
    assert to_bytes(grown) == before
    for array in (*grown.stats, *grown.cache, grown.ids, grown.born_at, grown.last_seen_at, grown.pairs):
        assert array.shape[0] == 17
        assert not array[5:].any()
    assert grow(grown, 9) is grown
    assert np.shares_memory(grow(grown, 17).ids, grown.ids)


def test_dropping_rows_keeps_the_order_of_the_rest(state: MixtureState) -> None:
    kept = [0, 3, 4]
    due = [field[kept].copy() for field in (*state.stats, *state.cache, state.ids, state.born_at, state.last_seen_at)]
    pairs = state.pairs[np.ix_(kept, kept)]
    compacted = compact_inplace(state, np.array([True, False, False, True, True]))
    held = (*compacted.stats, *compacted.cache, compacted.ids, compacted.born_at, compacted.last_seen_at)
    for array, expected in zip(held, due, strict=True):
        np.testing.assert_array_equal(array[:3], expected)
        assert not array[3:].any()
    np.testing.assert_array_equal(compacted.pairs[:3, :3], pairs)
    assert compacted.n_components == 3
    assert compacted.capacity == 5


def test_dropping_nothing_is_free(state: MixtureState) -> None:
    assert compact_inplace(state, np.ones(5, dtype=bool)) is state


def test_room_doubles_up_to_one_more_than_the_limit() -> None:
    assert [next_capacity(n, 100) for n in (0, 1, 7, 8, 50, 99, 100)] == [9, 9, 9, 17, 65, 101, 101]
    assert next_capacity(120, 100) == 121  # a limit lowered on a live stream leaves room to go on
    for limit in (1, 5, 64, 4096):
        for n in range(min(limit, 300)):
            assert n + 2 <= next_capacity(n, limit) + 1
            assert next_capacity(n, limit) <= limit + 1


@pytest.mark.parametrize("method", ["default", "sva"])
@pytest.mark.parametrize("d", [2, 64])
def test_a_mixture_at_its_limit_fits_the_bytes_given(
    family_name: str, method: Any, d: int, make_state: MakeState
) -> None:
    budget = 4 << 20
    settings = StreamSettings(n_features=d, family=family_name, method=method, max_state_bytes=budget, warmup_points=50)
    prior = FAMILIES[family_name].weak(d)
    row = component_bytes(prior.empty_stats(1), refresh(prior, prior.empty_stats(1)), windowed=settings.window_rows > 0)
    limit = component_limit(settings, row)
    rng = np.random.default_rng(0)
    small = make_state(family_name, rng.normal(size=(4, d)), np.ones((4, 1)), method=method)
    at_limit = grow(small._replace(buffer=np.zeros((50, d))), limit + 1)
    lineage_share = budget // 8
    assert state_bytes(at_limit) + lineage_share <= budget
    if limit < settings.max_components:
        assert state_bytes(grow(at_limit, limit + 2)) + lineage_share > budget - row


def test_max_components_is_met_when_it_is_the_smaller() -> None:
    assert component_limit(StreamSettings(n_features=2, max_components=7), 1_000) == 7


def test_a_budget_without_room_for_one_component_is_refused_with_what_it_takes() -> None:
    settings = StreamSettings(n_features=512, max_state_bytes=1 << 20, warmup_points=1)
    with pytest.raises(SettingError, match="max_state_bytes is 1,048,576"):
        component_limit(settings, 8 * 2 * 512 * 512)


def test_bytes_are_those_of_the_arrays(state: MixtureState) -> None:
    row = component_bytes(state.stats, state.cache, windowed=state.settings.window_rows > 0)
    assert state_bytes(grow(state, 10)) - state_bytes(state) == 5 * row + 3 * 8 * (
        10**2 - 5**2
    )  # three: the marks' too


@pytest.mark.parametrize("pair_bytes", [0, 1, 24])
def test_the_largest_number_of_rows_fits_and_one_more_does_not(pair_bytes: int) -> None:
    for row_bytes in (1, 7, 40):
        for spare in range(2 * row_bytes + 4 * pair_bytes, 2_000, 13):
            fits = [r for r in range(2, spare + 1) if r * row_bytes + r * r * pair_bytes <= spare]
            assert _largest_rows(spare, row_bytes, pair_bytes) == max(fits)
