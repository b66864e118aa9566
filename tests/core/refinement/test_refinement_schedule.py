"""When refinements fall due."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from harness.short_form import longer
from shoal.estimators import StreamingDPMixture
from shoal.refinement import forget_window, points_until_refinement, refinement_due
from shoal.refinement.schedule import MISFIT_GRID, schedule_after


def offsets(state: object, until: int, changed: bool, gained: bool = True) -> list[tuple[int, str]]:
    """Walk a state's counters, without learning, through the refinements up to an offset."""
    found = []
    while state.points_seen < until:  # type: ignore[attr-defined]
        taken = points_until_refinement(state)  # type: ignore[arg-type]
        assert 1 <= taken <= MISFIT_GRID
        state = state._replace(points_seen=state.points_seen + taken)  # type: ignore[attr-defined]
        due = refinement_due(state)
        if due is not None and state.points_seen <= until:
            found.append((state.points_seen, due.why))
            state = state._replace(schedule=schedule_after(state, changed=changed, gained=gained)._replace(adopted=1))
    return found


def live_state(stream: SimpleNamespace, **settings: object) -> object:
    """A stream just past its first row, with no warm-up to wait for."""
    prior = stream.prior("diagonal", 2, 1.0, 100.0)
    made = stream.settings(n_features=2, family="diagonal", prior=prior, **settings)
    return stream.feed(made, np.zeros((1, 2))).state


def test_doubling_up_to_the_window_then_by_half_windows(stream: SimpleNamespace) -> None:
    state = live_state(stream, window=10_000)
    assert offsets(state, 26_000, changed=True) == [
        (1_000, "warm-up"),
        (2_000, "doubled"),
        (4_000, "doubled"),
        (8_000, "doubled"),
        (10_000, "doubled"),
        (15_000, "period"),
        (20_000, "period"),
        (25_000, "period"),
    ]


def test_a_wait_without_change_doubles_up_to_eight_periods(stream: SimpleNamespace) -> None:
    state = live_state(stream, window=2_000)
    found = [offset for offset, _ in offsets(state, 40_000, changed=False)]
    assert found == [1_000, 2_000, 6_000, 14_000, 22_000, 30_000, 38_000]


@pytest.mark.parametrize(
    ("gained", "half_life", "found"),
    [
        (True, None, [1_000, 3_000, 9_000, 27_000, 100_000, 300_000, 700_000]),
        (False, None, [1_000, 3_000, 15_000, 100_000, 500_000, 900_000]),
        (False, 40_000.0, [1_000, 3_000, 9_000, 27_000, 100_000, 200_000, 300_000]),
    ],
)
def test_while_the_window_fills_what_changed_nothing_waits_for_more_than_twice_the_points(
    stream: SimpleNamespace, gained: bool, half_life: float | None, found: list[int]
) -> None:
    state = live_state(stream, window=100_000, half_life=half_life)._replace(next_decay=-1)  # type: ignore[attr-defined]
    told = offsets(state, found[-1], changed=False, gained=gained)
    assert [offset for offset, _ in told] == found
    assert [why for offset, why in told if 1_000 < offset <= 100_000] == ["doubled"] * (found.index(100_000))


def test_refinements_by_request_lengthen_no_wait(stream: SimpleNamespace) -> None:
    state = live_state(stream, window=100_000)._replace(points_seen=1_000)  # type: ignore[attr-defined]
    state = state._replace(schedule=schedule_after(state, changed=False, gained=False))
    assert state.schedule.periods == 2
    for offset in (1_000, 1_000, 1_700, 2_999):
        state = state._replace(points_seen=offset)
        state = state._replace(schedule=schedule_after(state, changed=False, gained=False))
        assert state.schedule.periods == 2
    state = state._replace(points_seen=3 * 2_999)
    assert schedule_after(state, changed=False, gained=False).periods == 4


def test_a_half_life_set_later_shortens_a_long_wait(stream: SimpleNamespace) -> None:
    state = live_state(stream, window=100_000)
    schedule = state.schedule._replace(refined_at=15_000, periods=8)  # type: ignore[attr-defined]
    state = state._replace(points_seen=44_999, schedule=schedule)  # type: ignore[attr-defined]
    forgetting = state._replace(settings=replace(state.settings, half_life=40_000.0))
    for one, offset in ((state, 100_000), (forgetting, 45_000)):
        assert refinement_due(one) is None
        due = refinement_due(one._replace(points_seen=offset))
        assert due is not None
        assert due.offset == offset


@pytest.mark.parametrize("cuts", [(), longer((2_440,)), longer((2_460,)), (2_469, 2_499), range(10, 4_000, 10)])
def test_a_birth_shortens_the_wait_at_the_same_point_however_calls_are_cut(cuts: Iterable[int]) -> None:
    """A warm-up that ends at no multiple of 500, and a cluster that begins before the stream has doubled."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4_000, 2)) + 30.0 * rng.integers(3, size=4_000)[:, None]
    x[2_350:][rng.random(1_650) < 0.5] -= 60.0
    model, refined = StreamingDPMixture("diagonal", warmup_points=1_234), []
    for part in np.split(x, list(cuts)):
        model.partial_fit(part)
        refined.append(model._fitted.state.schedule)
    schedules = list(dict.fromkeys((schedule.refined_at, schedule.periods) for schedule in refined))
    assert schedules[-1] == (2_500, 2)


def test_a_component_born_since_takes_the_long_wait_back(stream: SimpleNamespace) -> None:
    state = live_state(stream, window=100_000)
    schedule = state.schedule._replace(refined_at=3_000, periods=4)  # type: ignore[attr-defined]
    state = state._replace(points_seen=7_000, schedule=schedule)  # type: ignore[attr-defined]
    assert refinement_due(state) is None
    state.born_at[0], state.stats.mass[0] = 3_001, 30.0
    due = refinement_due(state)
    assert due is not None
    assert (due.why, due.offset) == ("doubled", 6_000)


def test_a_window_shorter_than_the_warm_up_begins_with_periods(stream: SimpleNamespace) -> None:
    state = live_state(stream, window=600)
    assert [offset for offset, _ in offsets(state, 2_000, changed=True)] == [1_000, 1_200, 1_500, 1_800]


def test_a_refinement_late_is_followed_by_no_hasty_one(stream: SimpleNamespace) -> None:
    state = live_state(stream, window=10_000)
    for last, due in ((1_300, 2_600), (9_000, 10_000), (12_600, 20_000), (12_400, 15_000)):
        late = state._replace(points_seen=last, schedule=state.schedule._replace(refined_at=last, adopted=1))  # type: ignore[attr-defined]
        assert offsets(late, 20_000, changed=True)[0][0] == due


def test_an_alarm_is_acted_upon_at_fixed_offsets_and_not_at_once_again(stream: SimpleNamespace) -> None:
    state = live_state(stream, window=10_000)
    schedule = state.schedule._replace(refined_at=10_000, adopted=1, alarm=10_180)  # type: ignore[attr-defined]
    state = state._replace(points_seen=10_180, schedule=schedule)  # type: ignore[attr-defined]
    assert refinement_due(state) is None
    assert points_until_refinement(state) == MISFIT_GRID - 180
    state = state._replace(points_seen=10_500)
    due = refinement_due(state)
    assert due is not None
    assert (due.why, due.offset) == ("misfit", 10_180)
    gaps = []
    for _ in range(6):
        state = state._replace(schedule=schedule_after(state, changed=True)._replace(alarm=state.points_seen))
        gaps.append(state.schedule.misfit_gap)
    assert gaps == [1_000, 2_000, 4_000, 5_000, 5_000, 5_000]
    calm = schedule_after(state._replace(schedule=state.schedule._replace(alarm=-1)), changed=True)
    assert (calm.misfit_gap, calm.alarm) == (500, -1)


def test_nothing_is_due_without_a_window_or_by_request_or_in_the_warm_up(stream: SimpleNamespace) -> None:
    x, _ = stream.far(200, 2, 2)
    settings = partial(stream.settings, n_features=2, warmup_points=200)
    for way in ({"window": 0}, {"method": "sva"}, {"refinement": None}):
        state = stream.feed(settings(**way), x).state
        assert refinement_due(state) is None
        assert points_until_refinement(state) > 1 << 50
    warming = stream.feed(settings(), x[:199]).state
    assert refinement_due(warming) is None
    assert points_until_refinement(warming) == 1
    ready = stream.feed(settings(), x).state
    due = refinement_due(ready)
    assert due is not None
    assert due.why == "warm-up"


def test_a_window_just_begun_waits_for_rows(stream: SimpleNamespace) -> None:
    x, _ = stream.far(300, 2, 2)
    state = forget_window(stream.feed(stream.settings(n_features=2, warmup_points=200), x).state)
    assert refinement_due(state) is None
    assert points_until_refinement(state) == 100
