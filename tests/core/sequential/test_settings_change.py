"""Settings that change in mid-stream."""

from types import SimpleNamespace
from typing import Any

import pytest

from harness.short_form import longer
from shoal.errors import SettingError
from shoal.mixture import to_bytes
from shoal.sequential import apply_settings_inplace

SEARCHED = pytest.mark.parametrize("refinement", [None, longer("auto")])


@SEARCHED
def test_a_change_holds_from_its_offset_on_whatever_the_cuts(stream: SimpleNamespace, refinement: Any) -> None:
    x, _ = stream.nine(1_200, seed=1)
    settings = stream.settings(n_features=2, warmup_points=300, refinement=refinement)
    changed = settings.with_changes(
        half_life=500.0, concentration=3.0, birth_threshold=0.2, check_schedule="paper", max_components=30
    )
    ends = []
    for cut in (1, 170, 1_200):
        state = stream.feed(settings, x[:600], cut).state
        state, info = apply_settings_inplace(state, changed)
        assert info.labels.shape == (0,)
        ends.append(to_bytes(stream.feed(state, x[600:], cut).state))
    assert len(set(ends)) == 1


@SEARCHED
def test_a_change_in_the_warm_up_holds_for_its_fits(stream: SimpleNamespace, refinement: Any) -> None:
    x, _ = stream.nine(300, seed=1)
    settings = stream.settings(n_features=2, warmup_points=300, refinement=refinement)
    state = stream.feed(settings, x[:100]).state
    state, _ = apply_settings_inplace(state, settings.with_changes(concentration=3.0))
    late = stream.feed(state, x[100:]).state
    early = stream.feed(settings.with_changes(concentration=3.0), x).state
    assert late.prior == early.prior
    assert late.stats.mass[: late.n_components].tolist() == early.stats.mass[: early.n_components].tolist()


@pytest.mark.parametrize("change", [{"family": "diagonal"}, {"n_features": 3}, {"method": "sva"}, {"warmup_points": 5}])
def test_a_change_of_shape_is_refused_and_changes_nothing(stream: SimpleNamespace, change: dict[str, object]) -> None:
    settings = stream.settings(n_features=2)
    state = stream.feed(settings, stream.nine(50)[0]).state
    before = to_bytes(state)
    with pytest.raises(SettingError, match=next(iter(change))):
        apply_settings_inplace(state, stream.settings(**{"n_features": 2, **change}))
    assert to_bytes(state) == before
