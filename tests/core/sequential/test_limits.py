"""Bounds on components and bytes: births are refused beyond, with one event until there is room again."""

from types import SimpleNamespace

import numpy as np
import pytest

from shoal.errors import SettingError
from shoal.mixture import state_bytes, to_bytes
from shoal.sequential import apply_settings_inplace, initial_state


def _settings(stream: SimpleNamespace, **others: object) -> object:
    prior = stream.prior("known_covariance", 1, 1.0, 1e6)
    return stream.settings(n_features=1, family="known_covariance", prior=prior, **others)


def _line(n: int) -> np.ndarray:
    """n clusters of their own, one point each."""
    return 40.0 * np.arange(n, dtype=float)[:, None]


def test_births_beyond_the_limit_are_refused_and_told_once(stream: SimpleNamespace) -> None:
    for cut in (1, 7, 50):
        run = stream.feed(_settings(stream, max_components=20), _line(50), cut)
        assert run.state.n_components == 20
        assert run.state.births_refused == 30
        assert sum(info.births_refused for info in run.infos) == 30
        told = [event for event in run.events if event.kind == "capacity"]
        assert [event.offset for event in told] == [21]
        assert run.state.at_capacity
        assert stream.mass_error(run.state) < 1e-12


def test_room_made_by_forgetting_ends_the_spell(stream: SimpleNamespace) -> None:
    settings = _settings(stream, max_components=5, half_life=64.0)
    x = np.concatenate([_line(10), np.zeros((300, 1)), 1e4 + _line(10)])
    run = stream.feed(settings, x)
    offsets = [event.offset for event in run.events if event.kind == "capacity"]
    assert len(offsets) == 2
    assert offsets[0] == 6
    assert offsets[1] > 310


def test_one_component_alone(stream: SimpleNamespace, family: str) -> None:
    x, _ = stream.nine(2_100)
    run = stream.feed(stream.settings(n_features=2, family=family, max_components=1, warmup_points=100), x, 333)
    assert run.state.n_components == 1
    assert stream.mass_error(run.state) < 1e-12


@pytest.mark.parametrize(("method", "bound"), [("default", 200_000), ("sva", 20_000)])
def test_state_bytes_stay_within_their_bound(stream: SimpleNamespace, method: str, bound: int) -> None:
    run = stream.feed(_settings(stream, max_state_bytes=bound, method=method), _line(3_000), 500)
    assert run.state.births_refused > 0
    assert run.state.n_components > 50
    assert state_bytes(run.state) <= bound
    assert len(to_bytes(run.state)) <= bound + 8_192


def test_bytes_that_hold_no_component_are_refused_at_once(stream: SimpleNamespace) -> None:
    with pytest.raises(SettingError, match="max_state_bytes"):
        initial_state(stream.settings(n_features=500, max_state_bytes=100_000))


def test_a_lower_limit_retires_nothing_and_a_higher_one_makes_room(stream: SimpleNamespace) -> None:
    settings = _settings(stream, max_components=20)
    state = stream.feed(settings, _line(10)).state
    state, info = apply_settings_inplace(state, settings.with_changes(max_components=5))  # type: ignore[attr-defined]
    assert info.events == ()
    run = stream.feed(state, 1e4 + _line(3))
    assert run.state.n_components == 10
    assert [event.kind for event in run.events] == ["capacity"]
    state, _ = apply_settings_inplace(run.state, settings)  # type: ignore[arg-type]
    run = stream.feed(state, 2e4 + _line(3))
    assert [event.kind for event in run.events] == ["born"] * 3
    assert not run.state.at_capacity
