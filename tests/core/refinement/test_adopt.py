"""Adoption: nothing lost, nobody confused, the same again on replay."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.short_form import longer
from shoal.errors import AdoptionError
from shoal.mixture import MixtureState, StreamSettings, from_bytes, successors_of, to_bytes
from shoal.refinement import adopt, adopt_inplace, forget_window, refine, restored
from shoal.sequential import apply_settings_inplace, assimilate_inplace, initial_state


def copied(state: MixtureState) -> MixtureState:
    return from_bytes(to_bytes(state))[0]


def merged_two(stream: SimpleNamespace, refining: SimpleNamespace, family: str, n: int = 1_500) -> Any:
    """A live state that has taken two clusters for one, its rows, and which cluster each is of."""
    x, z = refining.two(n, 6.0, 0.4)
    settings = stream.settings(
        n_features=2, family=family, prior=stream.prior(family, 2, 1.0, 100.0), max_components=1, refinement=None
    )
    state = stream.feed(settings, x).state
    state, _ = apply_settings_inplace(state, settings.with_changes(max_components=50))
    assert state.n_components == 1
    return state, x, z


def parted(stream: SimpleNamespace, refining: SimpleNamespace, family: str) -> Any:
    """A live state that has far too many components for two clusters, and its rows."""
    x, z = refining.two(1_500, 8.0, 0.4, seed=3)
    prior = stream.prior(family, 2, 1.0, 100.0)
    settings = stream.settings(
        n_features=2, family=family, prior=prior, birth_threshold=0.003, concentration=2.0, refinement=None
    )
    state = stream.feed(settings, x[:1_000]).state  # before the first check
    assert state.n_components > 2
    return state, x[:1_000], z[:1_000]


@pytest.mark.parametrize(("separation", "share"), [(3.0, 0.5), longer(3.0, 0.01), longer(4.0, 0.5), (4.0, 0.01)])
@pytest.mark.parametrize("times", [5, longer(100)])
def test_refining_again_and_again_without_new_data_moves_no_mass(
    refining: SimpleNamespace, stream: SimpleNamespace, separation: float, share: float, times: int
) -> None:
    n = 3_000 if times == 5 else 12_000
    x, _ = refining.two(n, separation, share, seed=1)
    state = refining.run(stream.settings(n_features=2, window=n // 2), x).state
    assert state.past.offset == n // 2
    state, *_ = refining.once(state, x)
    ids, mass = state.live_ids.copy(), state.stats[0][: state.n_components].copy()
    for _ in range(times):
        state, _, events = refining.once(state, x)
        assert events == ()
        assert np.array_equal(state.live_ids, ids)
        np.testing.assert_allclose(state.stats[0][: state.n_components], mass, rtol=1e-6)


def test_mass_is_kept_and_the_bound_rises(stream: SimpleNamespace, refining: SimpleNamespace, family: str) -> None:
    prior = stream.prior(family, 2, 1.0, 50.0)
    for way in ({}, {"half_life": 700.0}):
        x, _ = stream.nine(2_600, seed=5, spacing=3.5)
        x[2_000::4] += 14.0  # clusters for which there is no room yet
        settings = stream.settings(
            n_features=2, family=family, prior=prior, window=1_200, refinement=None, max_components=5, **way
        )
        state = stream.feed(settings, x).state
        state, _ = apply_settings_inplace(state, settings.with_changes(max_components=99))
        before = float(state.stats[0].sum()) + state.pruned_mass
        pruned = state.past.pruned_mass
        state, found, _ = refining.once(state, x)
        assert found.worthwhile
        assert found.report["bound_after"] > found.report["bound_before"]
        assert found.report["tail_mass"] < 1e-3 * len(x)
        k = state.n_components
        assert float(state.stats[0].sum()) + state.pruned_mass == pytest.approx(before, rel=1e-9)
        assert state.pruned_mass == pruned
        for mark in (state.past, state.mid):
            assert float(mark.stats[0].sum()) + mark.pruned_mass == pytest.approx(mark.decayed_count, rel=1e-9)
            assert (mark.stats[0][:k] <= state.stats[0][:k] * (1 + 1e-9) + 1e-9).all()
        assert to_bytes(from_bytes(to_bytes(state))[0]) == to_bytes(state)


def test_statistics_after_are_those_of_past_and_rows(stream: SimpleNamespace, refining: SimpleNamespace) -> None:
    """Without a past they are the moments of the rows by their labels, where responsibilities are hard."""
    state, x, z = merged_two(stream, refining, "gaussian")
    state, _, _ = refining.once(state, x)
    assert state.n_components == 2
    order = np.argsort(state.stats.mean[:2, 0])
    for k, cluster in zip(order, (0, 1), strict=True):
        own = x[z == cluster]
        assert state.stats[0][k] == pytest.approx(len(own), abs=8)
        np.testing.assert_allclose(state.stats.mean[k], own.mean(axis=0), atol=0.02)
        np.testing.assert_allclose(state.stats.scatter[k] / len(own), np.cov(own.T, bias=True), atol=0.05)


def test_a_component_not_seen_in_the_window_survives(
    stream: SimpleNamespace, refining: SimpleNamespace, family: str
) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(2_000, 2)), 9.0 + rng.normal(size=(2_000, 2))])
    prior = stream.prior(family, 2, 1.0, 100.0)
    settings = stream.settings(n_features=2, family=family, prior=prior, window=1_000, refinement=None)
    state = stream.feed(settings, x).state
    old = int(np.argmin(state.stats.mean[: state.n_components, 0]))
    kept, mass = int(state.ids[old]), float(state.stats[0][old])
    assert mass == pytest.approx(2_000, abs=1)
    for _ in range(3):
        state, _, _ = refining.once(state, x)
    rows = np.flatnonzero(state.live_ids == kept)
    assert rows.size == 1
    assert state.stats[0][rows[0]] == pytest.approx(mass, rel=1e-6)
    assert state.last_seen_at[rows[0]] <= 2_010


def test_a_split_tells_parent_and_children_and_keeps_an_id(
    stream: SimpleNamespace, refining: SimpleNamespace, family: str
) -> None:
    state, x, _ = merged_two(stream, refining, family)
    state, found, events = refining.once(state, x)
    assert found.changed
    assert [(event.kind, event.offset, event.parents, event.children) for event in events] == [
        ("split", 1_500, (0,), (0, 1))
    ]
    assert state.live_ids.tolist() == [0, 1]  # the heavier child goes on as the parent
    assert state.stats[0][0] > state.stats[0][1]
    assert state.born_at[:2].tolist() == [1, 1_500]
    assert state.next_id == 2


def test_a_merge_tells_parents_and_child_and_the_vanished_answer_with_it(
    stream: SimpleNamespace, refining: SimpleNamespace, family: str
) -> None:
    state, x, _ = parted(stream, refining, family)
    before = set(state.live_ids.tolist())
    next_id = state.next_id
    state, _, events = refining.once(state, x)
    after = set(state.live_ids.tolist())
    assert len(after) == 2
    assert after < before
    assert state.next_id == next_id
    told = [event for event in events if event.kind == "merged"]
    assert told
    gone = set()
    for event in told:
        assert len(event.children) == 1
        assert event.children[0] in event.parents
        gone |= set(event.parents) - set(event.children)
    assert gone == before - after
    for component in gone:
        successors = successors_of(state.lineage, component)
        assert len(successors) == 1
        assert set(successors) <= after


def test_a_cluster_that_did_not_change_keeps_its_id_when_others_do(
    stream: SimpleNamespace, refining: SimpleNamespace
) -> None:
    x, z = stream.nine(3_000, seed=2, spacing=6.0)
    prior = stream.prior("diagonal", 2, 1.0, 400.0)
    settings = stream.settings(n_features=2, family="diagonal", prior=prior, max_components=5, refinement=None)
    state = stream.feed(settings, x).state
    resp_before = _labels(state, x)
    state, _ = apply_settings_inplace(state, settings.with_changes(max_components=50))
    state, _, events = refining.once(state, x)
    assert state.n_components == 9
    now = _labels(state, x)
    for cluster in range(9):
        own = z == cluster
        old, count = np.unique(resp_before[own], return_counts=True)
        best = old[count.argmax()]
        if (z[resp_before == best] == cluster).mean() > 0.9:  # it had a component of its own
            assert np.bincount(now[own]).argmax() == best
    children = [child for event in events for child in event.children]
    assert len(children) == len(set(children))


def _labels(state: MixtureState, x: np.ndarray) -> np.ndarray:
    from shoal.mixture import snapshot_of

    return snapshot_of(state).predict(x).component


_MADE: dict[str, Any] = {}


def base_and_later(stream: SimpleNamespace, refining: SimpleNamespace, family: str, **way: Any) -> Any:
    """A state at 2,000 rows with a refinement made of it, the live state 900 rows later (among them 300 of a new
    cluster), and all rows. Made once for each family and way; states are copies."""
    key = f"{family} {way}"
    if key not in _MADE:
        _MADE[key] = _base_and_later(stream, refining, family, **way)
    base, found, live, x = _MADE[key]
    return copied(base), found, copied(live), x.copy()


def _base_and_later(stream: SimpleNamespace, refining: SimpleNamespace, family: str, **way: Any) -> Any:
    x, _ = stream.nine(2_900, seed=4, spacing=4.0)
    x[1_500:] += 0.5  # something to put right
    x[2_000::3] = 40.0 + np.random.default_rng(0).normal(size=x[2_000::3].shape)
    settings = stream.settings(n_features=2, family=family, window=1_600, refinement=None, **way)
    base = stream.feed(settings, x[:2_000]).state
    found = refine(base, refining.window_of(base, x))
    assert found.worthwhile
    live = stream.feed(copied(base), x[2_000:]).state
    return base, found, live, x


@pytest.mark.parametrize("way", [{}, {"half_life": 900.0}])
def test_what_came_since_is_learnt_on_the_refined_mixture(
    stream: SimpleNamespace, refining: SimpleNamespace, family: str, way: dict[str, Any]
) -> None:
    base, found, live, x = base_and_later(stream, refining, family, **way)
    late, info = adopt_inplace(copied(live), found, x[2_000:])
    early, _ = adopt_inplace(copied(base), found)
    early, _ = assimilate_inplace(early, x[2_000:])
    assert late.n_components == early.n_components
    assert late.points_seen == early.points_seen == 2_900
    for name in ("stats", "cache", "monitor"):
        for a, b in zip(getattr(late, name), getattr(early, name), strict=True):
            assert np.array_equal(a[: late.n_components], b[: late.n_components])
    assert late.decayed_count == early.decayed_count == live.decayed_count
    assert (late.past.offset, late.mid.offset) == (live.past.offset, live.mid.offset) == (1_600, 2_400)
    assert late.next_check == early.next_check == live.next_check
    assert stream.mass_error(late) < 1e-9
    # the cluster that was born in between had an id before the adoption, and has it after
    own = int(_labels(live, np.full((1, 2), 40.0))[0])
    assert live.born_at[np.flatnonzero(live.live_ids == own)[0]] > 2_000
    assert int(_labels(late, np.full((1, 2), 40.0))[0]) == own
    assert all(event.offset == 2_900 for event in info.events)
    assert info.labels.size == 0


def test_adoption_is_a_function_of_what_it_is_given(stream: SimpleNamespace, refining: SimpleNamespace) -> None:
    base, found, live, x = base_and_later(stream, refining, "gaussian", half_life=900.0)
    first, told = adopt_inplace(copied(live), found, x[2_000:])
    again, told_again = adopt_inplace(copied(live), refine(copied(base), refining.window_of(base, x)), x[2_000:])
    assert to_bytes(first) == to_bytes(again)
    assert told.events == told_again.events
    settled, _ = adopt_inplace(copied(base), found)
    idle = refine(settled, refining.window_of(settled, x))
    assert not idle.worthwhile
    live = stream.feed(settled, x[2_000:]).state
    twice = [to_bytes(adopt_inplace(copied(live), idle, x[2_000:])[0]) for _ in range(2)]
    assert twice[0] == twice[1], "the first adoption left the refinement as it was"
    on = stream.feed(copied(first), x[:700], 41, through_bytes=True).state
    assert to_bytes(on) == to_bytes(stream.feed(first, x[:700]).state)


def test_ids_are_never_used_twice(stream: SimpleNamespace, refining: SimpleNamespace) -> None:
    x, _ = stream.nine(3_000, seed=8, spacing=3.2)
    x[1_500:] += 5.0
    run = refining.run(
        stream.settings(n_features=2, window=1_000, half_life=400.0, birth_threshold=0.1, concentration=5.0), x
    )
    born = [child for event in run.events for child in event.children if child not in event.parents]
    firsts = [child for event in run.events if event.kind == "born" for child in event.children]
    assert len(set(firsts)) == len(firsts)
    assert max(born) < run.state.next_id
    live, gone = set(run.state.live_ids.tolist()), set(run.state.lineage.ids.tolist())
    assert not live & gone
    assert live | gone == set(range(run.state.next_id))
    for component in gone:
        assert set(successors_of(run.state.lineage, component)) <= live


OVERTAKEN: dict[str, Any] = {
    "restored": lambda state: restored(state, 7),
    "a new window was started": forget_window,
    "new window was started": lambda state: apply_settings_inplace(state, state.settings.with_changes(half_life=3e3))[
        0
    ],
    "since the refinement began; refine the new": lambda state: apply_settings_inplace(
        state, state.settings.with_changes(window=900)
    )[0],
}


@pytest.mark.parametrize("words", OVERTAKEN)
def test_a_refinement_that_was_overtaken_is_refused(
    stream: SimpleNamespace, refining: SimpleNamespace, words: str
) -> None:
    _, found, live, x = base_and_later(stream, refining, "diagonal")
    changed = OVERTAKEN[words](copied(live))
    before = to_bytes(changed)
    with pytest.raises(AdoptionError, match=words):
        adopt_inplace(changed, found, x[2_000:])
    assert to_bytes(changed) == before


def test_other_streams_other_rows_and_second_helpings_are_refused(
    stream: SimpleNamespace, refining: SimpleNamespace
) -> None:
    base, found, live, x = base_and_later(stream, refining, "diagonal")
    with pytest.raises(AdoptionError, match="899 rows"):
        adopt_inplace(copied(live), found, x[2_001:])
    with pytest.raises(AdoptionError, match="rows"):
        adopt_inplace(copied(live), found)
    with pytest.raises(AdoptionError, match="rows"):
        adopt_inplace(stream.feed(base.settings, x[:1_900]).state, found)
    other = stream.feed(base.settings, x[100:2_100]).state
    with pytest.raises(AdoptionError, match="another stream"):
        adopt_inplace(other, found)
    adopted, _ = adopt_inplace(copied(base), found)
    with pytest.raises(AdoptionError, match="another refinement"):
        adopt_inplace(adopted, found)
    warming = initial_state(StreamSettings(n_features=2, family="diagonal"))
    with pytest.raises(AdoptionError, match="another stream"):
        adopt_inplace(warming, found)


def test_settings_that_change_in_between_hold_for_what_came_since(
    stream: SimpleNamespace, refining: SimpleNamespace
) -> None:
    _, found, live, x = base_and_later(stream, refining, "diagonal")
    few = live.settings.with_changes(max_components=9)
    live, _ = apply_settings_inplace(live, few)
    state, _ = adopt_inplace(live, found, x[2_000:])
    assert state.settings == few
    assert state.n_components <= 9


def test_more_components_than_there_is_room_for_are_not_worth_it(
    stream: SimpleNamespace, refining: SimpleNamespace
) -> None:
    state, x, _ = merged_two(stream, refining, "diagonal")
    state, _ = apply_settings_inplace(state, state.settings.with_changes(max_components=1))
    found = refine(state, x)
    assert not found.worthwhile
    assert "room for 1" in found.reason


def test_in_the_stream_only_the_newly_born_are_joined_after_a_refinement(
    stream: SimpleNamespace, refining: SimpleNamespace
) -> None:
    """Twins that a refinement has placed (as it might, by their past) stay; the same twins joined without one."""
    state, x, _ = parted(stream, refining, "diagonal")
    rows = state.n_components
    free = stream.feed(copied(state), x[:200]).state
    assert free.n_components < rows
    monitor = state.monitor._replace(settled_at=np.full(state.capacity, 1_000))
    monitor.settled_at[rows:] = 0
    placed = state._replace(monitor=monitor, schedule=state.schedule._replace(adopted=1, refined_at=1_000))
    held = stream.feed(copied(placed), x[:200]).state
    assert held.n_components == rows
    one_new = monitor._replace(settled_at=np.where(np.arange(state.capacity) == rows - 1, 0, monitor.settled_at))
    mixed = stream.feed(copied(placed._replace(monitor=one_new)), x[:200]).state
    assert mixed.n_components == rows - 1


def test_where_many_rows_came_evenly_spaced_ones_tell_who_has_become_of_whom(
    stream: SimpleNamespace, refining: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, found, live, x = base_and_later(stream, refining, "gaussian")
    whole, told = adopt_inplace(copied(live), found, x[2_000:])
    looked_at = []
    compared = adopt.compared
    monkeypatch.setattr(adopt, "compared", lambda *given: looked_at.append(len(given[2])) or compared(*given))
    monkeypatch.setattr(adopt, "MOST_COMPARED", 100)
    spaced, told_by_few = adopt_inplace(copied(live), found, x[2_000:])
    assert looked_at == [100]
    assert told_by_few.events == told.events
    assert to_bytes(spaced) == to_bytes(whole)
