"""Partitions of a stream: sums against points counted by hand, the same bits for any cut, executor and restart."""

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from harness.gradient_proportions import GradientProportions
from harness.short_form import longer
from shoal import StreamingDPMixture
from shoal.errors import SettingError, SnapshotDamagedError
from shoal.families import FAMILIES
from shoal.mixture import MixtureState, StreamSettings, from_bytes, to_bytes
from shoal.partitions import PieceResult, PieceTask, assimilate_inplace, in_threads, in_turn, learnt_piece
from shoal.points.arrays import Array, IntArray
from shoal.sequential import apply_settings_inplace, initial_state, timed

ROUND = 1_024
START = 1_767_225_600.0


@pytest.fixture(autouse=True)
def _short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.mixture.round.ROUND_ROWS", ROUND)
    monkeypatch.setattr("shoal.mixture.round.LEAST_ROUND_ROWS", 64)


def backwards(tasks: Sequence[PieceTask]) -> list[PieceResult]:
    """The last task first: no task may wait for one before it."""
    return [learnt_piece(task) for task in reversed(tasks)][::-1]


class Fed(NamedTuple):
    state: MixtureState
    events: list[Any]
    labels: IntArray
    log_density: Array


def fed(
    state: StreamSettings | MixtureState,
    x: Array,
    cuts: Sequence[int] = (),
    run: Any = in_turn,
    times: Array | None = None,
    save: bool = False,
) -> Fed:
    """The stream after rows, in calls that end at `cuts`."""
    state = initial_state(state) if isinstance(state, StreamSettings) else state
    events, labels, densities = [], [], []
    ends = [*cuts, len(x)]
    for start, stop in zip([0, *ends], ends, strict=False):
        rows: Any = x[start:stop]
        if times is not None:
            state, rows = timed(state, rows, times[start:stop])
        state, info = assimilate_inplace(state, rows, run)
        state = from_bytes(to_bytes(state))[0] if save else state
        events += info.events
        labels.append(info.labels)
        densities.append(info.scores.log_density)
    return Fed(state, events, np.concatenate(labels), np.concatenate(densities))


def drifting(n: int, seed: int) -> Array:
    """Clusters that move; one comes, and one goes."""
    rng = np.random.default_rng(seed)
    z = rng.integers(6, size=n)
    z[: n // 2][z[: n // 2] == 0] = 1
    z[2 * n // 3 :][z[2 * n // 3 :] == 2] = 3
    centres, ways = 5.0 * rng.normal(size=(6, 2)), 4.0 * rng.normal(size=(6, 2))
    return np.asarray(centres[z] + ways[z] * np.linspace(0, 1, n)[:, None] + rng.normal(size=(n, 2)))


@pytest.mark.parametrize(
    ("family", "others", "n"),
    [
        longer("gaussian", {"half_life": 2_500.0}, 3_900),
        ("diagonal", {"half_life": "2h"}, 3_900),
        longer("gaussian", {"half_life": 2_500.0}, 7_000),
        longer("diagonal", {"half_life": "2h"}, 7_000),
        longer("student", {"window_age": "3h", "window": 1_500}, 7_000),
        longer("gaussian", {"refinement": None}, 7_000),
    ],
)
def test_any_cut_executor_and_restart_gives_the_same_bits(family: str, others: dict[str, Any], n: int) -> None:
    settings = StreamSettings(**{"n_features": 2, "family": family, "partitions": 3, "warmup_points": 200} | others)
    x, rng = drifting(n, 3), np.random.default_rng(4)
    gaps = rng.exponential(4.0, n)
    gaps[n // 2] = 20_000.0
    times = START + np.cumsum(gaps)
    whole = fed(settings, x, times=times)
    cuts = np.unique(rng.integers(1, n, size=25)).tolist()
    for other in (
        fed(settings, x, cuts, times=times, save=True),
        fed(settings, x, [1_500], backwards, times=times),
        fed(settings, x, [2_048], in_threads, times=times),
    ):
        assert to_bytes(other.state) == to_bytes(whole.state)
        assert other.events == whole.events
        assert_array_equal(other.log_density, whole.log_density)
    assert whole.state.round is not None, "the stream ends in the middle of a round"


@pytest.mark.parametrize("half_life", [None, 1_024.0])
@pytest.mark.parametrize("family", ["gaussian", "diagonal", "known_covariance"])
def test_statistics_are_those_of_all_rows_with_their_weights(
    stream: SimpleNamespace, family: str, half_life: float | None
) -> None:
    """Clusters so far apart that every responsibility is zero or one: what is summed can be counted by hand."""
    n = 3 * ROUND + 700
    x, z = stream.far(n, 2, 4, seed=1)
    settings = StreamSettings(
        n_features=2, family=family, prior=stream.prior(family, 2, 1.0, 2e3), half_life=half_life, partitions=2
    )
    state = fed(settings, x, [1_900, 3_333]).state
    step = 32  # of a half-life of 1,024 points
    weights = np.ones(n) if half_life is None else 2.0 ** ((np.arange(n) // step - n // step) / 32.0)
    assert state.n_components == 4
    for row in range(4):
        own = z == z[np.abs(x - state.stats.mean[row]).sum(axis=1).argmin()]
        mean = np.average(x[own], axis=0, weights=weights[own])
        assert_allclose(state.stats.mass[row], weights[own].sum(), rtol=1e-10)
        assert_allclose(state.stats.mean[row], mean, rtol=1e-9, atol=1e-9)
        if family == "gaussian":
            scatter = (weights[own, None] * (x[own] - mean)).T @ (x[own] - mean)
            assert_allclose(state.stats.scatter[row], scatter, rtol=1e-8, atol=1e-6)
    assert_allclose(state.decayed_count, weights.sum(), rtol=1e-10)


@pytest.mark.parametrize("left", [3, 5, 12])
def test_a_round_of_fewer_rows_than_partitions_counts_each_row_once(stream: SimpleNamespace, left: int) -> None:
    """A change of a setting ends a round some rows before the next multiple of its length, where another one begins. In
    that one, a decay falls before each row."""
    n = 2 * ROUND
    x, z = stream.far(n, 2, 4, seed=1)
    gaps = np.where(np.arange(n) < n - left, 0.01, 120.0)
    times, step = START + np.cumsum(gaps), 3_600.0 / 32
    settings = StreamSettings(
        n_features=2, prior=stream.prior("gaussian", 2, 1.0, 2e3), half_life="1h", partitions=7, window=0
    )
    state = fed(settings, x[:-left], times=times[:-left]).state
    state, _ = apply_settings_inplace(state, settings.with_changes(max_components=50))
    before = to_bytes(state)
    whole = fed(from_bytes(before)[0], x[-left:], times=times[-left:]).state
    by_row = fed(from_bytes(before)[0], x[-left:], range(1, left), times=times[-left:], save=True).state
    assert to_bytes(by_row) == to_bytes(whole)
    weights = 2.0 ** ((np.floor(times / step) - np.floor(times[-1] / step)) / 32.0)
    for row in range(4):
        own = z == z[np.abs(x - whole.stats.mean[row]).sum(axis=1).argmin()]
        assert_allclose(whole.stats.mass[row], weights[own].sum(), rtol=1e-10)


def test_soft_compositions_are_summed_each_once() -> None:
    """The shares of a row sum to one, so all components together hold its logarithms once."""
    rng = np.random.default_rng(2)
    n = 2 * ROUND + 600
    alpha = np.array([[8.0, 2.0, 1.0], [4.0, 5.0, 2.0], [1.0, 3.0, 9.0]])[rng.integers(3, size=n)]
    x = rng.gamma(alpha)
    x /= x.sum(axis=1, keepdims=True)
    settings = StreamSettings(n_features=3, family="dirichlet", partitions=3, window=0)
    whole = fed(settings, x)
    parts = fed(settings, x, [1_500, 2_600], backwards, save=True)
    assert to_bytes(parts.state) == to_bytes(whole.state)
    k = whole.state.n_components
    assert whole.state.round is not None
    assert_allclose(whole.state.stats.mass[:k].sum() + whole.state.pruned_mass, n, rtol=1e-10)
    assert_allclose(whole.state.stats.total[:k].sum(axis=0), np.log(x).sum(axis=0), rtol=1e-8)


def test_names_of_levels_that_come_in_the_middle_of_a_round_do_not_end_it() -> None:
    rng = np.random.default_rng(3)
    n = 2 * ROUND + 600
    number = 2 * rng.integers(3, size=(n, 1)) + (rng.random((n, 4)) < 0.2)
    rows = np.array([f"level {i}" for i in range(6)], dtype=object)[number]
    rows[ROUND + 700 :: 150, 1] = "late"
    family = "categorical"
    whole = StreamingDPMixture(family, partitions=3, window=0).fit(rows)
    parts = StreamingDPMixture(family, partitions=3, window=0)
    for start in range(0, n, 250):
        parts.partial_fit(rows[start : start + 250])
    assert parts.level_names_[1][-1] == "late"
    assert parts._fitted.to_bytes() == whole._fitted.to_bytes()


def test_a_cluster_that_two_partitions_find_becomes_one_component(stream: SimpleNamespace) -> None:
    x, _ = stream.far(2 * ROUND, 2, 4, seed=2)
    new = ROUND + np.arange(5, ROUND - 20, 17)
    x[new] = np.array([-400.0, 9.0]) + np.random.default_rng(1).normal(size=(len(new), 2))
    settings = StreamSettings(n_features=2, prior=stream.prior("gaussian", 2, 1.0, 2e3), partitions=2, window=0)
    middle = fed(settings, x[:-1])
    born = [event for event in middle.events if event.offset > ROUND]
    assert [event.children for event in born] == [(4,), (5,)], "ids ascend with the offset of birth"
    assert middle.state.n_components == 6
    assert set(middle.labels[new].tolist()) == {4, 5}
    end = fed(middle.state, x[-1:])
    assert end.state.n_components == 5
    (merged,) = end.events
    assert (merged.kind, sorted(merged.parents), merged.offset) == ("merged", [4, 5], 2 * ROUND)
    row = np.flatnonzero(end.state.live_ids == merged.children[0])[0]
    assert_allclose(end.state.stats.mass[row], len(new), rtol=1e-9)
    assert_allclose(end.state.stats.mean[row], x[new].mean(axis=0), rtol=1e-9)


def test_no_more_components_than_the_limit_are_born(stream: SimpleNamespace) -> None:
    x, _ = stream.far(2 * ROUND, 2, 3, seed=1)
    outliers = np.random.default_rng(0).uniform(-1e5, 1e5, size=(ROUND, 2))
    settings = StreamSettings(
        n_features=2, prior=stream.prior("gaussian", 2, 1.0, 1e9), partitions=3, window=0, max_components=8
    )
    state = fed(settings, x[:ROUND]).state
    found = fed(state, outliers[: ROUND - 1])
    assert found.state.n_components == 8
    assert Counter(event.kind for event in found.events)["capacity"] == 1
    assert found.state.births_refused > 0


def test_an_estimator_in_rounds_refines_at_the_same_offsets_for_any_cut(stream: SimpleNamespace) -> None:
    x, _ = stream.nine(2_600, seed=1)
    whole = StreamingDPMixture("diagonal", partitions=2, window=2_048).fit(x)
    parts = StreamingDPMixture("diagonal", partitions=2, window=2_048)
    for start in range(0, len(x), 700):
        parts.partial_fit(x[start : start + 700])
    assert parts._fitted.to_bytes() == whole._fitted.to_bytes()
    assert whole._fitted.state.schedule.adopted >= 2
    assert parts.events_ == whole.events_


def test_other_settings_end_a_round(stream: SimpleNamespace) -> None:
    x, _ = stream.far(3 * ROUND, 2, 3, seed=1)
    settings = StreamSettings(n_features=2, prior=stream.prior("gaussian", 2, 1.0, 2e3), partitions=2)
    state = fed(settings, x[: ROUND + 700]).state
    assert state.round is not None
    state, _ = apply_settings_inplace(state, settings.with_changes(partitions=4))
    assert state.round is None
    state = fed(from_bytes(to_bytes(state))[0], x[ROUND + 700 :]).state
    assert_allclose(state.stats.mass[: state.n_components].sum(), 3 * ROUND, rtol=1e-10)


@pytest.mark.parametrize(
    "others",
    [{"partitions": 0}, {"partitions": 65}, {"method": "sva"}, {"family": GradientProportions.name}],
)
def test_settings_that_cannot_be_are_refused(others: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES, GradientProportions.name, GradientProportions)
    with pytest.raises(SettingError, match="partitions is"):
        StreamSettings(**({"n_features": 2, "partitions": 2} | others))


def test_a_round_that_does_not_fit_its_state_is_refused(stream: SimpleNamespace) -> None:
    x, _ = stream.far(ROUND + 700, 2, 3, seed=1)
    settings = StreamSettings(n_features=2, prior=stream.prior("gaussian", 2, 1.0, 2e3), partitions=2)
    state = fed(settings, x).state
    within = state.round
    assert within is not None
    first, last = within.partitions
    from_bytes(to_bytes(state))
    for wrong in (
        within._replace(begins_at=ROUND - 1),
        within._replace(ends_at=within.ends_at + 1),
        within._replace(next_id=within.next_id + 1),
        within._replace(partitions=(last,)),
        within._replace(partitions=(first, last._replace(decayed_count=1.0))),
        within._replace(partitions=(first, last._replace(stats=last.stats._replace(mass=-last.stats.mass)))),
        within._replace(partitions=(first, last._replace(born_at=last.born_at + ROUND * ROUND))),
    ):
        with pytest.raises(SnapshotDamagedError):
            from_bytes(to_bytes(state._replace(round=wrong)))
