"""Batches that wait are learnt in one pass. Nothing that is kept or said of a stream depends on which ones waited."""

import asyncio
import random
import threading
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest

from harness.library_replay import replayed
from harness.short_form import longer
from harness.waiting import eventually_async
from shoal.mixture import StreamSettings, from_bytes
from shoal_service.store import Checkpoint, Entry, EntryKind, NewEntry
from shoal_service.streams import learnt_rows
from shoal_service.streams.learner import apply, thread
from shoal_service.streams.monitor import encode_monitor
from shoal_service.streams.record_service import RecordService
from shoal_service.wire import Points, RecordFields, Texts, from_log, to_log

pytestmark = pytest.mark.anyio

START = 1_767_225_600.0


def points(n: int, seed: int) -> np.ndarray:
    """Clusters of which one comes late; from the middle on, one point in three is far from all of them."""
    rng = np.random.default_rng(seed)
    z = rng.integers(4, size=n)
    z[: n // 3] %= 3
    x = 7.0 * np.stack([z % 2, z // 2], axis=1) + rng.normal(size=(n, 2))
    far = np.flatnonzero(rng.random(n) < 1 / 3)
    far = far[far > n // 2]
    x[far] = rng.uniform(-500.0, 500.0, size=(len(far), 2))
    return np.asarray(x)


def fields(start: int, n: int, rng: np.random.Generator, *, timed: bool) -> RecordFields:
    keys = Texts.of([b"key/%d" % k for k in rng.integers(3_000, size=n)])
    times = START + 7.0 * np.arange(start, start + n) - np.where(rng.random(n) < 0.1, 3_600.0, 0.0)
    return RecordFields(START + 7.0 * (start + n), keys, times if timed else None, None, None)


def log_of(x: np.ndarray, seed: int, *, timed: bool) -> list[Entry]:
    """Small batches with keys and times, one large one, and a change of settings now and then."""
    rng, entries, start = np.random.default_rng(seed), [], 0
    while start < len(x):
        n = 1_500 if len(entries) == 40 else int(rng.integers(1, 60))
        rows = x[start : start + n]
        start += len(rows)
        payload = to_log(Points(rows, fields(start - len(rows), len(rows), rng, timed=timed)))
        entries.append(Entry(len(entries) + 1, start, len(rows), EntryKind.BATCH, payload))
        if len(entries) in (90, 91):
            entries.append(Entry(len(entries) + 1, start, 0, EntryKind.SETTINGS, b""))
    return entries


SETTINGS: dict[str, dict[str, Any]] = {
    "one": {"half_life": 6_000.0},
    "one, by time": {"half_life": "12h", "family": "diagonal"},
    "two": {"partitions": 2},
    "three, by time": {"partitions": 3, "half_life": "12h", "family": "diagonal"},
    "no window": {"partitions": 2, "refinement": None, "window": 0},
}
COMMON = {"family": "gaussian", "n_features": 2, "warmup_points": 300, "novelty_rate": 0.005, "window": 2_000}


@pytest.mark.parametrize(
    ("name", "n_seeds"),
    [("one", 1), ("three, by time", 1), longer("no window", 1), *(longer(name, 3) for name in SETTINGS)],
)
def test_any_groups_say_the_same_of_each_entry(name: str, n_seeds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.mixture.round.ROUND_ROWS", 1_024)
    monkeypatch.setattr("shoal.mixture.round.LEAST_ROUND_ROWS", 64)
    settings = StreamSettings.from_dict(COMMON | SETTINGS[name])
    entries = log_of(points(9_000, 1), 2, timed=settings.clock_step_s is not None)
    other = [settings.with_changes(concentration=2.5), settings.with_changes(max_records=100)]
    for i, entry in enumerate(entries):
        if entry.kind is EntryKind.SETTINGS:
            entries[i] = entry._replace(payload=other.pop(0).to_json().encode())

    working, expected = apply.begin(settings.to_json().encode()), []
    ends: dict[int, tuple[Checkpoint, bytes]] = {}
    for entry in entries:
        working, change = apply.apply_inplace(working, entry)
        expected.append(said(entry, working, change))
        ends[entry.seq] = apply.checkpoint_of(working), encode_monitor(working.monitor)
    kinds = {kind for _, events, *_ in expected for kind, _ in events}
    assert {"born", "drift", "cluster-born"} <= kinds

    for seed in range(n_seeds):
        rng, found, passes = random.Random(seed), [], []
        working = apply.begin(settings.to_json().encode())
        while len(found) < len(entries):
            ahead = entries[len(found)]
            if ahead.kind is EntryKind.BATCH:
                waiting = islice(entries, len(found), len(found) + rng.choice([1, 2, 5, 20, 500]))
                working, changes = apply.apply_batches_inplace(working, batches_of(waiting))
            else:
                working, change = apply.apply_inplace(working, ahead)
                changes = [(ahead, change)]
            found += [said(entry, working, change) for entry, change in changes]
            passes.append(len(changes))
            checkpoint, monitor = apply.checkpoint_of(working), encode_monitor(working.monitor)
            assert [*checkpoint, monitor] == [*ends[working.seq][0], ends[working.seq][1]]
            if rng.random() < 0.1:  # as after a restart, but for the window, of which only one place is kept
                window = working.window
                working = apply.resume(checkpoint, monitor)._replace(window=window)
        assert max(passes) > 4, "some batches are learnt together"
        for one, alone in zip(found, expected, strict=True):
            assert one[0] == alone[0]
            assert one[1] == alone[1]
            assert one[2].tobytes() == alone[2].tobytes()


def batches_of(entries: Iterator[Entry]) -> Iterator[Entry]:
    for entry in entries:
        if entry.kind is not EntryKind.BATCH:
            return
        yield entry


def said(entry: Entry, working: apply.WorkingState, change: apply.EntryEffect) -> tuple[Any, ...]:
    """Number, events and labels of an entry."""
    labels = np.zeros(0) if change.info is None else apply.learnt_rows_of(change.info)
    return entry.seq, list(apply.events_of(entry, working, change, None)), labels


async def everything(running: Any, n_keys: int) -> dict[str, Any]:
    """What can be known of the stream once its log is learnt."""
    stream = await running.registry.get("default")
    tail = await stream.tail()
    view = await stream.view(tail.log_offset, 60)
    learner = stream.view_source.learner
    density, novelty = learner.counters.scores.counted()
    records, keys = RecordService(running.registry.known), [f"key/{k}" for k in range(n_keys)]
    found = await records.find("default", keys, min_offset=tail.log_offset, timeout_s=60)
    return {
        "state": (await stream.snapshot(60)).blob,
        "events": [(event.place, event.kind, event.data) for event in learner.feed.all()],
        "records": [repr(record) for record in found],
        "score": view.score,
        "counts": vars(learner.counters)
        | {"scores": None, "checkpoints": 0, "checkpoint_seconds": 0, "publications": 0},
        "metrics": [density.counts.tolist(), density.total, novelty.counts.tolist(), novelty.total],
    }


@pytest.mark.parametrize("settings", [{"partitions": 2}, longer({"half_life": 3_000.0})])
async def test_a_backlog_leaves_what_one_batch_after_another_leaves(
    running: Any, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.mixture.round.ROUND_ROWS", 1_024)
    monkeypatch.setattr("shoal.mixture.round.LEAST_ROUND_ROWS", 64)
    settings = COMMON | {"refinement": None, "max_records": 2_000} | settings
    payloads = [(entry.payload, entry.n_points) for entry in log_of(points(5_000, 3), 4, timed=False) if entry.n_points]
    running.begin().known.close(60)
    left = []
    for name in ("alone", "together"):
        other = type(running)(running.kind, running.folder / name)
        registry = other.begin(checkpoint_interval_s=3600)
        await registry.create("default", settings)
        stream = await registry.get("default")
        passes = []
        with monkeypatch.context() as patched:
            if name == "alone":
                patched.setattr(thread.Learner, "_is_learnt", lambda learner, entry: False)
            learnt = thread.apply_batches_inplace

            def counted(*given: Any, learnt: Any = learnt, passes: list[int] = passes) -> Any:
                working, changes = learnt(*given)
                passes.append(len(changes))
                return working, changes

            patched.setattr(thread, "apply_batches_inplace", counted)
            incarnation = stream.record.incarnation
            other.drop()
            for payload, n in payloads:
                other.store.append(
                    "default", incarnation, NewEntry(EntryKind.BATCH, payload, n), budget_bytes=1 << 40
                ).result()
            other.begin(checkpoint_interval_s=3600)
            left.append(await everything(other, 3_000))
        assert (max(passes, default=0) > 4) == (name == "together")
        other.close()
        other.store.close()
    alone, together = left
    assert sum(record != "None" for record in alone["records"]) > 1_000
    for key, value in alone.items():
        assert together[key] == value, key


@pytest.mark.parametrize("bad", [longer([90]), [60, 61, 110]])
async def test_of_batches_learnt_together_the_one_that_fails_is_set_aside_alone(
    running: Any, bad: list[int], monkeypatch: pytest.MonkeyPatch, final: Any
) -> None:
    settings = COMMON | {"refinement": None}
    x = points(3_120, 5)
    payloads = [to_log(Points(part)) for part in np.array_split(x, 130)]
    registry = running.begin(checkpoint_interval_s=3600)
    await registry.create("default", settings)
    incarnation = (await registry.get("default")).record.incarnation
    running.drop()
    entries = []
    for i, payload in enumerate(payloads, 1):
        entries.append(Entry(i, 24 * i, 24, EntryKind.BATCH, payload))
        running.store.append(
            "default", incarnation, NewEntry(EntryKind.BATCH, payload, 24), budget_bytes=1 << 40
        ).result()
    seqs = {payloads[i - 1] for i in bad}
    decoded = apply._decoded

    def fails(state: Any, entry: Any) -> Any:
        if entry.payload in seqs:
            state.stats[0][:] = -1.0
            raise RuntimeError("cannot learn this")
        return decoded(state, entry)

    monkeypatch.setattr(apply, "_decoded", fails)
    registry = running.begin(checkpoint_interval_s=3600)
    state = await final(registry)
    letters = running.store.dead_letters("default", incarnation)
    assert [letter.seq for letter in letters] == bad
    assert registry.known.loaded[0].view_source.learner.counters.points_applied == 3_120 - 24 * len(bad)
    learnt = [entry for entry in entries if entry.seq not in bad]
    canonical = registry.known.loaded[0].settings.to_dict()
    assert from_bytes(state)[0].points_seen == sum(len(from_log(entry.payload)) for entry in learnt)
    assert state == replayed(canonical, learnt, {}.__getitem__)
    assert any(line["event"] == "entries_failed" for line in running.log())


async def test_who_waits_for_a_small_batch_gets_its_labels_before_a_large_one_is_learnt(
    running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learnt_rows, "ROWS_KEPT", 1_000)
    x, go_on, answered, decoded = points(4_000, 7), threading.Event(), threading.Event(), apply._decoded
    registry = running.begin(checkpoint_interval_s=3600)
    await registry.create("default", COMMON | {"refinement": None})
    stream = await registry.get("default")
    await stream.learnt_rows(await stream.ingest(Points(x[:1_030]), None), 60)

    def waits(state: Any, entry: Any) -> Any:
        assert go_on.wait(60)
        if entry.n_points > 1_000:  # it is learnt when the other one is answered
            answered.wait(60)
        return decoded(state, entry)

    monkeypatch.setattr(apply, "_decoded", waits)
    await stream.ingest(Points(x[1_030:1_031]), None)
    small = await stream.ingest(Points(x[1_031:1_061]), None)
    large = await stream.ingest(Points(x[1_061:3_000]), None)
    waiting = asyncio.create_task(stream.learnt_rows(small, 60))
    await eventually_async(lambda: stream.view_source.board.wanted(small.seq, small.log_offset))
    go_on.set()
    labels = await waiting
    answered.set()
    assert labels is not None
    assert len(labels) == 30
    assert len(await stream.learnt_rows(large, 60)) == 1_939


async def test_a_fault_before_the_first_batch_is_read_stops_no_learner(
    running: Any, monkeypatch: pytest.MonkeyPatch, final: Any
) -> None:
    registry = running.begin(checkpoint_interval_s=3600)
    await registry.create("default", COMMON | {"refinement": None})
    incarnation = (await registry.get("default")).record.incarnation
    running.drop()
    for part in np.array_split(points(3_000, 8), 100):
        running.store.append(
            "default", incarnation, NewEntry(EntryKind.BATCH, to_log(Points(part)), len(part)), budget_bytes=1 << 40
        ).result()
    learnt, faults = thread.apply_batches_inplace, [MemoryError("none left")]

    def once(*given: Any) -> Any:
        if faults:
            raise faults.pop()
        return learnt(*given)

    monkeypatch.setattr(thread, "apply_batches_inplace", once)
    state = await final(running.begin(checkpoint_interval_s=3600))
    assert not faults
    assert from_bytes(state)[0].points_seen == 3_000
    assert running.store.dead_letters("default", incarnation) == []
