"""Many streams in one process: they share threads, and those that nobody uses are not in memory."""

import asyncio
import threading
import time
from functools import partial
from typing import Any

import numpy as np
import pytest

from harness.short_form import longer
from harness.waiting import eventually, eventually_async
from shoal.mixture import state_codec
from shoal_service.errors import UnknownStreamError
from shoal_service.streams import StreamRegistry, known_streams
from shoal_service.streams.known_streams import KnownStreams
from shoal_service.streams.learner import pool
from shoal_service.streams.record_service import RecordService
from shoal_service.wire import Points, RecordFields, Texts

pytestmark = pytest.mark.anyio


def learner(registry: StreamRegistry, name: str = "default") -> Any:
    return registry.known.learners[name]


def rows(n: int, seed: int) -> Points:
    return Points(np.random.default_rng(seed).normal(size=(n, 2)))


async def test_a_stream_that_rests_between_batches_learns_the_same_bits(
    running: Any, batches: list[Points], final: Any
) -> None:
    registry = running.begin(stream_idle_s=0.02, checkpoint_interval_s=0.01)
    settings = {"n_features": 3, "family": "gaussian", "warmup_points": 500, "refinement": None}
    for name in ("default", "awake"):
        await registry.create(name, settings)
    rests = 0
    for i, batch in enumerate(batches):
        await registry.ingest("default", batch)
        await registry.ingest("awake", batch)
        if i % 8 == 7:
            await final(registry)
            await eventually_async(lambda: learner(registry).resting)
            rests += 1
            assert registry.known.loaded[1].view_source.board.view is None
    assert rests == 5
    at_rest = await final(registry)
    await eventually_async(lambda: learner(registry).resting)
    assert (await registry.view("default", timeout_s=120)).points_seen == sum(batch.n_points for batch in batches)
    assert await final(registry) == at_rest
    running.close()
    registry = running.begin(stream_idle_s=3600.0)
    incarnation = registry.known.loaded[1].record.incarnation
    assert running.store.load_checkpoints("default", incarnation)[0].blob.endswith(at_rest)
    other = StreamRegistry(KnownStreams(running.store, registry.known.settings.model_copy(), registry.known.log))
    await other.create("whole", settings)
    for batch in batches:
        await other.ingest("whole", batch)
    assert await final(other, "whole") == at_rest, "and so does one that never rested"
    assert await asyncio.to_thread(other.known.close, 120)


async def test_a_state_is_checked_at_a_start_and_not_at_each_return_from_rest(
    running: Any, final: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[int] = []
    check = state_codec.check_state

    def counted(state: Any, window: Any) -> None:
        checked.append(state.points_seen)
        check(state, window)

    monkeypatch.setattr(state_codec, "check_state", counted)
    settings = {"stream_idle_s": 0.02, "checkpoint_interval_s": 0.01}
    registry = running.begin(**settings)
    for i in range(4):
        await registry.ingest("default", rows(30, i))
        at_rest = await final(registry)
        await eventually_async(lambda: learner(registry).resting)
    assert checked == []
    running.close()
    registry = running.begin(**settings)
    assert await final(registry) == at_rest
    assert checked == [120], "another process may have written this one"
    await eventually_async(lambda: learner(registry).resting)
    assert await final(registry) == at_rest
    await registry.ingest("default", rows(30, 5))
    await final(registry)
    await eventually_async(lambda: learner(registry).resting)
    await final(registry)
    assert checked == [120]


async def test_a_stream_at_rest_is_listed_without_being_loaded_and_keeps_its_events_and_records(
    running: Any, final: Any
) -> None:
    registry = running.begin(stream_idle_s=0.02, checkpoint_interval_s=0.01)
    x = np.r_[np.zeros((30, 2)), np.full((30, 2), 50.0)] + np.random.default_rng(1).normal(size=(60, 2))
    keys = [b"key-%d" % i for i in range(60)]
    await registry.create("default", {"n_features": 2, "warmup_points": 20})
    await registry.ingest("default", Points(x, RecordFields(0.0, Texts.of(keys), None, None, None)))
    await final(registry)
    view, (before,) = await registry.view("default", timeout_s=120), (await registry.list_page(None))[0]
    events = registry.known.loaded[0].view_source.feed.all()
    assert view.snapshot is not None
    assert view.snapshot.n_components >= 2
    assert events
    await eventually_async(lambda: learner(registry).resting)
    ((listed,), _) = await registry.list_page(None)
    assert listed == before
    assert learner(registry).resting
    assert registry.known.loaded[0].view_source.feed.all() == events
    records = RecordService(registry.known)
    (record,) = await records.find("default", ["key-59"], min_offset=None, timeout_s=120)
    assert record is not None
    assert record.resolved.component in view.snapshot.ids.tolist()
    await eventually_async(lambda: learner(registry).resting)
    assert (await registry.snapshot("default", min_offset=None, timeout_s=120))[1].log_offset == 60
    await eventually_async(lambda: learner(registry).resting)
    await registry.create_or_change("default", {"max_components": 50})
    await final(registry)
    assert (await registry.view("default", timeout_s=120)).settings.max_components == 50  # type: ignore[union-attr]
    await eventually_async(lambda: learner(registry).resting)
    await registry.delete("default")
    with pytest.raises(UnknownStreamError):
        await registry.get("default")


@pytest.mark.parametrize("n", [80, longer(200)])
async def test_many_streams_share_a_few_threads_and_none_is_loaded_before_its_use(
    running: Any, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = running.begin(max_streams=400, stream_idle_s=1.0, checkpoint_interval_s=0.5)
    others = threading.active_count()
    assert n > pool.MOST_THREADS + 33, "more streams than threads that may be"
    names = [f"s{i}" for i in range(n)]
    await asyncio.gather(*(registry.create(name, {"n_features": 2}) for name in names))
    for part in range(2):
        receipts = await asyncio.gather(*(registry.ingest(name, rows(5, part)) for name in names))
        seen = await asyncio.gather(*(registry.wait_until_visible(receipt, 120) for receipt in receipts))
        assert all(seen)
        assert threading.active_count() <= others + pool.MOST_THREADS + 33, "asyncio has up to 32 of its own"
    await eventually_async(lambda: all(each.resting for each in registry.known.learners.values()))
    running.close()
    monkeypatch.setattr(known_streams, "LOADED_AT_START", 0)
    registry = running.begin(max_streams=400)
    listed, _ = await registry.list_page(None)
    assert {(info.status, info.tail.log_offset) for info in listed} == {("loading", 10)}
    assert all(each.resting for each in registry.known.learners.values())
    assert (await registry.view("s7", timeout_s=120)).points_seen == 10
    assert [name for name, each in registry.known.learners.items() if not each.resting] == ["s7"]
    assert await asyncio.to_thread(registry.known.close, 120)
    assert registry.known.drained


async def test_points_that_were_not_learnt_before_a_crash_are_learnt_without_being_asked_for(
    running: Any, monkeypatch: pytest.MonkeyPatch, final: Any
) -> None:
    registry = running.begin(checkpoint_interval_s=3600)
    for name in ("behind", "even"):
        await registry.create(name, {"n_features": 2})
        await registry.view(name, timeout_s=120)
    await registry.ingest("behind", rows(5, 0))
    await final(registry, "behind")
    running.drop()
    monkeypatch.setattr(known_streams, "LOADED_AT_START", 0)
    registry = running.begin()
    assert learner(registry, "even").resting
    await eventually_async(lambda: learner(registry, "behind").applied == 1)


# -- the threads


def test_a_task_has_one_turn_at_a_time_and_one_after_each_announcement() -> None:
    """Announcements from several threads, at any moment of a turn: the last one is always followed by a turn."""
    shared, n_tasks, rng = pool.LearnerPool(4), 20, np.random.default_rng(5)
    told, noticed, inside = [0] * n_tasks, [0] * n_tasks, [threading.Lock() for _ in range(n_tasks)]
    ending = threading.Event()
    tasks: list[pool.PooledTask] = []

    def turn(i: int) -> float | None:
        assert inside[i].acquire(blocking=False), "two turns at once"
        tasks[i].clear()
        noticed[i] = told[i]
        inside[i].release()
        return None if ending.is_set() else float("inf")

    tasks += [pool.PooledTask(shared, partial(turn, i)) for i in range(n_tasks)]
    for task in tasks:
        task.start()

    def tell(numbers: list[int]) -> None:
        for i in numbers:
            told[i] += 1
            tasks[i].set()

    tellers = [threading.Thread(target=tell, args=(part,)) for part in rng.integers(0, n_tasks, (5, 400)).tolist()]
    for teller in tellers:
        teller.start()
    for teller in tellers:
        teller.join()
    eventually(lambda: noticed == told, "an announcement without a turn")
    assert shared.n_threads <= 4
    ending.set()
    for task in tasks:
        task.set()
    assert all(task.join(120) for task in tasks)
    eventually(lambda: shared.n_threads == 0, "a thread outlives its tasks")


def test_turns_come_when_they_are_due_in_the_order_of_their_times() -> None:
    shared, order, due = pool.LearnerPool(1), list[int](), list[float]()
    waits = [0.3, 0.2, 0.1]

    def turn(i: int) -> float | None:
        order.append(i)
        if len(order) > len(waits):
            return None
        due.append(time.monotonic() + waits[i])  # on a busy machine a first turn may be later than another's second
        return waits[i]

    tasks = [pool.PooledTask(shared, partial(turn, i)) for i in range(3)]
    for task in tasks:
        task.start()
    assert all(task.join(120) for task in tasks)
    assert order[:3] == [0, 1, 2]
    assert order[3:] == sorted(range(3), key=due.__getitem__)


def test_turns_that_follow_one_another_begin_and_wake_no_other_thread() -> None:
    shared, threads = pool.LearnerPool(8), set[str]()
    most, left = 0, 200

    def turn() -> float | None:
        nonlocal most, left
        threads.add(threading.current_thread().name + str(threading.get_ident()))
        most, left = max(most, shared.n_threads), left - 1
        return 0.0 if left else None

    task = pool.PooledTask(shared, turn)
    task.start()
    assert task.join(120)
    assert (len(threads), most) == (1, 1)


def test_a_task_whose_next_turn_is_far_off_is_listed_once_however_many_turns_it_has() -> None:
    shared, turns = pool.LearnerPool(2), 0
    ending = threading.Event()

    def turn() -> float | None:
        nonlocal turns
        turns += 1
        return None if ending.is_set() else 3600.0 + turns

    task = pool.PooledTask(shared, turn)
    task.start()
    for n in range(1, 50):
        eventually(lambda n=n: turns >= n, "an announcement without a turn")  # type: ignore[misc]
        task.set()
    assert len(shared._later) <= 1
    ending.set()
    task.set()
    assert task.join(120)


def test_a_turn_comes_when_it_is_due_although_an_earlier_one_was_due_later_or_sooner() -> None:
    shared, waits = pool.LearnerPool(2), [0.2, 0.6, 0.3]
    began: list[float] = []
    announced = threading.Event()

    def turn() -> float | None:
        began.append(time.monotonic())
        if len(began) > len(waits):
            return None
        announced.set()
        return waits[len(began) - 1]

    task = pool.PooledTask(shared, turn)
    task.start()
    assert announced.wait(120)
    task.set()  # the second turn comes before the time that the first one gave
    assert task.join(120)
    assert len(began) == 4
    assert began[2] - began[1] >= 0.6 or began[1] - began[0] >= 0.2, "neither turn came before its time"
    assert began[3] - began[2] >= 0.3


def test_a_turn_that_dies_ends_its_task_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda died: None)
    shared = pool.LearnerPool(2)

    def dies() -> float:
        raise SystemExit

    one, other = pool.PooledTask(shared, dies), pool.PooledTask(shared, lambda: None)
    one.start()
    assert one.join(120)
    other.start()
    assert other.join(120)
