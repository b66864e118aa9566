"""Forgetting by time: masses against weights worked out by hand, late rows, gaps, cuts and refinements."""

from datetime import datetime
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from harness.short_form import longer
from shoal import StreamingDPMixture
from shoal.errors import InputError, SettingError, ShapeError
from shoal.estimators.points import checked_times
from shoal.mixture import MixtureState, StreamSettings, advanced, decayed, from_bytes, late_again, to_bytes
from shoal.partitions import assimilate_inplace as assimilate_by_partitions_inplace
from shoal.points.arrays import Array
from shoal.refinement import adopt_inplace, refine, window_start
from shoal.sequential import assimilate_inplace, initial_state, timed

HOUR = 3_600.0
START = 1_767_225_600.0
"""2026-01-01, a multiple of every step."""


def fed(state: StreamSettings | MixtureState, x: Array, times: Array, step: int = 10_000, save: bool = False) -> Any:
    """The state after rows with times, and the events."""
    state = initial_state(state) if isinstance(state, StreamSettings) else state
    events: list[Any] = []
    for at in range(0, len(x), step):
        state, rows = timed(state, x[at : at + step], times[at : at + step])
        state, info = assimilate_inplace(state, rows)
        events += info.events
        state = from_bytes(to_bytes(state))[0] if save else state
    return state, events


def by_hand(times: Array, half_life_s: float) -> Array:
    """(N,) weights after the last row: halved by the steps between each row's own time and the newest one."""
    places = np.floor(times / (half_life_s / 32.0))
    return np.asarray(2.0 ** ((places - places.max()) / 32.0))


def arrivals(n: int, seed: int, *, disorder_s: float = 0.0) -> Array:
    """n times over some hours, at an uneven rate, each late by up to so many seconds."""
    rng = np.random.default_rng(seed)
    gaps = rng.exponential(10.0, n) * np.where(np.arange(n) % 200 < 150, 1.0, 8.0)
    return np.asarray(START + np.cumsum(gaps) - rng.uniform(0.0, 1.0, n) * disorder_s)


def plain(stream: SimpleNamespace, family: str = "gaussian", **others: Any) -> StreamSettings:
    prior = stream.prior(family, 2, 1.0, 2e3)
    given = {"half_life": "1h", "method": "sva"} | others
    return StreamSettings(n_features=2, family=family, prior=prior, **given)


@pytest.mark.parametrize("disorder_s", [0.0, 2_000.0])
@pytest.mark.parametrize("half_life", ["1h", "30m"])
def test_statistics_are_those_of_points_weighted_by_hand(
    stream: SimpleNamespace, family: str, half_life: str, disorder_s: float
) -> None:
    x, z = stream.far(900, 2, 3, seed=1)
    times = arrivals(900, 2, disorder_s=disorder_s)
    state, _ = fed(plain(stream, family, half_life=half_life), x, times)
    weights = by_hand(times, {"1h": HOUR, "30m": HOUR / 2}[half_life])
    first = sorted(range(3), key=lambda k: int(np.flatnonzero(z == k)[0]))
    due = state.prior.suffstats(x, np.eye(3)[:, first][z] * weights[:, None])
    assert state.n_components == 3
    for field, expected in zip(state.stats, due, strict=True):
        np.testing.assert_allclose(field[:3], expected, rtol=1e-9, atol=1e-9)
    assert state.decayed_count == pytest.approx(weights.sum(), rel=1e-12)


@pytest.mark.parametrize("method", ["default", "sva"])
def test_any_cut_and_any_save_gives_the_same_bits(stream: SimpleNamespace, method: str) -> None:
    x, _ = stream.nine(1_500, seed=3)
    times = arrivals(1_500, 4, disorder_s=900.0)
    settings = StreamSettings(n_features=2, half_life="2h", method=method, warmup_points=300, refinement=None)
    whole, events = fed(settings, x, times)
    for step, save in ((613, False), (97, True)):
        state, found = fed(settings, x, times, step, save)
        assert to_bytes(state) == to_bytes(whole)
        assert found == events


@pytest.mark.parametrize("partitions", [1, 2])
def test_any_cut_tells_as_often_that_there_is_no_room(partitions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.mixture.round.ROUND_ROWS", 256)
    monkeypatch.setattr("shoal.mixture.round.LEAST_ROUND_ROWS", 64)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(900, 2)) + 20.0 * rng.integers(8, size=(900, 1))
    burst = np.arange(900) // 150
    times = START + 0.01 * np.arange(900) + 20 * HOUR * burst  # each burst lies within a step of the clock
    others = {"max_components": 3, "max_archived": 0, "warmup_points": 100, "refinement": None, "window": 0}
    settings = StreamSettings(n_features=2, family="diagonal", half_life="1h", partitions=partitions, **others)

    def told(step: int) -> tuple[bytes, list[Any]]:
        state, events = initial_state(settings), []
        for at in range(0, len(x), step):
            state, rows = timed(state, x[at : at + step], times[at : at + step])
            state, info = assimilate_by_partitions_inplace(state, rows)
            events += info.events
        return to_bytes(state), events

    whole, events = told(900)
    assert sum(event.kind == "capacity" for event in events) > 3
    for step in (200, 77, 1):
        assert told(step) == (whole, events)


def test_a_long_silence_weakens_what_was_before_and_not_the_point_that_ends_it(stream: SimpleNamespace) -> None:
    x, _ = stream.far(101, 2, 1)
    times = np.append(np.full(100, START), START + 10 * HOUR)
    state, _ = fed(plain(stream), x, times)
    assert state.decayed_count == pytest.approx(1.0 + 100.0 * 2.0**-10)


def test_a_component_that_nothing_feeds_for_two_half_lives_is_retired_and_returns(stream: SimpleNamespace) -> None:
    rng = np.random.default_rng(5)
    z = np.concatenate([rng.integers(2, size=400), np.zeros(300, dtype=np.int64), rng.integers(2, size=200)])
    x = 30.0 * np.eye(2)[z] + rng.normal(size=(900, 2))
    times = START + np.concatenate([np.arange(400) * 9.0, 3_600.0 + np.arange(500) * 36.0])
    _, events = fed(plain(stream, method="default", refinement=None), x, times)
    (gone,) = [event for event in events if event.kind == "pruned"]
    seen_last = float(times[np.flatnonzero(z[:400] == 1)[-1]])
    step = HOUR / 32  # times count in steps
    assert 2 * HOUR - step <= times[gone.offset] - seen_last <= 2 * HOUR + step + 36.0
    (back,) = [event for event in events if event.kind == "returned"]
    assert back.children == gone.parents


def test_late_points_are_counted_beyond_two_half_lives(stream: SimpleNamespace) -> None:
    x, _ = stream.far(4, 2, 1)
    times = START + HOUR * np.array([5.0, 4.0, 3.1, 2.9])
    state, _ = fed(plain(stream), x, times)
    assert state.clock.late == 1
    assert state.clock.now == START + 5 * HOUR
    assert state.decayed_count == pytest.approx(by_hand(times, HOUR).sum(), rel=1e-12)
    assert state.decayed_count == pytest.approx(1.0 + 2.0**-1.0 + 2.0**-1.9 + 2.0**-2.1, rel=0.022)  # a step


def test_the_order_of_the_points_changes_no_weight(stream: SimpleNamespace) -> None:
    x, _ = stream.far(300, 2, 1)
    times = arrivals(300, 11)
    shuffled = np.random.default_rng(12).permutation(300)
    counts = [fed(plain(stream), x[order], times[order])[0].decayed_count for order in (np.arange(300), shuffled)]
    assert counts[0] == pytest.approx(counts[1], rel=1e-12)


def test_lateness_can_be_told_again_from_the_clock() -> None:
    """Beside what was told when the points came, in any cut, with points that have no time among them. For a while the
    clock of arrivals was ahead."""
    times = arrivals(2_000, 13, disorder_s=4_000.0)
    times[np.random.default_rng(14).random(2_000) < 0.1] = np.nan
    arrived = START + 9.0 * np.arange(2_000)
    arrived[900:1_000] += 3.0 * HOUR
    clock, told, step_s = None, [], HOUR / 32
    for at in range(0, 2_000, 37):
        part = slice(at, at + 37)
        clock, late = advanced(clock, times[part], step_s, at, arrived[part][0])
        while clock.pending is not None:
            clock = decayed(clock)
        told.append(late)
        arrived[part] = arrived[part][0]
        times[part][times[part] >= arrived[part]] = np.nan
    assert 100 < np.count_nonzero(np.concatenate(told)) < 1_900
    again = late_again(clock, times[500:], arrived[500:], np.arange(500, 2_000), step_s)
    np.testing.assert_array_equal(again, np.concatenate(told)[500:])


@pytest.mark.parametrize("ahead_s", [60.0, 74.0 * 365 * 86_400])
def test_a_time_in_the_future_counts_as_the_time_of_arrival(stream: SimpleNamespace, ahead_s: float) -> None:
    x, _ = stream.far(200, 2, 1)
    times = START + 10.0 * np.arange(200)
    wrong = times.copy()
    wrong[50] += ahead_s
    states = []
    for given in (times, wrong):
        state = initial_state(plain(stream))
        for i in range(200):
            state, rows = timed(state, x[i : i + 1], given[i : i + 1], arrived=float(times[i]))
            state, _ = assimilate_inplace(state, rows)
        states.append(state)
    assert to_bytes(states[0]) == to_bytes(states[1])


def test_a_clock_that_jumps_back_makes_no_point_late_and_one_that_jumps_ahead_ages_once(
    stream: SimpleNamespace,
) -> None:
    """Points without times, stamped by a clock that is an hour wrong for a while."""
    x, _ = stream.far(300, 2, 1)
    hour_wrong = np.repeat([0.0, -HOUR, 0.0], 100)
    for sign, ahead in ((1.0, False), (-1.0, True)):
        state = initial_state(plain(stream))
        for i in range(300):
            arrived = START + 10.0 * i + sign * hour_wrong[i]
            state, rows = timed(state, x[i : i + 1], np.array([np.nan]), arrived=arrived)
            state, _ = assimilate_inplace(state, rows)
        assert state.clock.late == 0
        held = np.maximum.accumulate(START + 10.0 * np.arange(300) + sign * hour_wrong)
        assert held[-1] == START + (5_590.0 if ahead else 2_990.0)
        assert state.clock.now == held[-1]
        assert state.decayed_count == pytest.approx(by_hand(held, HOUR).sum(), rel=1e-12)


def test_after_a_clock_that_was_ahead_points_are_late_by_when_they_arrived(stream: SimpleNamespace) -> None:
    """Ten hours ahead for one point, they counted a thousandth, until the clock had caught up."""
    x, _ = stream.far(300, 2, 1)
    arrived = START + 10.0 * np.arange(300)
    own = arrived - np.where(np.arange(300) % 2, HOUR, 1.0)
    arrived[100] += 10.0 * HOUR
    own[100] = np.nan
    state = initial_state(plain(stream))
    for i in range(300):
        state, rows = timed(state, x[i : i + 1], own[i : i + 1], arrived=float(arrived[i]))
        state, _ = assimilate_inplace(state, rows)
    assert state.clock.now == arrived[100]
    assert state.clock.late == 0
    after = np.where(np.arange(101, 300) % 2, 0.5, 1.0).sum()
    assert state.decayed_count == pytest.approx(1.0 + after, rel=0.025), "to a step"


def test_points_without_times_come_at_the_newest_time(stream: SimpleNamespace) -> None:
    x, _ = stream.far(300, 2, 1)
    state, _ = fed(plain(stream), x[:200], arrivals(200, 1))
    count = state.decayed_count
    state, _ = assimilate_inplace(state, x[200:])
    assert state.decayed_count == pytest.approx(count + 100.0)


def nine(n: int) -> Array:
    rng = np.random.default_rng(7)
    return np.asarray(3.5 * np.stack(np.divmod(rng.integers(9, size=n), 3), axis=1) + rng.normal(size=(n, 2)))


def test_refinements_weigh_the_rows_of_the_window_as_the_stream_does() -> None:
    """Adopted ones leave the count as it is by hand, and the masses sum to it."""
    x, times = nine(1_100), arrivals(1_100, 8, disorder_s=1_500.0)
    models = []
    for step in (300, 1_077):
        model = StreamingDPMixture(half_life="9h", warmup_points=500)
        for at in range(0, len(x), step):
            model.partial_fit(x[at : at + step], times=times[at : at + step])
        models.append(model)
    state = models[0]._fitted.state
    assert state.schedule.adopted >= 1
    assert state.decayed_count == pytest.approx(by_hand(times, 9 * HOUR).sum(), rel=1e-9)
    assert float(models[0].masses_.sum()) + state.pruned_mass == pytest.approx(state.decayed_count, rel=1e-9)
    assert to_bytes(models[1]._fitted.state) == to_bytes(state)


@pytest.mark.parametrize(
    ("given", "window_s"),
    [
        ({"half_life": "1h"}, 2.5 * HOUR),
        longer({"half_life": "4h", "window_age": "3h"}, 3 * HOUR),
        ({"half_life": None, "window_age": "3h"}, 3 * HOUR),
    ],
)
def test_the_window_ends_by_time(given: dict[str, Any], window_s: float) -> None:
    """It holds between half and all of its time, a silence that is longer empties it, and any cut gives the same."""
    x, times = nine(4_200), arrivals(4_200, 15)
    times[3_000:] += 20 * HOUR
    settings = StreamSettings(n_features=2, warmup_points=200, refinement=None, **given)
    whole, _ = fed(settings, x, times)
    cut, _ = fed(settings, x, times, step=331, save=True)
    assert to_bytes(whole) == to_bytes(cut)
    step_s = settings.clock_step_s
    state, seen = initial_state(settings), []
    for at in range(0, 4_200, 100):
        state, rows = timed(state, x[at : at + 100], times[at : at + 100])
        state, _ = assimilate_inplace(state, rows)
        start = window_start(state)
        if start is not None and at >= 2_000:
            seen.append((times[at + 99] - times[start]) / window_s)
            assert seen[-1] <= 1.0 + step_s / window_s
            assert start == 3_000 or at < 3_000 or start > 3_000, "no row of before the silence"
    assert min(seen[:10]) >= 0.5 - step_s / window_s
    assert len(set(seen)) > 10
    if given["half_life"] is None:
        assert state.decayed_count == 4_200.0


def test_refinements_follow_a_window_that_ends_by_time() -> None:
    """Each half window at first, so that no row leaves without one; at the same offsets for any cut."""
    x, times = nine(2_500), arrivals(2_500, 16)
    offsets = []
    for step in (250, 1_777):
        model = StreamingDPMixture(half_life="2h", warmup_points=200)
        found = [0]
        for at in range(0, len(x), step):
            model.partial_fit(x[at : at + step], times=times[at : at + step])
            found.append(model._fitted.state.schedule.refined_at)
        offsets.append(to_bytes(model._fitted.state))
        hours = np.diff(times[np.maximum(np.unique(found), 1) - 1]) / HOUR
        assert len(hours) >= (4 if step == 250 else 2)
        if step == 250:
            assert hours.max() < 2 * 2 * 2.5 + 1.0, "two windows: no change of structure doubles the wait"
    assert offsets[0] == offsets[1]


def test_an_adoption_learns_later_rows_again_with_the_decays_that_fell_among_them() -> None:
    x, times = nine(5_000), arrivals(5_000, 9)
    settings = StreamSettings(n_features=2, half_life="3h", warmup_points=500, refinement=None)
    base, _ = fed(settings, x[:3_000], times[:3_000])
    refinement = refine(from_bytes(to_bytes(base))[0], x[window_start(base) : 3_000])
    live, _ = fed(base, x[3_000:], times[3_000:])
    count, clock, known = live.decayed_count, live.clock, from_bytes(to_bytes(live))[0]
    state, _ = adopt_inplace(live, refinement, x[3_000:])
    n = state.n_components
    assert state.decayed_count == pytest.approx(count, rel=1e-9)
    assert float(state.stats[0][:n].sum()) + state.pruned_mass == pytest.approx(count, rel=1e-9)
    assert state.clock.done == clock.done
    np.testing.assert_array_equal(state.clock.at, clock.at)
    again, _ = adopt_inplace(known, refinement, x[3_000:])
    assert to_bytes(again) == to_bytes(state)


def test_times_may_be_dates_and_are_checked() -> None:
    x = np.random.default_rng(0).normal(size=(50, 2))
    dates = np.datetime64("2026-01-01") + np.arange(50).astype("timedelta64[m]")
    one = StreamingDPMixture(half_life="10m").fit(x, times=dates)
    two = StreamingDPMixture(half_life="600s").fit(x, times=START + 60.0 * np.arange(50))
    assert one.masses_.tolist() == two.masses_.tolist()
    assert float(one.masses_.sum()) < 20.0
    with pytest.raises(ShapeError, match="times"):
        one.partial_fit(x, times=dates[:3])
    with pytest.raises(InputError, match="row 49"):
        one.partial_fit(x, times=np.append(np.zeros(49), np.nan))


def test_times_with_a_zone_are_moments() -> None:
    zone = "America/New_York"
    moments = pd.date_range("2026-10-31 20:00", periods=50, freq="1h", tz=zone)  # over the hour that comes twice
    seconds = checked_times([moment.timestamp() for moment in moments], 50)
    for times in (moments, moments.to_series(), list(moments), moments.to_pydatetime(), pa.array(moments)):
        assert checked_times(times, 50).tolist() == seconds.tolist()
    assert checked_times(moments.tz_convert("UTC").tz_localize(None).to_series(), 50).tolist() == seconds.tolist()
    with pytest.raises(InputError, match=r"row 1 is 2026-01-01 00:00:00, without a time zone"):
        checked_times([moments[0], datetime(2026, 1, 1)], 2)
    with pytest.raises(InputError, match="row 1 is nan"):
        checked_times(pd.Series([moments[0], pd.NaT]), 2)


@pytest.mark.parametrize("wrong", ["1", "h", "1 week", "0.5s", "-1h", ""])
def test_a_half_life_in_other_words_is_refused(wrong: str) -> None:
    with pytest.raises(SettingError, match="half_life"):
        StreamSettings(n_features=1, half_life=wrong)


def test_a_half_life_in_time_is_one_setting_among_others(stream: SimpleNamespace) -> None:
    settings = plain(stream, half_life="1.5h")
    assert (settings.half_life_s, settings.half_life_points) == (5_400.0, None)
    assert StreamSettings.from_json(settings.to_json()) == settings
    assert StreamSettings(n_features=1, half_life=50).half_life_points == 50.0
