"""The learner's life: when it publishes, checkpoints, waits, stops."""

import asyncio
import threading
import time
from typing import Any

import numpy as np
import pytest

from harness.waiting import eventually_async
from shoal_service.errors import NotReadyError, OffsetBeyondLogError, StoreUnavailableError, UnknownStreamError
from shoal_service.streams import StreamRegistry, known_streams
from shoal_service.streams.known_streams import KnownStreams
from shoal_service.streams.learner import LearnerPool, checkpoints, publisher, thread
from shoal_service.streams.learner.thread import Learner
from shoal_service.wire import Points

pytestmark = pytest.mark.anyio


def rows(n: int, seed: int = 0) -> Points:
    return Points(np.random.default_rng(seed).normal(size=(n, 2)))


async def test_checkpoints_are_written_by_points(running: Any, final: Any) -> None:
    registry = running.begin(checkpoint_points=100, checkpoint_interval_s=3600)
    for n in range(10):
        await registry.ingest("default", rows(50, n))
        await final(registry)
    tally = registry.known.loaded[0].view_source.learner.counters
    assert tally.checkpoints == 1 + 5
    assert tally.checkpoint_bytes > 0
    newest, older = running.store.load_checkpoints("default", registry.known.loaded[0].record.incarnation)
    assert (newest.log_offset, older.log_offset) == (500, 400)


async def test_checkpoints_are_written_by_time_even_when_nothing_more_comes(running: Any, final: Any) -> None:
    registry = running.begin(checkpoint_interval_s=0.05)
    await registry.ingest("default", rows(10))
    await final(registry)
    tally = registry.known.loaded[0].view_source.learner.counters
    await eventually_async(lambda: tally.checkpoints >= 2)  # the store holds it before the learner counts it
    incarnation = registry.known.loaded[0].record.incarnation
    assert running.store.load_checkpoints("default", incarnation)[0].seq == 1
    await asyncio.sleep(0.15)
    assert tally.checkpoints == 2, "nothing changed, nothing is written"


async def test_closing_applies_what_is_in_the_log_and_writes_it(running: Any) -> None:
    registry = running.begin(checkpoint_interval_s=3600)
    for n in range(20):
        await registry.ingest("default", rows(50, n))
    incarnation = registry.known.loaded[0].record.incarnation
    assert await asyncio.to_thread(registry.known.close, 120)
    assert running.store.load_checkpoints("default", incarnation)[0].log_offset == 1000
    with pytest.raises(NotReadyError):
        await registry.ingest("default", rows(1))


async def test_what_is_not_applied_in_time_stays_in_the_log(
    running: Any, monkeypatch: pytest.MonkeyPatch, final: Any
) -> None:
    """The tenth entry takes until just after the end of the time, however fast or slow the machine is."""
    registry = running.begin(checkpoint_interval_s=3600)
    apply_inplace, finish = thread.apply_inplace, Learner.finish
    begun: list[float] = []
    tenth, time_is_up = threading.Event(), threading.Event()

    def apply(*arguments: Any) -> Any:
        begun.append(time.monotonic())
        if len(begun) == 10:
            tenth.set()
            assert time_is_up.wait(120)
        return apply_inplace(*arguments)

    def finish_by(self: Learner, deadline: float) -> None:
        finish(self, deadline)
        threading.Timer(deadline - time.monotonic() + 0.02, time_is_up.set).start()

    with monkeypatch.context() as patched:
        patched.setattr(thread, "apply_inplace", apply)
        patched.setattr(Learner, "finish", finish_by)
        patched.setattr(known_streams, "DRAIN_SHARE", 0.01)
        for n in range(30):
            await registry.ingest("default", rows(10, n))
        assert await asyncio.to_thread(tenth.wait, 120)
        assert await asyncio.to_thread(registry.known.close, 20.0), "it ends after the entry that it is at"
    assert not registry.known.drained
    incarnation = registry.known.loaded[0].record.incarnation
    assert [c.log_offset for c in running.store.load_checkpoints("default", incarnation)] == [100, 0]
    registry = running.begin()
    await final(registry)
    assert (await registry.view("default", timeout_s=120)).points_seen == 300


async def test_a_learner_that_is_stuck_holds_up_the_end_no_longer_than_it_may(
    running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = running.begin(checkpoint_interval_s=3600)
    apply_inplace, stuck, go_on = thread.apply_inplace, threading.Event(), threading.Event()

    def apply(*arguments: Any) -> Any:
        stuck.set()
        assert go_on.wait(120)
        return apply_inplace(*arguments)

    monkeypatch.setattr(thread, "apply_inplace", apply)
    await registry.ingest("default", rows(10))
    assert await asyncio.to_thread(stuck.wait, 120)
    assert not await asyncio.to_thread(registry.known.close, 0.1)
    go_on.set()
    assert await asyncio.to_thread(registry.known.close, 120)


@pytest.mark.parametrize(("replay_s", "interval_s", "waits"), [(0.05, 60.0, True), (60.0, 0.05, False)])
async def test_a_service_that_dies_soon_after_each_start_writes_a_checkpoint_all_the_same(
    running: Any, monkeypatch: pytest.MonkeyPatch, final: Any, replay_s: float, interval_s: float, waits: bool
) -> None:
    """After a long replay, or in the middle of it: else each start would replay more than the one before."""
    registry = running.begin(checkpoint_interval_s=3600)
    for n in range(8):
        await registry.ingest("default", rows(50, n))
    await final(registry)
    incarnation = registry.known.loaded[0].record.incarnation
    assert running.store.load_checkpoints("default", incarnation)[0].seq == 0
    running.drop()
    apply = thread.apply_inplace

    def slow(*given: Any) -> Any:
        time.sleep(0.03)
        return apply(*given)

    monkeypatch.setattr(thread, "apply_inplace", slow)
    monkeypatch.setattr(checkpoints, "REPLAY_S", replay_s)
    monkeypatch.setattr(checkpoints, "REPLAY_INTERVAL_S", interval_s)
    registry = running.begin(checkpoint_interval_s=3600)
    await final(registry)
    running.drop()
    (newest, *_) = running.store.load_checkpoints("default", incarnation)
    assert newest.seq == 8 if waits else 0 < newest.seq < 8


async def test_a_start_takes_up_what_waits_without_being_asked(running: Any) -> None:
    registry = running.begin()
    await registry.ingest("default", rows(5))
    await registry.create("quiet", {"n_features": 2})
    quiet = await registry.get("quiet")
    await quiet.view(None, 20)
    running.drop()
    registry = running.begin()
    by_name = {stream.name: stream.view_source for stream in registry.known.loaded}
    board = by_name["default"].board
    await eventually_async(lambda: board.view is not None and board.view.points_seen == 5)
    assert (await registry.view("quiet", timeout_s=120)).status == "empty"


async def test_an_idle_stream_says_after_a_start_what_it_holds_without_being_asked_first(running: Any) -> None:
    registry = running.begin()
    await registry.ingest("default", rows(5))
    await registry.view("default", min_offset=5, timeout_s=120)
    running.close()
    registry = running.begin()
    (stream,) = registry.known.loaded
    await eventually_async(lambda: stream.view_source.board.view is not None)
    ((info,), _) = await registry.list_page(None)
    assert (info.status, info.summary.points_seen) == ("warming_up", 5)


async def test_views_are_published_no_faster_than_the_interval_unless_somebody_waits(running: Any) -> None:
    registry = running.begin(publish_interval_s=3600.0)
    first = await registry.ingest("default", rows(1))
    await registry.view("default", min_offset=1, timeout_s=120)
    tally = registry.known.loaded[0].view_source.learner.counters
    published = tally.publications
    for n in range(30):
        last = await registry.ingest("default", rows(1, n))
    await eventually_async(lambda: tally.entries_applied == 31)
    assert tally.publications == published
    assert registry.known.loaded[0].view_source.board.view.log_offset == first.log_offset
    view = await registry.view("default", min_offset=last.log_offset, timeout_s=120)  # the interval is an hour
    assert view.log_offset == 31


async def test_a_view_is_published_after_the_interval_when_nobody_waits(running: Any) -> None:
    registry = running.begin(publish_interval_s=0.05)
    for n in range(5):
        await registry.ingest("default", rows(1, n))
    await registry.view("default", timeout_s=120)
    board = registry.known.loaded[0].view_source.board
    await eventually_async(lambda: board.view.log_offset == 5, "the last points were never published")


async def test_published_arrays_are_read_only_and_stay_as_they_were(running: Any) -> None:
    registry = running.begin()
    await registry.ingest("default", rows(100))
    view = await registry.view("default", min_offset=100, timeout_s=120)
    kept = view.snapshot.masses.copy()
    for n in range(5):
        await registry.ingest("default", rows(100, n))
    await registry.view("default", min_offset=600, timeout_s=120)
    np.testing.assert_array_equal(view.snapshot.masses, kept)
    with pytest.raises(ValueError, match="read-only"):
        view.snapshot.masses[0] = 1.0


async def test_a_store_that_does_not_answer_is_asked_again(
    running: Any, monkeypatch: pytest.MonkeyPatch, final: Any
) -> None:
    registry = running.begin(checkpoint_points=1)
    await registry.ingest("default", rows(5))
    await final(registry)
    failing = {"read": 3, "save_checkpoint": 2}
    for verb in failing:
        whole = getattr(type(running.store), verb)

        def sometimes(self: Any, *arguments: Any, _verb: str = verb, _whole: Any = whole, **more: Any) -> Any:
            if failing[_verb]:
                failing[_verb] -= 1
                raise StoreUnavailableError("busy")
            return _whole(self, *arguments, **more)

        monkeypatch.setattr(type(running.store), verb, sometimes)
    await registry.ingest("default", rows(5))
    await final(registry)
    assert failing["read"] == 0
    assert (await registry.view("default", timeout_s=120)).points_seen == 10
    registry.known.refuse_when_stopping()


async def test_a_writer_that_is_behind_a_newer_one_stops_without_calling_its_trimmed_entries_a_gap(
    running: Any, final: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = running.begin(checkpoint_points=1)
    await registry.create("default", {"n_features": 2, "refinement": None, "warmup_points": 5, "window": 10})
    await registry.ingest("default", rows(5))
    await final(registry)
    store, first, held = running.store, registry.known.loaded[0].view_source.learner, threading.Event()
    read = first._read

    def late(stopping: bool) -> Any:
        held.wait(120)
        return read(stopping)

    monkeypatch.setattr(first, "_read", late)
    other = StreamRegistry(KnownStreams(store, registry.known.settings, registry.known.log))
    for _ in range(8):
        await other.ingest("default", rows(5))
        await final(other)
    assert await asyncio.to_thread(other.known.close, 120)
    held.set()
    source = registry.known.loaded[0].view_source
    assert "StaleWriterError" in await eventually_async(lambda: source.failure)
    assert not [line for line in running.log() if line["level"] == "error"]


async def test_a_second_writer_makes_the_first_stop(running: Any, final: Any) -> None:
    registry = running.begin(checkpoint_points=1)
    await registry.ingest("default", rows(5))
    await final(registry)
    other = StreamRegistry(KnownStreams(running.store, registry.known.settings, registry.known.log))
    await other.view("default", timeout_s=120)
    await other.ingest("default", rows(5))
    source = registry.known.loaded[0].view_source
    assert "StaleWriterError" in await eventually_async(lambda: source.failure)
    assert (await registry.describe("default")).status == "failed"
    await final(other)
    assert (await other.view("default", timeout_s=120)).points_seen == 10
    assert await asyncio.to_thread(other.known.close, 120)


async def test_a_view_that_cannot_be_made_leaves_readers_the_last_one(
    running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = running.begin()
    await registry.ingest("default", rows(5))
    await registry.view("default", min_offset=5, timeout_s=120)

    def fails(*_: Any) -> Any:
        raise RuntimeError("no view")

    with monkeypatch.context() as patched:
        patched.setattr(publisher, "view_of", fails)
        await registry.ingest("default", rows(5))
        await eventually_async(lambda: "publish_failed" in [line["event"] for line in running.log()])
        assert (await registry.view("default", timeout_s=120)).log_offset == 5
    await registry.ingest("default", rows(5))
    assert (await registry.view("default", min_offset=15, timeout_s=120)).points_seen == 15


async def test_a_deleted_stream_leaves_no_thread(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pools: list[LearnerPool] = []  # those of this test: services of other tests in this process have theirs

    class Pool(LearnerPool):
        def __init__(self) -> None:
            super().__init__()
            pools.append(self)

    monkeypatch.setattr(known_streams, "LearnerPool", Pool)
    registry = running.begin()
    await registry.ingest("default", rows(5))
    await registry.view("default", timeout_s=120)
    (pool,) = pools
    assert pool.n_threads > 0
    await registry.delete("default")
    await eventually_async(lambda: pool.n_threads == 0, lambda: pool.n_threads)
    with pytest.raises(UnknownStreamError):
        await registry.get("default")


async def test_the_default_stream_reads_as_empty_before_its_first_points(running: Any) -> None:
    registry = running.begin()
    view = await registry.view("default", timeout_s=120)
    assert (view.log_offset, view.status, view.snapshot) == (0, "empty", None)
    assert (await registry.view("default", min_offset=0, timeout_s=120)).log_offset == 0
    with pytest.raises(OffsetBeyondLogError):
        await registry.view("default", min_offset=1, timeout_s=120)
    with pytest.raises(UnknownStreamError):
        await registry.view("other", timeout_s=120)


async def test_a_snapshot_asked_of_a_registry_that_is_closed_is_refused(running: Any) -> None:
    registry = running.begin()
    await registry.ingest("default", rows(5))
    stream = await registry.get("default")
    assert await asyncio.to_thread(registry.known.close, 120)
    with pytest.raises(NotReadyError):
        await asyncio.wait_for(stream.snapshot(600), 120)


async def test_an_idle_learner_answers_at_once_and_does_not_poll(
    running: Any, monkeypatch: pytest.MonkeyPatch, final: Any
) -> None:
    monkeypatch.setattr(thread, "WAIT_S", 600.0)
    registry = running.begin()
    await registry.ingest("default", rows(10))
    await final(registry)
    store, read, reads = running.store, type(running.store).read, []

    def counted(asked: Any, *given: Any, **more: Any) -> Any:
        if asked is store:  # a learner of an earlier test may still read its own
            reads.append(1)
        return read(asked, *given, **more)

    monkeypatch.setattr(type(store), "read", counted)
    deadline = time.monotonic() + 120
    while True:  # on a busy machine the last entry is still being published for a while; one that polls never rests
        reads.clear()
        await asyncio.sleep(0.3)
        began = time.monotonic()
        await registry.known.loaded[0].snapshot(120)
        if len(reads) <= 1 or began > deadline:
            break
    assert len(reads) <= 1
    await registry.ingest("default", rows(10))
    await registry.view("default", min_offset=20, timeout_s=120)
    assert await asyncio.to_thread(registry.known.close, 120)
    assert time.monotonic() - began < 300, "half of what one that polls would have waited"
