"""The warm-up: answers from the first row on, ids that outlive refits, and what is frozen at its end."""

import tracemalloc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.short_form import longer
from shoal.families import KnownCovariance
from shoal.mixture import StreamSettings, snapshot_of, successors_of, to_bytes
from shoal.sequential import assimilate_inplace, initial_state
from shoal.sequential.warmup import best_rows

SEARCHED = pytest.mark.parametrize("refinement", [None, longer("auto")])
"""Whether fits are searched for divisions, which takes several times as long as all else."""


def test_it_answers_from_the_first_point_on(stream: SimpleNamespace, family: str) -> None:
    x, _ = stream.nine(70)
    state: Any = stream.settings(n_features=2, family=family)
    for i in range(70):
        run = stream.feed(state, x[i : i + 1])
        state = run.state
        assert state.status == "warming_up"
        assert run.labels[0] in state.live_ids
        answer = snapshot_of(state).predict(x[: i + 1])
        assert np.isfinite(answer.log_density).all()
        assert np.isin(answer.component, state.live_ids).all()


def test_it_ends_at_its_last_row_and_freezes(stream: SimpleNamespace) -> None:
    x, _ = stream.nine(1_500)
    settings = stream.settings(n_features=2, refinement=None)
    before = stream.feed(settings, x[:999]).state
    assert before.status == "warming_up"
    at_end = stream.feed(before, x[999:1_000]).state
    assert at_end.status == "live"
    assert at_end.buffer.shape == (0, 2)
    assert at_end.next_refit == -1
    frozen = at_end.prior, at_end.location.tolist(), at_end.scale.tolist()
    after = stream.feed(at_end, x[1_000:]).state
    assert (after.prior, after.location.tolist(), after.scale.tolist()) == frozen


@SEARCHED
def test_a_read_between_changes_nothing(stream: SimpleNamespace, refinement: Any) -> None:
    x, _ = stream.nine(400)
    settings = stream.settings(n_features=2, warmup_points=300, refinement=refinement)
    state: Any = settings
    for start in range(0, 400, 50):
        state = stream.feed(state, x[start : start + 50]).state
        snapshot_of(state).predict(x)
    assert to_bytes(state) == to_bytes(stream.feed(settings, x).state)


def test_at_its_end_the_buffer_is_learnt_in_order_under_the_final_prior(stream: SimpleNamespace) -> None:
    """But for ids, the state is that of a stream that was given the prior, on standardised rows."""
    x, _ = stream.nine(400, seed=2)
    warm = stream.feed(stream.settings(n_features=2, warmup_points=400, refinement=None), x).state
    z = (x - warm.location) / warm.scale
    given = stream.feed(stream.settings(n_features=2, prior=warm.prior), z).state
    n = given.n_components
    assert warm.n_components == n
    for a, b in zip(warm.stats, given.stats, strict=True):
        assert np.array_equal(a[:n], b[:n])


def test_ids_outlive_refits(stream: SimpleNamespace, family: str) -> None:
    """Far clusters, all seen within the first 32 rows: from then on each keeps its id through five refits."""
    x, _ = stream.far(1_000, 3, 5, seed=3)
    state = stream.feed(stream.settings(n_features=3, family=family), x[:64]).state
    centres = np.zeros((5, 3))
    centres[:, 0] = 30.0 * np.arange(5)
    early = snapshot_of(state).predict(centres).component
    assert len(set(early.tolist())) == 5
    for stop in (65, 128, 256, 512, 1_000):
        state = stream.feed(state, x[state.points_seen : stop]).state
        assert np.array_equal(snapshot_of(state).predict(centres).component, early), stop


@pytest.mark.parametrize("n", [140, longer(270)])
def test_ids_are_never_reused_and_the_vanished_have_heirs(stream: SimpleNamespace, n: int) -> None:
    x, _ = stream.nine(n, seed=9, spacing=2.5)
    state: Any = stream.settings(n_features=2, birth_threshold=0.05, concentration=5.0)
    given: set[int] = set()
    gone: set[int] = set()
    for start in range(0, len(x), 10):
        state = stream.feed(state, x[start : start + 10]).state
        live = set(state.live_ids.tolist())
        assert not live & gone
        gone |= given - live
        given |= live
        assert all(successors_of(state.lineage, old) != () for old in gone)
    assert gone
    assert max(given) < state.next_id


def test_a_refit_tells_what_became_of_whom(stream: SimpleNamespace) -> None:
    x, _ = stream.nine(300, seed=9, spacing=2.5)
    settings = stream.settings(n_features=2, birth_threshold=0.05, concentration=5.0, warmup_points=200)
    refined = [event for event in stream.feed(settings, x).events if event.kind == "refined"]
    assert refined
    for event in refined:
        assert event.offset in (2, 4, 8, 16, 32, 64, 128, 200)
        assert set(event.parents) != set(event.children)
        assert event.parents
        assert event.children


@SEARCHED
def test_labels_of_a_warm_up_call_are_live_and_those_of_predict(stream: SimpleNamespace, refinement: Any) -> None:
    x, _ = stream.nine(1_000, seed=5)
    run = stream.feed(stream.settings(n_features=2, refinement=refinement), x)
    assert np.array_equal(run.labels, snapshot_of(run.state).predict(x).component)


@pytest.mark.parametrize("warmup", [1, 2, 3, 40])
def test_short_warm_ups(stream: SimpleNamespace, family: str, warmup: int) -> None:
    x, _ = stream.nine(300)
    state = stream.feed(stream.settings(n_features=2, family=family, warmup_points=warmup), x, 11).state
    assert state.status == "live"
    assert state.n_components >= 1
    assert stream.mass_error(state) < 1e-12


def test_the_best_components_of_many_rows_are_found_in_bounded_memory() -> None:
    """The table of all responsibilities would take 64 MiB."""
    rng = np.random.default_rng(0)
    centres, prior = 60.0 * rng.normal(size=(420, 2)), KnownCovariance(np.zeros(2), 3600.0, 1.0)
    settings = StreamSettings(n_features=2, family="known_covariance", prior=prior, refinement=None)
    state, _ = assimilate_inplace(initial_state(settings), np.repeat(centres, 2, axis=0))
    x = np.repeat(centres, 64, axis=0)
    assert state.n_components > 250
    best_rows(state, x[:10])
    tracemalloc.start()
    rows = best_rows(state, x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows.shape == (len(x),)
    assert peak < 32 * 2**20


def test_rows_of_a_call_behind_its_last_refit_are_labelled_as_in_a_call_of_their_own(stream: SimpleNamespace) -> None:
    """The warm-up fits its buffer at row 64; the call goes on to row 90, and no component ends on the way."""
    x, _ = stream.nine(90)
    settings = stream.settings(n_features=2, refinement=None)
    first = stream.feed(settings, x[:64])
    second = stream.feed(first.state, x[64:])
    assert all(event.kind == "born" for event in second.events)
    assert len(np.unique(second.labels)) > 1
    assert stream.feed(settings, x).labels.tolist() == [*first.labels, *second.labels]
