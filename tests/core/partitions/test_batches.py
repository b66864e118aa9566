"""Batches that wait are learnt in one pass: the state, and what is said of each batch, as if each came alone."""

from itertools import islice
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from harness.short_form import short_form
from shoal.mixture import MixtureState, StreamSettings, to_bytes
from shoal.partitions import Batch, assimilate_batches_inplace, assimilate_inplace, in_threads
from shoal.points.arrays import Array
from shoal.points.rows import SparseRows
from shoal.points.weighted_rows import with_weights
from shoal.sequential import AssimilateInfo, initial_state, timed

ROUND, START = 1_024, 1_767_225_600.0


@pytest.fixture(autouse=True)
def _short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.mixture.round.ROUND_ROWS", ROUND)
    monkeypatch.setattr("shoal.mixture.round.LEAST_ROUND_ROWS", 64)


def drifting(n: int, seed: int) -> Array:
    """Clusters that move; one comes, one goes and returns."""
    rng = np.random.default_rng(seed)
    z = rng.integers(6, size=n)
    z[: n // 2][z[: n // 2] == 0] = 1
    z[n // 3 : 4 * n // 5][z[n // 3 : 4 * n // 5] == 2] = 3
    centres, ways = 5.0 * rng.normal(size=(6, 2)), 4.0 * rng.normal(size=(6, 2))
    return np.asarray(centres[z] + ways[z] * np.linspace(0, 1, n)[:, None] + rng.normal(size=(n, 2)))


def cut(n: int, seed: int) -> list[slice]:
    """Batches of very different sizes."""
    rng, found, start = np.random.default_rng(seed), [], 0
    while start < n:
        size = int(rng.choice([1, 7, 40, 100, 700, 2_500], p=[0.3, 0.4, 0.2, 0.06, 0.03, 0.01]))
        found.append(slice(start, min(n, start + size)))
        start += size
    return found


def one_by_one(state: MixtureState, batches: list[Batch]) -> tuple[MixtureState, list[AssimilateInfo]]:
    infos = []
    for x, times, arrived in batches:
        rows = x
        if times is not None:
            state, rows = timed(state, x, times, arrived)
        state, info = assimilate_inplace(state, rows)
        infos.append(info)
    return state, infos


def as_they_wait(
    state: MixtureState, batches: list[Batch], seed: int
) -> tuple[MixtureState, list[AssimilateInfo], list[int]]:
    """Learn as many at once as may be of a random number that waits. Also the number of batches in each pass."""
    rng, infos, passes = np.random.default_rng(seed), [], []
    while len(infos) < len(batches):
        waiting = islice(batches, len(infos), len(infos) + int(rng.choice([1, 2, 5, 30, 1_000])))
        state, found = assimilate_batches_inplace(state, waiting, in_threads)
        infos += found
        passes.append(len(found))
    return state, infos, passes


STREAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "no half-life": ("gaussian", {}),
    "watched scale": ("diagonal", {"refinement": None}),
    "half-life in points": ("gaussian", {"half_life": 1_500.0, "max_archived": 5}),
    "half-life that is a time": ("diagonal", {"half_life": "3h", "max_archived": 5}),
    "window by time": ("student", {"window_age": "3h", "window": 1_500}),
    "no room": ("diagonal", {"max_components": 3}),
    "checks as in the paper": ("diagonal", {"check_schedule": "paper", "window": 0}),
    "point estimates": ("diagonal", {"method": "sva-pm"}),
}


CASES = [
    (stream, partitions, seeds)
    for stream, (_, others) in STREAMS.items()
    for partitions in ((1, 3) if others.get("method") is None else (1,))  # partitions need conjugate learning
    for seeds in (1, 3)
]
SHORT = [
    ("no half-life", 3, 1),
    ("watched scale", 1, 1),
    ("half-life in points", 3, 1),
    ("half-life that is a time", 1, 1),
    ("window by time", 3, 1),
    ("no room", 1, 1),
    ("checks as in the paper", 3, 1),
    ("point estimates", 1, 1),
]


@pytest.mark.parametrize(("stream", "partitions", "seeds"), short_form(CASES, SHORT))
def test_any_groups_give_the_state_and_the_answers_of_batches_alone(stream: str, partitions: int, seeds: int) -> None:
    family, others = STREAMS[stream]
    settings = StreamSettings(
        **{"n_features": 2, "family": family, "partitions": partitions, "warmup_points": 200} | others
    )
    long = stream.startswith("half-life") or stream == "no room"  # until they prune, and refuse enough births
    n = 9_000 if long else 4_000
    x, rng = drifting(n, 3), np.random.default_rng(4)
    if stream == "watched scale":
        x[n // 2 :] *= 30.0
    gaps = rng.exponential(8.0, n)
    gaps[n // 2] = 200_000.0
    times = START + np.cumsum(gaps)
    arrived = times + 1.0
    times[rng.random(n) < 0.1] -= 900.0  # late
    times[rng.random(n) < 0.1] = np.nan
    weights = np.where(rng.random(n) < 0.02, 0.5, 1.0)
    with_times = settings.clock_step_s is not None
    batches = [
        Batch(
            with_weights(x[rows], weights[rows]) if settings.conjugate else x[rows],
            times[rows] if with_times else None,
            float(arrived[rows.stop - 1]) if with_times else None,
        )
        for rows in cut(n, 5)
    ]
    expected, told = one_by_one(initial_state(settings), batches)
    for seed in range(seeds):
        state, infos, passes = as_they_wait(initial_state(settings), batches, seed)
        assert to_bytes(state) == to_bytes(expected)
        assert max(passes) > 3, "some batches are learnt together"
        for info, alone in zip(infos, told, strict=True):
            assert info.events == alone.events
            assert_array_equal(info.labels, alone.labels)
            for name in ("log_density", "novelty", "born"):
                assert_array_equal(getattr(info.scores, name), getattr(alone.scores, name))
            assert info[2:5] == alone[2:5]
        for counted in (0, len(batches) // 2):  # refused births are those of all batches up to the end of a pass
            ends = np.cumsum(passes)
            end = int(ends[np.searchsorted(ends, counted, side="right")])
            assert sum(i.births_refused for i in infos[:end]) == sum(i.births_refused for i in told[:end])
    if stream == "no room":
        assert sum(info.births_refused for info in told) > 100
    kinds = {event.kind for info in told for event in info.events}
    wanted = {"watched scale": "rescaled", "half-life in points": "pruned", "half-life that is a time": "pruned"}
    assert wanted.get(stream, "born") in kinds


def test_batches_of_sparse_rows_are_learnt_together() -> None:
    rng = np.random.default_rng(1)
    x = rng.poisson(np.where(rng.random((4_000, 1)) < 0.5, [4.0, 0.2, 0.2], [0.2, 0.2, 4.0])).astype(float)
    settings = StreamSettings(n_features=3, family="multinomial", warmup_points=300)
    forms = [np.asarray, SparseRows.of]  # both kinds may follow one another in a log
    batches = [Batch(forms[i % 2](x[rows])) for i, rows in enumerate(cut(len(x), 2))]
    expected, told = one_by_one(initial_state(settings), batches)
    state, infos, passes = as_they_wait(initial_state(settings), batches, 0)
    assert max(passes) > 3
    assert to_bytes(state) == to_bytes(expected)
    for info, alone in zip(infos, told, strict=True):
        assert_array_equal(info.labels, alone.labels)
        assert_array_equal(info.scores.log_density, alone.scores.log_density)


def test_no_more_is_read_than_is_learnt() -> None:
    settings = StreamSettings(n_features=2, partitions=2, warmup_points=200)
    rows = [Batch(part) for part in np.array_split(drifting(3_000, 0), 30)]
    state, seen = initial_state(settings), 0
    waiting = iter(rows)
    while seen < len(rows):
        state, infos = assimilate_batches_inplace(state, waiting)
        seen += len(infos)
        assert state.points_seen == 100 * seen


def test_joins_at_a_check_are_told_of_the_batch_in_which_it_falls() -> None:
    rng = np.random.default_rng(0)
    settings = StreamSettings(n_features=2, family="diagonal", concentration=20.0, warmup_points=200)
    batches = [Batch(part) for part in np.array_split(rng.normal(size=(1_300, 2)), 13)]
    expected, told = one_by_one(initial_state(settings), batches)
    assert [info.n_merges > 0 for info in told] == [False] * 10 + [True] + [False] * 2, "the check is at 1,024 points"
    state, infos = initial_state(settings), []
    while len(infos) < len(batches):
        state, found = assimilate_batches_inplace(state, batches[len(infos) :])
        infos += found
    assert to_bytes(state) == to_bytes(expected)
    for info, alone in zip(infos, told, strict=True):
        assert info.events == alone.events
        assert_array_equal(info.labels, alone.labels)
