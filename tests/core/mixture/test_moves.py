"""Moves against brute force with every responsibility kept: the bound, the paper's distance, mass, events, the past."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shoal.mixture import (
    MixtureState,
    bound_of_responsibilities,
    grow,
    merge_by_bound_inplace,
    merge_gain,
    prune_and_merge_inplace,
    prune_inplace,
    successors_of,
)
from shoal.mixture.joins import join_inplace

Array = np.ndarray
MakeState = Callable[..., MixtureState]


def soft(n: int, k: int, seed: int, sharpness: float = 0.3) -> Array:
    return np.random.default_rng(seed).dirichlet(np.full(k, sharpness), size=n)


def blobs(n: int, d: int, seed: int, n_blobs: int = 3, spread: float = 4.0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(n_blobs, size=n)
    return rng.normal(size=(n_blobs, d))[labels] * spread + rng.normal(size=(n, d)), labels


def joined_columns(resp: Array, a: int, b: int) -> Array:
    """Responsibilities after a and b are one, in column a."""
    joined = resp.copy()
    joined[:, a] += joined[:, b]
    return np.delete(joined, b, axis=1)


def replay(resp: Array, state_ids: Array, events: Any) -> Array:
    """Responsibilities after the merges that the events tell, by columns named by id."""
    columns = dict(zip(state_ids.tolist(), resp.T, strict=True))
    for event in events:
        survivor, absorbed = event.parents
        columns[survivor] = columns[survivor] + columns.pop(absorbed)
    return np.stack(list(columns.values()), axis=1)


@pytest.mark.parametrize("concentration", [0.3, 2.0])
def test_the_gain_from_running_sums_is_the_exact_change_of_the_bound(
    family_name: str, concentration: float, make_state: MakeState
) -> None:
    x, _ = blobs(60, 3, seed=0)
    resp = soft(60, 6, seed=1)
    state = make_state(family_name, x, resp, concentration=concentration)
    before = bound_of_responsibilities(state.prior, x, resp, concentration)
    i, j = np.triu_indices(6, 1)
    exact = [
        bound_of_responsibilities(state.prior, x, joined_columns(resp, a, b), concentration) - before
        for a, b in zip(i, j, strict=True)
    ]
    np.testing.assert_allclose(merge_gain(state, i, j), exact, rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("seed", range(4))
def test_after_joins_the_gain_never_exceeds_the_exact_change(
    family_name: str, seed: int, make_state: MakeState, brute_pairs: Callable[..., Array]
) -> None:
    x, _ = blobs(50, 2, seed=seed)
    resp = soft(50, 7, seed=seed + 10)
    state = make_state(family_name, x, resp)
    rng = np.random.default_rng(seed)
    alive = list(range(7))
    full = resp.copy()
    for _ in range(4):
        a, b = rng.choice(alive, size=2, replace=False)
        join = join_inplace(state, int(a), int(b))
        full[:, join.survivor] += full[:, join.absorbed]
        full[:, join.absorbed] = 0.0
        alive.remove(join.absorbed)
        exact_pairs = brute_pairs(full, "entropy")
        assert np.all(state.pairs[:7, :7] >= exact_pairs - 1e-9)
        now = bound_of_responsibilities(state.prior, x, full, 1.0)
        for p in range(len(alive)):
            for q in range(p):
                i, j = alive[p], alive[q]
                exact = bound_of_responsibilities(state.prior, x, joined_columns(full, i, j), 1.0) - now
                told = float(merge_gain(state, np.array([i]), np.array([j]))[0])
                assert told <= exact + 1e-8
                if state.pairs[i, j] == pytest.approx(exact_pairs[i, j], abs=1e-12):
                    assert told == pytest.approx(exact, abs=1e-8)


@pytest.mark.parametrize("seed", range(5))
def test_merging_raises_the_exact_bound_and_finds_the_blobs(family_name: str, seed: int, make_state: MakeState) -> None:
    x, labels = blobs(120, 2, seed=seed, spread=30.0)
    split = np.random.default_rng(seed).dirichlet(np.ones(4), size=120)  # every blob shared out among four twins
    resp = np.zeros((120, 12))
    for blob in range(3):
        rows = labels == blob
        resp[rows, 4 * blob : 4 * blob + 4] = split[rows]
    state = make_state(family_name, x, resp)
    ids = state.live_ids.copy()
    before = bound_of_responsibilities(state.prior, x, resp, 1.0)
    merged, events = merge_by_bound_inplace(state)
    after = replay(resp, ids, events)
    assert merged.n_components == 3
    assert bound_of_responsibilities(merged.prior, x, after, 1.0) > before
    np.testing.assert_allclose(np.sort(merged.stats.mass[:3]), np.sort(np.bincount(labels)), atol=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_every_accepted_merge_raises_the_exact_bound(family_name: str, seed: int, make_state: MakeState) -> None:
    x, _ = blobs(80, 2, seed=seed, spread=1.0)
    resp = soft(80, 10, seed=seed, sharpness=0.1)
    state = make_state(family_name, x, resp)
    ids = state.live_ids.copy()
    merged, events = merge_by_bound_inplace(state)
    assert events
    bounds = [
        bound_of_responsibilities(merged.prior, x, replay(resp, ids, events[:done]), 1.0)
        for done in range(len(events) + 1)
    ]
    assert np.all(np.diff(bounds) > 0)
    np.testing.assert_allclose(
        merged.prior.suffstats(x, replay(resp, ids, events)).scatter,
        merged.stats.scatter[: merged.n_components],
        rtol=1e-9,
        atol=1e-9,
    )


def test_parts_that_share_every_point_in_constant_proportion_become_one(
    family_name: str, make_state: MakeState
) -> None:
    # Adding up E alone would count most of their entropy several times over and keep the last two apart for ever.
    x = np.random.default_rng(0).normal(size=(2000, 2))
    resp = np.tile([0.3, 0.25, 0.2, 0.15, 0.1], (2000, 1))
    merged, events = merge_by_bound_inplace(make_state(family_name, x, resp))
    assert merged.n_components == 1
    assert len(events) == 4


def test_real_clusters_do_not_merge_and_twins_of_any_weight_do(make_state: MakeState) -> None:
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.normal(-10, 1, size=(500, 2)), rng.normal(10, 1, size=(20, 2))])
    resp = np.zeros((520, 3))
    resp[:500, 0], resp[:500, 1] = 0.97, 0.03  # a heavy component and its light twin
    resp[500:, 2] = 1.0
    merged, events = merge_by_bound_inplace(make_state("gaussian", x, resp))
    assert [event.parents for event in events] == [(10, 11)]
    assert merged.live_ids.tolist() == [10, 12]


def test_a_gain_that_an_earlier_join_undid_is_not_taken(make_state: MakeState) -> None:
    # Masses 10 > 8 > 7 > 3. Joining 8 and 7 takes both from between 10 and 3, which makes joining those two worth less.
    x = np.concatenate([np.zeros((13, 1)), np.full((15, 1), 90.0)])
    state = make_state("diagonal", x, np.eye(4)[np.repeat([0, 3, 1, 2], [10, 3, 8, 7])])
    first, last = np.array([0]), np.array([3])
    state.pairs[0, 3] = state.pairs[3, 0] = float(merge_gain(state, first, last)[0]) - 1e-3
    assert merge_gain(state, first, last)[0] == pytest.approx(1e-3, abs=1e-9)
    assert merge_gain(state, np.array([1]), np.array([2]))[0] > 1.0
    _, events = merge_by_bound_inplace(state)
    assert [event.parents for event in events] == [(11, 12)]


def test_the_heavier_survives_then_the_older(make_state: MakeState) -> None:
    x = np.zeros((6, 1))
    light_first = np.array([[1.0, 0.0]] * 2 + [[0.0, 1.0]] * 4)
    _, events = merge_by_bound_inplace(make_state("diagonal", x, light_first))
    assert events[0].parents == (11, 10)
    equal = np.array([[1.0, 0.0]] * 3 + [[0.0, 1.0]] * 3)
    state = make_state("diagonal", x, equal)
    state.born_at[:2] = [5, 4]
    _, events = merge_by_bound_inplace(state)
    assert events[0].parents == (11, 10)
    assert events[0].children == (11,)


def test_a_chain_of_joins_is_told_kept_and_resolved(make_state: MakeState) -> None:
    x = np.zeros((20, 2))
    resp = np.eye(5)[np.repeat(np.arange(5), [7, 5, 4, 3, 1])]
    state = make_state("diagonal", x, resp)
    state.last_seen_at[:5] = [3, 9, 4, 20, 2]
    merged, events = merge_by_bound_inplace(state)
    assert merged.live_ids.tolist() == [10]
    assert merged.last_seen_at[0] == 20
    assert merged.stats.mass[0] == pytest.approx(20.0)
    assert {event.kind for event in events} == {"merged"}
    assert {event.offset for event in events} == {20}
    for retired in range(11, 15):
        assert successors_of(merged.lineage, retired) == (10,)
    assert float(np.sum(merged.lineage.stats.mass)) >= 13.0 - 1e-9  # each with what it had when it was absorbed
    assert not merged.stats.mass[1:].any()
    assert not merged.pairs.any()


def test_the_papers_distance_is_that_of_stored_responsibilities(make_state: MakeState) -> None:
    x, _ = blobs(200, 2, seed=0)
    resp = soft(200, 6, seed=1)
    d = np.abs(resp[:, :, None] - resp[:, None, :]).sum(axis=0) / 200
    i, j = np.triu_indices(6, 1)
    least = d[i, j].min()
    closest = tuple(int(v) + 10 for v in np.array([i, j])[:, d[i, j].argmin()])
    for threshold, n_merged in ((least * (1 - 1e-9), 0), (least * (1 + 1e-9), 1)):
        settings = {"prune_threshold": 0.0, "merge_threshold": threshold}
        merged, events = prune_and_merge_inplace(make_state("diagonal", x, resp, method="sva-pm", **settings))
        assert merged.n_components == 6 - n_merged
        assert [set(event.parents) for event in events] == [set(closest)] * n_merged


@pytest.mark.parametrize("seed", range(5))
def test_what_the_paper_merges_is_within_its_threshold_on_stored_responsibilities(
    seed: int, make_state: MakeState, brute_pairs: Callable[..., Array]
) -> None:
    x, _ = blobs(150, 2, seed=seed)
    resp = soft(150, 12, seed=seed, sharpness=0.05)
    state = make_state("diagonal", x, resp, method="sva-pm", prune_threshold=0.03, merge_threshold=0.17)
    columns = dict(zip(state.live_ids.tolist(), resp.T, strict=True))
    state, events = prune_and_merge_inplace(state)
    kinds = [event.kind for event in events]
    assert kinds == sorted(kinds, reverse=True)  # prunes first
    assert "merged" in kinds
    for event in events:
        if event.kind == "pruned":
            assert columns.pop(event.parents[0]).sum() < 0.03 * 150
        else:
            survivor, absorbed = (columns[id_] for id_ in event.parents)
            assert np.abs(survivor - absorbed).sum() / 150 < 0.17
            columns[event.parents[0]] = survivor + columns.pop(event.parents[1])
    assert list(columns) == state.live_ids.tolist()
    exact = brute_pairs(np.stack(list(columns.values()), axis=1), "overlap")
    n = state.n_components
    assert np.all(state.pairs[:n, :n] <= exact + 1e-9)
    d = (state.stats.mass[:n, None] + state.stats.mass[:n] - 2 * state.pairs[:n, :n]) / 150
    assert np.all(d[np.triu_indices(n, 1)] >= 0.17)  # none left


@pytest.mark.parametrize("method", ["default", "sva", "sva-pm"])
def test_no_move_loses_mass(method: str, family_name: str, make_state: MakeState) -> None:
    x, _ = blobs(300, 3, seed=2)
    resp = soft(300, 20, seed=3, sharpness=0.05)
    state = make_state(family_name, x, resp, method=method, prune_threshold=0.02, merge_threshold=0.1)
    pruned = np.zeros(20, dtype=bool)
    pruned[[1, 4, 19]] = True
    lost = float(state.stats.mass[:20][pruned].sum())
    state, events = prune_inplace(state, pruned)
    assert [event.parents for event in events] == [(11,), (14,), (29,)]
    assert state.pruned_mass == pytest.approx(lost, rel=1e-12)
    assert state.live_ids.tolist() == [10, 12, 13, *range(15, 29)]
    if method == "default":
        state, _ = merge_by_bound_inplace(state)
    if method == "sva-pm":
        state, _ = prune_and_merge_inplace(state)
    n = state.n_components
    assert state.stats.mass.sum() + state.pruned_mass == pytest.approx(300.0, rel=1e-12)
    assert state.pruned_mass >= lost
    for array in (*state.stats, *state.cache, state.ids, state.born_at, state.last_seen_at):
        assert not array[n:].any()  # rows beyond those in use are zero


def test_pruning_leaves_the_others_untouched(make_state: MakeState) -> None:
    x, _ = blobs(100, 2, seed=0)
    resp = soft(100, 5, seed=0)
    whole = make_state("gaussian", x, resp)
    pruned, _ = prune_inplace(make_state("gaussian", x, resp), np.array([False, True, False, True, False]))
    keep = [0, 2, 4]
    for kept, all_rows in zip(pruned.stats + pruned.cache, whole.stats + whole.cache, strict=True):
        np.testing.assert_array_equal(kept[:3], all_rows[keep])
    np.testing.assert_array_equal(pruned.pairs[:3, :3], whole.pairs[np.ix_(keep, keep)])
    assert not pruned.pairs[3:].any()
    assert not pruned.pairs[:, 3:].any()


def test_the_last_component_is_never_pruned(make_state: MakeState) -> None:
    x, _ = blobs(30, 1, seed=0)
    resp = soft(30, 3, seed=0)
    heaviest = 10 + int(resp.sum(axis=0).argmax())
    state, events = prune_inplace(make_state("diagonal", x, resp), np.ones(3, dtype=bool))
    assert state.live_ids.tolist() == [heaviest]
    assert len(events) == 2
    state, events = prune_inplace(state, np.ones(1, dtype=bool))
    assert events == ()


def test_two_thousand_components_are_swept_in_bounded_memory(make_state: MakeState) -> None:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(1990, 8)) * 50
    state = grow(make_state("diagonal", centres[:1], np.ones((1, 1))), 2001)
    for k, centre in enumerate(np.concatenate([centres, centres[:10]])):  # the last ten are twins of the first
        stats = state.prior.suffstats(centre + rng.normal(size=(30, 8)) * 0.1, np.ones((30, 1)))
        for held, value in zip(state.stats, stats, strict=True):
            held[k] = value[0]
    state.ids[:2000] = np.arange(2000)
    state = state._replace(n_components=2000, next_id=2000)
    tracemalloc.start()
    merged, events = merge_by_bound_inplace(state)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert merged.n_components == 1990
    assert {tuple(sorted(event.parents)) for event in events} == {(k, 1990 + k) for k in range(10)}
    assert peak < 48 * 2**20  # a second (K, K) array of floats alone would take 32 MB, and pairs as objects far more


def test_what_was_pruned_before_does_not_make_the_rest_look_light(make_state: MakeState) -> None:
    """A third of what lives is no light component, however much was pruned (ERRATA 5.13)."""
    resp = np.repeat(np.eye(3), 4, axis=0)
    state = make_state("diagonal", np.arange(12.0)[:, None] * 50, resp, method="sva-pm", prune_threshold=0.2)
    state = state._replace(pruned_mass=1e3, decayed_count=1e3 + 12, points_seen=1_012)
    state = state._replace(settings=state.settings.with_changes(merge_threshold=0.0))
    assert prune_and_merge_inplace(state)[0].n_components == 3
