"""A snapshot sent in two parts answers every question as the one that was sent."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from shoal.errors import SnapshotDamagedError
from shoal.mixture import (
    MixtureSnapshot,
    StreamSettings,
    empty_lineage,
    from_bytes,
    past_from_bytes,
    past_to_bytes,
    prune_inplace,
    snapshot_of,
    to_bytes,
    view_from_bytes,
    view_to_bytes,
)
from shoal.sequential import assimilate_inplace, initial_state


def rows_of(family: str, n: int) -> np.ndarray:
    """Rows (n, 3) of three groups, such as the family takes."""
    rng = np.random.default_rng(3)
    level = np.array([[9.0, 1.0, 1.0], [1.0, 9.0, 1.0], [1.0, 1.0, 9.0]])[rng.integers(3, size=n)]
    made: dict[str, Callable[[], np.ndarray]] = {
        "bernoulli": lambda: (rng.random((n, 3)) < level / 10).astype(float),
        "poisson": lambda: rng.poisson(level).astype(float),
        "multinomial": lambda: rng.poisson(level).astype(float) + 1.0,
        "dirichlet": lambda: (level / level.sum(axis=1, keepdims=True)) * 0.9 + 1 / 30,
        "von_mises_fisher": lambda: level / np.linalg.norm(level, axis=1, keepdims=True),
    }
    return made.get(family, lambda: level + rng.normal(size=(n, 3)))()


@pytest.fixture
def snapshot(family_name: str) -> MixtureSnapshot:
    """Of a stream that was learnt, past its warm-up, and has lost a component. Nothing of it can be written."""
    return learnt_once(family_name)


@cache
def learnt_once(family_name: str) -> MixtureSnapshot:
    settings = StreamSettings(n_features=3, family=family_name, warmup_points=100, half_life=1e4 / 3)  # type: ignore[arg-type]
    state, _ = assimilate_inplace(initial_state(settings), rows_of(family_name, 300))
    first = np.arange(state.n_components) == 0
    return snapshot_of(prune_inplace(state, first)[0] if state.n_components > 1 else state)


def sent(snapshot: MixtureSnapshot) -> MixtureSnapshot:
    return view_from_bytes(view_to_bytes(snapshot), past_to_bytes(snapshot.lineage))


def test_it_answers_every_question_alike(snapshot: MixtureSnapshot) -> None:
    """All to the bit, but that predictions are by a predictive cache made again: all who were sent it say the same."""
    got, too = sent(snapshot), sent(snapshot)
    for name in ("settings", "status", "points_seen", "decayed_count", "pruned_mass", "births_refused", "new_weight"):
        assert getattr(got, name) == getattr(snapshot, name), name
    for name in ("ids", "masses", "born_at", "last_seen_at", "weights", "location", "scale", "means", "variances"):
        np.testing.assert_array_equal(getattr(got, name), getattr(snapshot, name), err_msg=name)
    np.testing.assert_array_equal(got.covariances(), snapshot.covariances())
    x = rows_of(got.settings.family, 9)
    for mine, theirs, others in zip(got.predict(x), snapshot.predict(x), too.predict(x), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-16)
        np.testing.assert_array_equal(mine, others)
    for gone in snapshot.lineage.ids.tolist():
        (record, last), (their_record, their_last) = got.past(gone), snapshot.past(gone)
        assert record[:5] == their_record[:5]
        assert (last is None) == (their_last is None)
        if last is not None and their_last is not None:
            np.testing.assert_array_equal(last.means, their_last.means)


def test_equal_snapshots_give_equal_bytes_and_none_of_the_past_is_among_the_components(
    snapshot: MixtureSnapshot,
) -> None:
    assert view_to_bytes(sent(snapshot)) == view_to_bytes(snapshot)
    assert past_to_bytes(sent(snapshot).lineage) == past_to_bytes(snapshot.lineage)
    assert view_to_bytes(replace(snapshot, lineage=empty_lineage())) == view_to_bytes(snapshot)


def test_every_array_is_read_only_and_a_past_that_was_read_is_taken_as_it_is(snapshot: MixtureSnapshot) -> None:
    got = sent(snapshot)
    arrays = [got.ids, got.masses, got.weights, got.location, *got.stats, *got.lineage.arrays()]
    assert not any(array.flags.writeable for array in arrays)
    past = past_from_bytes(past_to_bytes(snapshot.lineage), snapshot.prior)
    assert view_from_bytes(view_to_bytes(snapshot), past).lineage is past


@pytest.mark.parametrize("n", [0, 1, 40, 400])
def test_a_stream_that_warms_up_is_sent_too(n: int) -> None:
    state = initial_state(StreamSettings(n_features=2, warmup_points=300))
    state, _ = assimilate_inplace(state, np.random.default_rng(2).normal(size=(n, 2)))
    snapshot = snapshot_of(state)
    got = sent(snapshot)
    assert (got.status, got.points_seen, got.n_components) == (snapshot.status, n, snapshot.n_components)
    np.testing.assert_array_equal(got.means, snapshot.means)
    np.testing.assert_array_equal(got.weights, snapshot.weights)


def test_damaged_bytes_and_bytes_of_something_else_are_refused(snapshot: MixtureSnapshot) -> None:
    live, past = view_to_bytes(snapshot), past_to_bytes(snapshot.lineage)
    flipped = live[:-1] + bytes([live[-1] ^ 1])
    state: Any = initial_state(StreamSettings(n_features=2))
    for bad in (b"", live[:-1], flipped, past, to_bytes(state)):
        with pytest.raises(SnapshotDamagedError):
            view_from_bytes(bad, past)
    with pytest.raises(SnapshotDamagedError):
        view_from_bytes(live, past[:-1])
    with pytest.raises(SnapshotDamagedError):
        from_bytes(live)
