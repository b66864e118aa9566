"""The past and the later mark: what was learnt up to an offset, kept through all that happens to the components."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.short_form import short_form
from shoal.errors import SettingError
from shoal.mixture import (
    MixtureState,
    compact_inplace,
    from_bytes,
    merge_by_bound_inplace,
    prune_inplace,
    state_bytes,
    stats_at_offsets,
    to_bytes,
)
from shoal.mixture.stats_at_offset import StatsAtOffset, stats_at_offset
from shoal.sequential import apply_settings_inplace, assimilate_inplace, initial_state


def balance_error(state: MixtureState) -> float:
    """How far the masses of live components and marks are from their counts, relative to the live count."""
    k = state.n_components
    held = [(state.stats[0], state.pruned_mass, state.decayed_count)]
    held += [(mark.stats[0], mark.pruned_mass, mark.decayed_count) for mark in stats_at_offsets(state)]
    return max(abs(float(mass[:k].sum()) + pruned - count) for mass, pruned, count in held) / state.decayed_count


def in_order(state: MixtureState) -> bool:
    """Whether past, later mark and live masses grow, row by row, up to rounding; and pair sums do."""
    k = state.n_components
    past, mid = stats_at_offsets(state)
    masses = [rows[0][:k] for rows in (past.stats, mid.stats, state.stats)]
    slack = 1e-9 * state.decayed_count
    return all(bool((a <= b + slack).all()) for a, b in pairwise(masses))


def test_the_past_is_what_had_been_learnt_at_its_offset(stream: SimpleNamespace, family: str) -> None:
    """Clusters far apart: nothing is joined or pruned, so a mark must be the state of then, to the bit."""
    x, _ = stream.far(1_100, 2, 5)
    settings = stream.settings(n_features=2, family=family, prior=stream.prior(family, 2, 1.0, 1e4), window=400)
    state = stream.feed(settings, x, 17).state
    past, mid = stats_at_offsets(state)
    assert (past.offset, mid.offset) == (800, 1_000)
    for mark in (past, mid):
        then = stream.feed(settings, x[: mark.offset]).state
        k = then.n_components
        assert all(np.array_equal(a[:k], b[:k]) for a, b in zip(mark.stats, then.stats, strict=True))
        assert not any(field[k:].any() for field in mark.stats)
        assert np.array_equal(mark.pairs[:k, :k], then.pairs[:k, :k])
        assert (mark.pruned_mass, mark.decayed_count) == (then.pruned_mass, then.decayed_count)


def test_statistics_at_an_offset_decay_with_the_points_that_they_stand_for(
    stream: SimpleNamespace, family: str
) -> None:
    x, _ = stream.far(1_500, 2, 3)
    prior = stream.prior(family, 2, 1.0, 1e4)
    settings = stream.settings(n_features=2, family=family, prior=prior, half_life=320.0, window=800)
    state = stream.feed(settings, x).state
    past, _ = stats_at_offsets(state)
    assert past.offset == 800
    then = stream.feed(settings, x[:800]).state
    factor = 0.5 ** ((1_500 // 10 - 800 // 10) * 10 / 320)
    assert past.decayed_count == pytest.approx(factor * then.decayed_count, rel=1e-12)
    assert past.stats[0][:3] == pytest.approx(factor * then.stats[0][:3], rel=1e-12)
    assert past.stats.mean[:3] == pytest.approx(then.stats.mean[:3], rel=1e-12)


WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "half-life": {"half_life": 250.0, "warmup_points": 60},
    "births": {"birth_threshold": 0.05, "concentration": 20.0, "warmup_points": 200},
    "births and half-life": {"birth_threshold": 0.05, "concentration": 20.0, "warmup_points": 200, "half_life": 300.0},
}
CASES = [(way, family, n) for n in (2_400, 4_200) for way in WAYS for family in ("gaussian", "diagonal")]
CASES += [(way, "known_covariance", 4_200) for way in WAYS]
SHORT = [
    ("plain", "diagonal", 2_400),
    ("half-life", "gaussian", 2_400),
    ("births", "gaussian", 2_400),
    ("births and half-life", "diagonal", 2_400),
]


@pytest.mark.parametrize(("way", "family", "n"), short_form(CASES, SHORT))
def test_masses_add_up_in_every_mark_whatever_happens(stream: SimpleNamespace, way: str, family: str, n: int) -> None:
    x, _ = stream.nine(n, seed=1, spacing=3.0)
    x[n // 2 :] += 40.0  # the first clusters die, where anything is forgotten
    settings = stream.settings(n_features=2, family=family, window=700, **WAYS[way])
    state = initial_state(settings)
    kinds = set()
    for start in range(0, len(x), 60):
        state, info = assimilate_inplace(state, x[start : start + 60])
        kinds |= {event.kind for event in info.events}
        assert balance_error(state) < 1e-12
        assert in_order(state)
    assert "merged" in kinds or "birth_threshold" not in WAYS[way]
    assert "pruned" in kinds or "half_life" not in WAYS[way]


def test_joins_and_prunes_carry_statistics_at_offsets(family_case: Any) -> None:
    """A mark of the first points, by stored responsibilities: after moves it must be that of the moved ones."""
    state, x, resp, n_past = family_case
    prior, k = state.prior, state.n_components
    merged, events = merge_by_bound_inplace(state)
    assert events, "the case was made for a join"
    groups = np.zeros((k, merged.n_components))
    place = {int(i): row for row, i in enumerate(merged.live_ids)}
    successor = {event.parents[1]: event.children[0] for event in events}
    for row in range(k):
        now = 10 + row
        while now in successor:
            now = successor[now]
        groups[row, place[now]] = 1.0
    due = prior.suffstats(x[:n_past], resp[:n_past] @ groups)
    past, live = stats_at_offsets(merged)[0], merged.n_components
    for field, expected in zip(past.stats, due, strict=True):
        np.testing.assert_allclose(field[:live], expected, rtol=1e-9, atol=1e-9)
    pruned, _ = prune_inplace(merged, np.arange(live) == live - 1)
    past = stats_at_offsets(pruned)[0]
    assert past.pruned_mass == pytest.approx(float(due[0][-1]))
    assert balance_error(pruned) < 1e-12
    assert compact_inplace(pruned, np.ones(live - 1, dtype=bool)) is pruned


@pytest.fixture
def family_case(stream: SimpleNamespace, family: str) -> Any:
    """A state of four components, two of which are halves of one, whose past is its first 90 points."""
    from shoal.families.predictive_cache import refresh

    rng = np.random.default_rng(2)
    n_past, d = 90, 2
    z = rng.integers(3, size=150)
    x = 12.0 * np.stack([z, 0 * z], axis=1) + rng.normal(size=(150, d))
    resp = np.zeros((150, 4))
    half = rng.beta(2.0, 2.0, size=150)
    resp[np.arange(150), z + 1] = 1.0
    resp[z == 0, 0], resp[z == 0, 1] = half[z == 0], 1.0 - half[z == 0]
    prior = stream.prior(family, d, 1.0, 200.0)
    state = initial_state(stream.settings(n_features=d, family=family, prior=prior))
    stats, early = prior.suffstats(x, resp), prior.suffstats(x[:n_past], resp[:n_past])
    pairs, early_pairs = _pair_entropies(resp), _pair_entropies(resp[:n_past])
    past: StatsAtOffset = stats_at_offset(n_past, early, early_pairs, 0.0, float(n_past))
    state = state._replace(
        stats=stats,
        cache=refresh(prior, stats),
        ids=np.arange(10, 14),
        born_at=np.arange(1, 5),
        last_seen_at=np.full(4, 150),
        pairs=pairs,
        n_components=4,
        next_id=14,
        points_seen=150,
        decayed_count=150.0,
        past=past,
        mid=stats_at_offset(n_past, early, early_pairs, 0.0, float(n_past)),
        monitor=type(state.monitor)(*(np.zeros(4, dtype=field.dtype) for field in state.monitor)),
    )
    return state, x, resp, n_past


def _pair_entropies(resp: np.ndarray) -> np.ndarray:
    k = resp.shape[1]
    pairs = np.zeros((k, k))
    for a in range(k):
        for b in range(k):
            p, q = resp[(resp[:, a] > 0) & (resp[:, b] > 0)][:, [a, b]].T
            if a != b:
                pairs[a, b] = -np.sum(p * np.log(p / (p + q)) + q * np.log(q / (p + q)))
    return pairs


def test_another_half_life_or_window_begins_the_window_again(stream: SimpleNamespace) -> None:
    x, _ = stream.nine(900, seed=3)
    settings = stream.settings(n_features=2, warmup_points=200, window=500)
    fed = to_bytes(stream.feed(settings, x).state)
    for change in ({"half_life": 5_000.0}, {"window": 400}, {"window_bytes": 4_000}):
        state, _ = from_bytes(fed)
        changed, _ = apply_settings_inplace(state, settings.with_changes(**change))
        past, mid = stats_at_offsets(changed)
        assert past.offset == mid.offset == changed.schedule.window_from == 900
        assert np.array_equal(past.stats[0], changed.stats[0])
        assert not np.shares_memory(past.stats[0], mid.stats[0])
        assert not np.shares_memory(past.stats[0], changed.stats[0])
    state, _ = from_bytes(fed)
    kept, _ = apply_settings_inplace(state, settings.with_changes(concentration=2.0, max_components=50))
    assert stats_at_offsets(kept)[0].offset == 500
    none, _ = apply_settings_inplace(kept, settings.with_changes(window=0))
    assert (none.past, none.mid, none.monitor) == (None, None, None)
    back, _ = apply_settings_inplace(none, settings)
    assert stats_at_offsets(back)[0].offset == 900


@pytest.mark.parametrize("way", [{"method": "sva"}, {"method": "sva-pm"}, {"window": 0}, {"window_bytes": 8}])
def test_without_a_window_there_are_no_statistics_at_offsets(stream: SimpleNamespace, way: dict[str, Any]) -> None:
    x, _ = stream.nine(300)
    settings = stream.settings(n_features=2, warmup_points=100, **way)
    assert settings.window_rows == 0
    state = stream.feed(settings, x).state
    assert stats_at_offsets(state) == []
    assert state.monitor is None


def test_statistics_at_offsets_count_against_the_bytes_of_a_state(stream: SimpleNamespace) -> None:
    line = 40.0 * np.arange(3_000.0)[:, None]
    prior = stream.prior("known_covariance", 1, 1.0, 1e8)
    sizes = {}
    for window in (0, 500):
        settings = stream.settings(
            n_features=1, family="known_covariance", prior=prior, window=window, max_state_bytes=150_000
        )
        state = stream.feed(settings, line, 500).state
        assert state_bytes(state) <= 150_000
        sizes[window] = state.n_components
    assert 30 < sizes[500] < sizes[0]
    with pytest.raises(SettingError, match="max_state_bytes"):
        initial_state(stream.settings(n_features=64, max_state_bytes=80_000, warmup_points=1))
