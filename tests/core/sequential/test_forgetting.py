"""Forgetting against weights worked out point by point, and what it retires."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from harness.short_form import longer, short_form
from shoal import StreamingDPMixture
from shoal.mixture import MixtureState, from_bytes, stats_at_offsets, to_bytes
from shoal.sequential import forgetting
from shoal.sequential.forgetting import counted, decay_inplace


def _weights(n: int, half_life: float) -> np.ndarray:
    """The weight of each of n points after the last: halved every half-life, in steps of a 32nd of it."""
    step = max(1, int(half_life) // 32)
    decays = n // step - np.arange(n) // step
    return np.asarray(2.0 ** (-step * decays / half_life))


@pytest.mark.parametrize("half_life", [50.0, 200.0, 777.7])
def test_statistics_are_those_of_weighted_points(stream: SimpleNamespace, family: str, half_life: float) -> None:
    n = 1_500
    x, z = stream.far(n, 3, 4)
    prior = stream.prior(family, 3, 1.0, 2e3)
    state = stream.feed(
        stream.settings(n_features=3, family=family, prior=prior, half_life=half_life, method="sva"), x
    ).state
    order = [int(np.argmax(z == k)) for k in range(4)]
    weighted = np.eye(4)[:, np.argsort(order)][z] * _weights(n, half_life)[:, None]
    assert state.n_components == 4
    for field, due in zip(state.stats, prior.suffstats(x, weighted), strict=True):
        np.testing.assert_allclose(field[:4], due, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(state.decayed_count, weighted.sum(), rtol=1e-12)


def test_steps_stay_close_to_a_weight_that_decays_at_every_point(stream: SimpleNamespace) -> None:
    """The real count against the sum of weights halved point by point, at every place within a step."""
    half_life = 320.0
    x, _ = stream.far(700, 2, 1)
    settings = stream.settings(n_features=2, prior=stream.prior("gaussian", 2, 1.0, 2e3), half_life=half_life)
    state = stream.feed(settings, x[:1]).state
    ratios = []
    for seen in range(2, 701):
        state = stream.feed(state, x[seen - 1 : seen]).state
        ratios.append(state.decayed_count / np.sum(2.0 ** (-np.arange(seen) / half_life)))
    assert 1 / 1.022 < min(ratios) < 0.99
    assert 1.008 < max(ratios) < 1.022  # a count averages over the ages within a step, so half of it shows


@pytest.mark.parametrize("start", [0.3, 1.0 + 11.0 * 2.0**-52, 5.0, 63.7, 1_000.123456789, 1e6 / 7.0])
def test_the_count_is_the_same_to_the_bit_however_it_is_cut(start: float) -> None:
    """Beside ones added one by one, and across powers of two, where each sum is rounded: of 1 + 11 ulp and 7 that comes
    to another number than one sum."""
    one_by_one = start
    for n in range(1, 998):
        one_by_one += 1.0
        assert counted(start, n) == one_by_one
    for cut in (1, 7, 64):
        count, left = start, 997
        while left:
            count, left = counted(count, min(cut, left)), left - min(cut, left)
        assert count == one_by_one


def test_a_component_that_nothing_feeds_is_retired_after_two_half_lives(stream: SimpleNamespace) -> None:
    x, _ = stream.far(2_000, 2, 2)
    x[:500, 0] = np.where(np.arange(500) % 2, 30.0, 0.0)
    x[500:, 0] = 0.0  # only the first cluster goes on
    settings = stream.settings(n_features=2, prior=stream.prior("gaussian", 2), half_life=320.0)
    run = stream.feed(settings, x)
    pruned = [event for event in run.events if event.kind == "pruned"]
    assert [event.parents for event in pruned] == [(1,)]
    assert 500 + 640 < pruned[0].offset <= 500 + 640 + 10
    assert run.state.pruned_mass > 0
    assert stream.mass_error(run.state) < 1e-12


def test_a_component_of_too_little_mass_is_retired(stream: SimpleNamespace) -> None:
    """One far point has decayed below half a point after one half-life."""
    x = np.random.default_rng(0).normal(size=(400, 2))
    x[100] = 200.0
    settings = stream.settings(n_features=2, prior=stream.prior("gaussian", 2, 1.0, 1e4), half_life=96.0)
    run = stream.feed(settings, x)
    assert [(event.kind, event.parents) for event in run.events[-1:]] == [("pruned", (1,))]
    assert 101 + 96 - 3 <= run.events[-1].offset <= 101 + 96 + 3


def test_the_prior_does_not_decay(stream: SimpleNamespace) -> None:
    prior = stream.prior("gaussian", 2)
    settings = stream.settings(n_features=2, prior=prior, half_life=20.0)
    state: MixtureState = stream.feed(settings, stream.nine(1_000)[0]).state
    assert state.prior == prior
    assert state.decayed_count < 40.0


@pytest.mark.parametrize("half_life", [30.0, longer(500.0)])
@pytest.mark.parametrize("method", ["default", "sva", "sva-pm"])
def test_masses_always_add_up(stream: SimpleNamespace, method: str, half_life: float, family: str) -> None:
    x, _ = stream.nine(700, seed=7, spacing=3.0)
    settings = stream.settings(
        n_features=2, family=family, method=method, half_life=half_life, warmup_points=100, prune_threshold=0.02
    )
    state = stream.feed(settings, x[:1]).state
    for start in range(1, 700, 50):
        state = stream.feed(state, x[start : start + 50]).state
        assert stream.mass_error(state) < 1e-11


def test_a_half_life_beyond_all_offsets_forgets_nothing() -> None:
    """Its steps did not fit into 64 bits, and the second part of a warm-up was refused."""
    rows = np.random.default_rng(3).normal(size=(80, 2))
    masses = []
    for half_life in (1e300, None):
        model = StreamingDPMixture(half_life=half_life, random_state=0)
        masses.append(model.partial_fit(rows[:40]).partial_fit(rows[40:]).masses_)
    np.testing.assert_allclose(masses[0], masses[1], rtol=1e-12)


def test_a_half_life_can_come_and_go(stream: SimpleNamespace) -> None:
    from shoal.sequential import apply_settings_inplace

    x, _ = stream.nine(3_000, seed=8)
    settings = stream.settings(n_features=2, warmup_points=200)
    state = stream.feed(settings, x[:1_000]).state
    state, _ = apply_settings_inplace(state, settings.with_changes(half_life=100.0))
    assert state.next_decay == 1_002
    state, _ = from_bytes(to_bytes(state))
    state = stream.feed(state, x[1_000:2_000]).state
    assert state.decayed_count < 300
    state, _ = apply_settings_inplace(state, settings)
    assert state.next_decay == -1
    state, _ = from_bytes(to_bytes(state))
    count = state.decayed_count
    state = stream.feed(state, x[2_000:]).state
    assert state.decayed_count == pytest.approx(count + 1_000)
    assert len(to_bytes(state)) > 0


@pytest.mark.parametrize(
    ("family", "window", "half_life"),
    short_form(
        [
            (family, window, half_life)
            for family in ("gaussian", "diagonal", "known_covariance")
            for window in (0, 4_000)
            for half_life in (300.0, 1.0)
        ],
        [("gaussian", 4_000, 1.0), ("diagonal", 0, 300.0), ("known_covariance", 4_000, 1.0)],
    ),
)
def test_a_decay_by_kernel_is_that_of_numpy_to_the_bit(
    stream: SimpleNamespace, family: str, window: int, half_life: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decay after decay until only the last component is left, of masses too that become zero by rounding."""
    x, _ = stream.far(900, 3, 5)
    prior = stream.prior(family, 3, 1.0, 2e3)
    settings = stream.settings(n_features=3, family=family, prior=prior, half_life=300.0, window=window)
    state = stream.feed(settings, x).state
    assert (state.past is None) == (window == 0)
    blob = to_bytes(state)
    quick = replace(state.settings, half_life=half_life)
    ours, theirs = (from_bytes(blob)[0]._replace(settings=quick) for _ in range(2))
    for copy in (ours, theirs):
        for stats, row in [(copy.stats, 1), *((mark.stats, 0) for mark in stats_at_offsets(copy))]:
            stats.mass[row], stats.mean[row] = 5e-324, 7.0  # half of it is nothing
    for _ in range(400):
        ours, told = decay_inplace(ours)
        with monkeypatch.context() as patch:
            patch.setattr(forgetting, "has_scatter", lambda prior: False)
            theirs, said = decay_inplace(theirs)
        assert told == said
        assert to_bytes(ours) == to_bytes(theirs)
        for mark in stats_at_offsets(ours):
            assert half_life > 1.0 or not mark.stats.mean[0].any()
        step = max(1, ours.next_decay - ours.points_seen)
        ours, theirs = (each._replace(points_seen=each.points_seen + step) for each in (ours, theirs))
    assert ours.n_components == 1
