"""A batch that the learner cannot take: kept aside with its offset, left out alike on every replay."""

import asyncio
from typing import Any

import numpy as np
import pytest

from shoal_service.errors import DeadLetteredError, StoreUnavailableError
from shoal_service.store import EntryKind, IdempotencyKey, NewEntry
from shoal_service.streams.learner import apply
from shoal_service.wire import Points, from_log, to_log

pytestmark = pytest.mark.anyio

KEY = IdempotencyKey("k", b"d" * 32)


@pytest.fixture
def harm(monkeypatch: pytest.MonkeyPatch) -> set[float]:
    """The library spoils the state and fails on a batch that begins with any number in this set."""
    learn, bad = apply._batch, set[float]()

    def fails(state: Any, entry: Any, gathered: Any) -> Any:
        if from_log(entry.payload)[0, 0] not in bad:
            return learn(state, entry, gathered)
        learn(state, entry, gathered)
        raise RuntimeError("cannot take this")

    monkeypatch.setattr(apply, "_batch", fails)
    return bad


def batch(first: float, n: int = 30) -> Points:
    x = np.random.default_rng(int(abs(first))).normal(size=(n, 2))
    x[0, 0] = first
    return Points(x)


async def test_it_is_kept_aside_and_whoever_waits_is_told(running: Any, harm: set[float], final: Any) -> None:
    harm.add(66.0)
    registry = running.begin(checkpoint_interval_s=3600)
    good = [await registry.ingest("default", batch(n)) for n in (1.0, 2.0)]
    bad = await registry.ingest("default", batch(66.0))
    later = await registry.ingest("default", batch(3.0))
    with pytest.raises(DeadLetteredError, match="cannot take this"):
        await registry.learnt_rows(bad, 120)
    assert len(await registry.learnt_rows(later, 120)) == 30
    assert len(await registry.learnt_rows(good[0], 120)) == 30
    (letter,) = running.store.dead_letters("default", bad.incarnation)
    assert (letter.seq, letter.log_offset, letter.n_points) == (bad.seq, bad.log_offset, 30)
    assert letter.reason == "RuntimeError: cannot take this"
    np.testing.assert_array_equal(from_log(letter.payload), batch(66.0).x)
    view = await registry.view("default", timeout_s=120)
    assert (view.log_offset, view.points_seen) == (120, 90)
    assert registry.known.loaded[0].view_source.learner.counters.dead_letters == 1
    assert registry.known.loaded[0].view_source.learner.counters.points_applied == 90
    line = next(entry for entry in running.log() if entry["event"] == "dead_letter")
    assert (line["seq"], line["log_offset"]) == (3, 90)

    other, _ = await registry.create("clean", {"n_features": 2})
    for n in (1.0, 2.0, 3.0):
        await other.ingest(batch(n), None)
    assert await final(registry) == await final(registry, "clean"), "nothing of the failed batch is left in the state"


async def test_a_restart_leaves_it_out_although_the_library_could_take_it_now(
    running: Any, harm: set[float], final: Any
) -> None:
    harm.add(66.0)
    registry = running.begin(checkpoint_interval_s=3600)
    for n in (1.0, 66.0, 2.0):
        await registry.ingest("default", batch(n), idempotency=KEY if n == 66.0 else None)
    expected = await final(registry)
    running.drop()
    harm.clear()
    registry = running.begin()
    assert await final(registry) == expected
    again = await registry.ingest("default", batch(66.0), idempotency=KEY)
    assert again.replayed
    with pytest.raises(DeadLetteredError):
        await registry.learnt_rows(again, 120)
    assert (await registry.view("default", timeout_s=120)).points_seen == 60


async def test_readers_never_see_the_log_go_back(running: Any, harm: set[float], final: Any) -> None:
    registry = running.begin(checkpoint_interval_s=3600)
    harm.update((66.0, 67.0))
    seen: list[int] = []
    done = asyncio.Event()

    async def watch() -> None:
        while not done.is_set():
            seen.append((await registry.view("default", timeout_s=120)).seq)
            await asyncio.sleep(0.001)

    await registry.ingest("default", batch(1.0))
    watcher = asyncio.create_task(watch())
    for n in (2.0, 66.0, 3.0, 67.0, 4.0):
        await registry.ingest("default", batch(n))
    await final(registry)
    done.set()
    await watcher
    assert seen == sorted(seen)


async def test_nothing_goes_on_until_the_letter_is_durable(
    running: Any, harm: set[float], monkeypatch: pytest.MonkeyPatch, final: Any
) -> None:
    harm.add(66.0)
    registry = running.begin()
    await registry.ingest("default", batch(1.0))
    add, tries = type(running.store).add_dead_letter, []

    def full(self: Any, *arguments: Any) -> None:
        tries.append(registry.known.loaded[0].view_source.board.view.seq)
        if len(tries) < 4:
            raise StoreUnavailableError("the disk is full")
        add(self, *arguments)

    monkeypatch.setattr(type(running.store), "add_dead_letter", full)
    await registry.ingest("default", batch(66.0))
    await registry.ingest("default", batch(2.0))
    await final(registry)
    assert tries == [1, 1, 1, 1]
    assert [
        letter.seq for letter in running.store.dead_letters("default", registry.known.loaded[0].record.incarnation)
    ] == [2]


async def test_stopped_before_the_letter_is_durable_it_writes_no_spoilt_checkpoint(
    running: Any, harm: set[float], monkeypatch: pytest.MonkeyPatch, final: Any
) -> None:
    registry = running.begin(checkpoint_interval_s=3600)
    await registry.ingest("default", batch(1.0))
    expected = await final(registry)
    harm.add(66.0)
    tried = asyncio.Event()
    loop = asyncio.get_running_loop()

    def full(*_: Any) -> None:
        loop.call_soon_threadsafe(tried.set)
        raise StoreUnavailableError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(type(running.store), "add_dead_letter", full)
        await registry.ingest("default", batch(66.0))
        await asyncio.wait_for(tried.wait(), 120)
        await asyncio.to_thread(running.close)
    registry = running.begin()
    await final(registry)
    view = await registry.view("default", timeout_s=120)
    assert (view.seq, view.points_seen) == (2, 30)
    assert [letter.seq for letter in running.store.dead_letters("default", view.incarnation)] == [2]
    assert await final(registry) == expected


async def test_a_restore_that_fails_leaves_the_state_as_it_was(
    running: Any, monkeypatch: pytest.MonkeyPatch, final: Any
) -> None:
    registry = running.begin()
    await registry.ingest("default", batch(1.0))
    saved = await final(registry)

    def fails(*_: Any) -> Any:
        raise RuntimeError("no")

    monkeypatch.setitem(apply._APPLY, EntryKind.RESTORE, fails)
    await registry.ingest("default", batch(2.0))
    expected = await final(registry)
    receipt = await registry.restore("default", saved)
    with pytest.raises(DeadLetteredError):
        await registry.wait_until_visible(receipt, 120)
    assert await final(registry) == expected


async def test_settings_that_could_not_be_taken_are_not_shown_as_in_force(
    running: Any, monkeypatch: pytest.MonkeyPatch, final: Any
) -> None:
    registry = running.begin()
    await registry.create("s", {"n_features": 2, "concentration": 1.0})
    stream = await registry.get("s")
    await stream.ingest(batch(1.0), None)

    def fails(*_: Any) -> Any:
        raise RuntimeError("no")

    with monkeypatch.context() as patched:
        patched.setitem(apply._APPLY, EntryKind.SETTINGS, fails)
        receipt = await stream.change({"concentration": 5.0})
        assert (await registry.describe("s")).settings.concentration == 5.0, "asked for, and not yet refused"
        with pytest.raises(DeadLetteredError):
            await registry.wait_until_visible(receipt, 120)
    assert (await registry.describe("s")).settings.concentration == 1.0
    assert running.store.get_stream("s").settings == stream.record.settings
    await registry.create_or_change("s", {"birth_threshold": 0.25})
    await final(registry, "s")
    view = await registry.view("s", timeout_s=120)
    assert view.snapshot is not None
    in_force = view.snapshot.settings
    assert (in_force.concentration, in_force.birth_threshold) == (1.0, 0.25)
    assert running.store.get_stream("s").settings.decode() == in_force.to_json()


@pytest.mark.parametrize("n_features", [1, 3])
async def test_an_entry_of_another_width_is_not_learnt(running: Any, final: Any, n_features: int) -> None:
    """The door refuses such a batch. One that is in the log all the same was learnt, from numbers beside its rows."""
    registry = running.begin()
    await registry.ingest("default", batch(1.0))
    expected = await final(registry)
    stream = await registry.get("default")
    await stream.append_batch(NewEntry(EntryKind.BATCH, to_log(Points(np.zeros((5, n_features)))), 5))
    assert await final(registry) == expected
    (letter,) = running.store.dead_letters("default", stream.record.incarnation)
    assert letter.reason == f"ShapeError: the entry has {n_features} features, the stream has 2"
