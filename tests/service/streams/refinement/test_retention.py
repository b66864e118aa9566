"""The log keeps the points that somebody still needs, and no more."""

from typing import Any

import numpy as np
import pytest

from shoal.mixture import from_bytes
from shoal.refinement import window_start
from shoal_service.streams.learner import state_alone

pytestmark = pytest.mark.anyio


def points_before(works: Any, first_seq: int) -> int:
    """Points of the log before an entry that is held."""
    record = works.store.get_stream("s")
    held = works.store.read("s", record.incarnation, first_seq - 1, max_bytes=1 << 40)
    return int(held[0].log_offset - held[0].n_points) if held else 0


def checkpoints(works: Any) -> list[Any]:
    record = works.store.get_stream("s")
    return list(works.store.load_checkpoints("s", record.incarnation))


async def test_windows_of_both_checkpoints_are_held_to_the_entry(works: Any, inside: Any, small: Any) -> None:
    works.begin(checkpoint_points=700)
    await works.registry.create("s", {**small, "refinement": None})
    rng = np.random.default_rng(0)
    record = works.store.get_stream("s")
    trimmed = 0
    ends: list[int] = [0]
    for size in rng.integers(1, 300, size=60):
        await works.feed(rng.normal(size=(int(size), 2)), cut=300)
        ends.append(ends[-1] + int(size))
        first = works.store.tail("s", record.incarnation).first_seq
        held = checkpoints(works)
        states = [from_bytes(state_alone(c).blob)[0] for c in held]
        starts = [start for start in map(window_start, states) if start is not None]
        if len(held) < 2 or len(starts) < 2:
            assert first == 1
            continue
        needed = min(starts)
        assert points_before(works, first) <= needed, "a point of a window is gone"
        older = min(held[1].seq, *(c.window_seq for c in held))
        assert first == older + 1 or first == 1
        # No more than the entry that the window begins in is kept before it: its first point lies in the first entry.
        assert ends[first] > needed or held[1].seq < first
        trimmed = max(trimmed, first)
    assert trimmed > 10


async def test_what_a_running_refinement_needs_is_held(
    works: Any, inside: Any, grid: np.ndarray, small: Any, library_replay: Any
) -> None:
    works.begin(checkpoint_points=100)
    await works.registry.create("s", {**small, "refinement": None})
    await works.feed(grid[:2500])
    inside.gate.clear()
    asked = (await works.refinements.request("s", method="vdp", window=None, key=None)).refinement
    assert inside.running.wait(120)
    record = works.store.get_stream("s")
    held = next(j for j in works.store.jobs("s", record.incarnation) if j.id == asked.id)
    window_seq = (await works.refinements.find("s", asked.id)).refinement.window_seq
    assert held is not None
    assert window_seq is not None
    await works.feed(grid[2500:])
    rng = np.random.default_rng(1)
    for _ in range(8):
        await works.feed(grid[rng.permutation(4000)[:500]])
    assert works.store.tail("s", record.incarnation).first_seq == window_seq + 1
    inside.gate.set()
    (done,) = await works.settled(asked.id)
    assert done.state == "adopted"
    for _ in range(8):
        await works.feed(grid[rng.permutation(4000)[:500]])
    assert works.store.tail("s", record.incarnation).first_seq > window_seq + 30
    assert works.store.blob_keys("s", record.incarnation) == []


async def test_an_adoption_can_be_replayed_from_the_older_checkpoint(
    works: Any, inside: Any, grid: np.ndarray, small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest checkpoint is damaged: the older one, before the adoption, leads to the same state to the bit."""
    works.begin()
    await works.registry.create("s", {**small, "refinement": None})
    stream = await works.registry.get("s")
    await works.feed(grid[:1200])
    stream.view_source.learner.checkpoint_soon()
    await works.feed(grid[1200:1300])
    asked = (await works.refinements.request("s", method="vdp", window=None, key=None)).refinement
    (done,) = await works.settled(asked.id)
    assert done.state == "adopted"
    await works.feed(grid[1300:1400])
    stream.view_source.learner.checkpoint_soon()
    await works.feed(grid[1400:1500])
    expected = await works.state()
    seqs = [c.seq for c in checkpoints(works)]
    assert seqs[0] > done.entry_seq > seqs[1]
    works.drop()
    load = works.store.load_checkpoints
    monkeypatch.setattr(works.store, "load_checkpoints", lambda *key: load(*key)[1:])
    works.begin(refine=False)
    assert await works.state() == expected


async def test_without_a_window_nothing_is_held_behind_the_older_checkpoint(works: Any, small: Any) -> None:
    works.begin(checkpoint_points=100)
    await works.registry.create("s", {**small, "window": 0})
    rng = np.random.default_rng(0)
    for _ in range(20):
        await works.feed(rng.normal(size=(100, 2)))
    record = works.store.get_stream("s")
    held = checkpoints(works)
    assert [c.window_seq for c in held] == [None, None]
    assert works.store.tail("s", record.incarnation).first_seq == held[1].seq + 1


def test_the_place_of_a_window_is_where_its_first_row_lies() -> None:
    """Against a plain count of every point, over marks that move inside of entries, with letters and restores."""
    from types import SimpleNamespace

    from shoal_service.streams.learner.window_position import StateOffsets, window_after_entry, window_begins_after

    rng = np.random.default_rng(5)
    for _ in range(50):
        step, seen, past, mid = 40, 0, 0, 0
        place = window_begins_after(0)
        owner: list[int] = []  # the entry of each point that the state has seen
        for seq in range(1, 60):
            kind = rng.choice(["batch", "letter", "restore"], p=[0.85, 0.1, 0.05])
            before = StateOffsets(seen, past, mid)
            if kind == "letter":
                continue
            if kind == "restore":
                seen = past = mid = int(rng.integers(0, 500))
                owner = [seq] * seen
            else:
                n = int(rng.integers(1, 100))
                for _ in range(n):
                    seen += 1
                    owner.append(seq)
                    if seen % step == 0:
                        past, mid = mid, seen
            after: Any = SimpleNamespace(
                settings=SimpleNamespace(window_rows=2 * step), points_seen=seen,
                past=SimpleNamespace(offset=past), mid=SimpleNamespace(offset=mid),
            )  # fmt: skip
            place = window_after_entry(place, before, after, seq)
            for mark, found in ((past, place.past), (mid, place.mid)):
                rows = owner[mark:]
                if rows:
                    assert found < rows[0], "a row of the window would be lost"
                    assert all(owner[i] <= found for i in range(mark) if owner[i] != rows[0])
                else:
                    assert found == seq


async def test_the_window_of_a_restore_is_held_over_trims_and_restarts(
    works: Any, inside: Any, grid: np.ndarray, small: Any
) -> None:
    works.begin(refine=False)
    await works.registry.create("one", {**small, "refinement": None})
    await works.feed(grid[:900], name="one")
    _, saved = await works.registry.snapshot("one", min_offset=None, timeout_s=60, window=True)
    works.close()
    works.begin(checkpoint_points=200)
    await works.registry.restore("s", saved.blob)
    await works.feed(grid[900:1700])
    record = works.store.get_stream("s")
    kept = [checkpoint.window_seq for checkpoint in works.store.load_checkpoints("s", record.incarnation)]
    assert kept == [0, 0], "the entry of the restore, the first of the log, holds rows of the window"
    works.drop()
    works.begin(checkpoint_points=200)
    asked = (await works.refinements.request("s", method="vdp", window=None, key=None)).refinement
    (done,) = await works.settled(asked.id)
    assert (done.state, done.report["window_rows"]) == ("adopted", 1700)
    assert done.report["base_offset"] == 1700
    await works.feed(np.concatenate([grid, grid])[:2400])
    record = works.store.get_stream("s")
    assert works.store.tail("s", record.incarnation).first_seq > 1, "once no window needs it, the restore is trimmed"
