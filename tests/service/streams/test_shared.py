"""A process that answers and one that learns, over one real Redis, both in this process: what passes between them."""

import ast
import asyncio
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.redis_server import RedisServer, running_redis
from harness.short_form import longer
from harness.stream_process import StreamProcess
from harness.waiting import eventually_async
from shoal_service.errors import (
    DeadLetteredError,
    SettingsMovedError,
    StoreUnavailableError,
    StreamGoneError,
    UnknownStreamError,
)
from shoal_service.store import IdempotencyKey, NewEntry
from shoal_service.streams import EventPlace
from shoal_service.streams.learner import apply
from shoal_service.wire import Points, from_log

pytestmark = [pytest.mark.anyio, pytest.mark.redis]


@pytest.fixture(scope="module")
def server(redis_binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running_redis(redis_binary, tmp_path_factory.mktemp("redis")) as started:
        yield started


@pytest.fixture
def begin(server: RedisServer, tmp_path: Path) -> Iterator[Callable[..., StreamProcess]]:
    prefix = f"test-{uuid.uuid4().hex}"
    with ExitStack() as stack:

        def start(role: str, **settings: Any) -> StreamProcess:
            process = StreamProcess(server, prefix, role, data_dir=tmp_path, **settings)
            stack.callback(process.end)
            return process

        start.prefix = prefix  # type: ignore[attr-defined]
        yield start


def batch(first: float, n: int = 30) -> Points:
    x = np.random.default_rng(int(abs(first))).normal(size=(n, 2))
    x[0, 0] = first
    return Points(x)


async def test_labels_come_with_the_wait_and_later_once_more_but_not_from_another_learners_time(begin: Any) -> None:
    api, learner = begin("api"), begin("learner")
    key = IdempotencyKey("k", b"d" * 32)
    receipt = await api.streams.ingest("default", batch(1.0), idempotency=key)
    labels = await api.streams.learnt_rows(receipt, 120)
    assert labels is not None
    assert labels.shape == (30,)
    again = await api.streams.ingest("default", batch(1.0), idempotency=key)
    assert again.replayed
    np.testing.assert_array_equal((await api.streams.learnt_rows(again, 120))["component"], labels["component"])
    later = await api.streams.ingest("default", batch(2.0))
    assert await api.streams.wait_until_visible(later, 120)
    await asyncio.to_thread(learner.end)
    begin("learner")
    async with asyncio.timeout(120):  # it is told so, and does not wait in vain
        assert await api.streams.learnt_rows(later, 600) is None, "nobody waited for them, and who knew them has ended"


async def test_what_two_processes_change_in_the_same_instant_both_stands(begin: Any) -> None:
    here, there, _ = begin("api"), begin("api"), begin("learner")
    await here.streams.ingest("default", batch(1.0))
    await there.streams.view("default", min_offset=30, timeout_s=120)
    for n in range(2, 22):
        await asyncio.gather(
            here.streams.create_or_change("default", {"concentration": float(n)}),
            there.streams.create_or_change("default", {"half_life": 1000.0 + n}),
        )
        for process in (here, there):
            spec = (await process.streams.describe("default")).settings
            assert (spec.concentration, spec.half_life) == (n, 1000.0 + n)
    assert (await here.streams.describe("default")).tail.seq == 41, "each change is one entry of the log"


async def test_changes_that_others_overtake_for_ever_are_given_up(begin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    api, _ = begin("api"), begin("learner")
    await api.streams.ingest("default", batch(1.0))
    append, tries = api.store.append, []

    def overtaken(name: str, incarnation: str, entry: NewEntry, **options: Any) -> Any:
        tries.append(entry.expected_settings)
        return append(name, incarnation, entry._replace(expected_settings=b"what nobody has"), **options)

    monkeypatch.setattr(api.store, "append", overtaken)
    with pytest.raises(SettingsMovedError) as refusal:
        await api.streams.create_or_change("default", {"concentration": 2.0})
    assert refusal.value.retryable
    assert 10 < len(tries) < 100
    assert set(tries) == {api.store.get_stream("default").settings}


async def test_what_was_learnt_is_shown_without_any_learner(begin: Any, server: RedisServer) -> None:
    first, learner = begin("api"), begin("learner")
    receipt = await first.streams.ingest("default", batch(1.0))
    assert await first.streams.wait_until_visible(receipt, 120)
    saved = await first.streams.snapshot("default", min_offset=30, timeout_s=120)
    await asyncio.to_thread(learner.end)
    with server.client() as client:
        for key in client.scan_iter("*:view"):
            client.delete(key)  # as a restart of the server does
    second = begin("api")
    view = await second.streams.view("default", timeout_s=120)
    assert (view.log_offset, view.points_seen) == (30, 30)
    again = await second.streams.snapshot("default", min_offset=None, timeout_s=120)
    assert again[1].blob == saved[1].blob
    assert await second.streams.wait_until_visible(await second.streams.ingest("default", batch(2.0)), 0.2) is False
    assert (await second.streams.view("default", timeout_s=120)).log_offset == 30


async def test_a_view_that_the_server_has_lost_is_shown_again(begin: Any, server: RedisServer) -> None:
    api, _ = begin("api"), begin("learner")
    receipt = await api.streams.ingest("default", batch(1.0))
    assert await api.streams.wait_until_visible(receipt, 120)
    with server.client() as client:
        (key,) = client.scan_iter(f"*{receipt.incarnation}}}:view")
        client.delete(key)
        await eventually_async(lambda: bool(client.exists(key)))


async def test_a_view_without_new_events_tells_that_there_are_none(begin: Any) -> None:
    """`GET /events?follow=false` waited for ever for the events of a batch that had none."""
    api, _ = begin("api"), begin("learner")
    for n in range(1, 4):
        receipt = await api.streams.ingest("default", batch(float(n)))
        view = await api.streams.view("default", min_offset=receipt.log_offset, timeout_s=120)
        assert (await api.streams.get("default")).view_source.feed.end == EventPlace(view.seq + 1, 0)


async def test_a_dead_letter_and_a_stream_that_ends_are_told_across(
    begin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn = apply._batch

    def fails(state: Any, entry: Any, *others: Any) -> Any:
        if from_log(entry.payload)[0, 0] == 66.0:
            raise RuntimeError("cannot take this")
        return learn(state, entry, *others)

    monkeypatch.setattr(apply, "_batch", fails)
    api, other, _ = begin("api"), begin("api"), begin("learner")
    await api.streams.ingest("default", batch(1.0))
    bad = await api.streams.ingest("default", batch(66.0))
    with pytest.raises(DeadLetteredError, match="cannot take this"):
        await api.streams.learnt_rows(bad, 120)
    view = await other.streams.view("default", min_offset=60, timeout_s=120)
    assert (view.log_offset, view.points_seen) == (60, 30)
    waiting = asyncio.create_task(other.streams.wait_until_visible(bad._replace(seq=99), 120))
    await asyncio.sleep(0.1)
    await api.streams.delete("default")
    with pytest.raises(StreamGoneError):
        await waiting
    assert (await other.streams.view("default", timeout_s=120)).status == "empty"


async def test_a_learner_that_has_stopped_is_said_to_have_and_another_try_puts_it_right(
    begin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, learner = begin("api"), begin("learner")
    receipt = await api.streams.ingest("default", batch(1.0))
    assert await api.streams.wait_until_visible(receipt, 120)
    broken = RuntimeError("this machine is broken")

    def breaks(*_: Any, **__: Any) -> Any:
        raise broken

    with monkeypatch.context() as patched:
        patched.setattr(type(learner.store), "read", breaks)
        await api.streams.ingest("default", batch(2.0))
        (stream,) = api.streams.known.loaded
        await eventually_async(lambda: stream.view_source.failure is not None)
        assert (await api.streams.describe("default")).status == "failed"
        assert (await api.streams.view("default", timeout_s=120)).log_offset == 30, "what there is can be read"
    await eventually_async(lambda: stream.view_source.failure is None)
    assert (await api.streams.view("default", min_offset=60, timeout_s=120)).points_seen == 60
    assert "learner_halted" in learner.events()


BEGINS = """
import sys, threading
from shoal_service.logs import make_log
from shoal_service.settings import Settings
from shoal_service.store.redis import RedisStore
from shoal_service.streams import Runtime

url, prefix, role, folder = sys.argv[1:]
store = RedisStore(url, prefix=prefix)
runtime = Runtime(store, Settings(store="redis", role=role, data_dir=folder), make_log("error", "json", sys.stderr))
start, begun = threading.Thread.start, []

def watched(thread):
    begun.append((thread.name, "numba.core.extending" in sys.modules and "shoal.refinement" in sys.modules))
    start(thread)

assert "numba" not in sys.modules
threading.Thread.start = watched
runtime.start(answers=role in ("all", "api"))
threading.Thread.start = start
print(begun)
runtime.close(120)
store.close()
"""


@pytest.mark.parametrize("role", ["all", longer("api"), longer("learner"), longer("refiner")])
async def test_no_thread_is_started_before_the_engines_are_loaded_or_two_could_load_them_at_once(
    begin: Any, server: RedisServer, role: str, tmp_path: Path
) -> None:
    api, learner = begin("api"), begin("learner")
    receipt = await api.streams.ingest("default", batch(1.0))
    assert await api.streams.wait_until_visible(receipt, 120)
    await asyncio.to_thread(learner.end)
    arguments = [server.url, begin.prefix, role, str(tmp_path)]
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", BEGINS, *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    begun = ast.literal_eval(done.stdout)
    assert begun, "it starts threads"
    assert [name for name, loaded in begun if not loaded] == []


async def test_a_replica_whose_update_fails_while_another_is_due_is_updated_again(
    begin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, _ = begin("api"), begin("learner")
    receipt = await api.streams.ingest("default", batch(1.0))
    assert await api.streams.wait_until_visible(receipt, 120)
    (stream,) = api.streams.known.loaded
    replica, manager = stream.view_source, api.runtime.replicas
    failed = threading.Event()

    def fail() -> None:
        manager.update_soon(replica)  # as a notice that comes meanwhile
        failed.set()
        raise StoreUnavailableError("the reply was lost")

    with monkeypatch.context() as patch:
        patch.setattr(replica, "update", fail)
        manager.update_soon(replica)
        assert await asyncio.to_thread(failed.wait, 120)
    later = await api.streams.ingest("default", batch(2.0))
    assert await api.streams.wait_until_visible(later, 120)


async def test_a_process_that_is_not_told_yet_takes_a_deleted_stream_for_one_that_does_not_exist(
    begin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a moment it refused to create it again: "the stream was deleted; create it again"."""
    here, there, _ = begin("api"), begin("api"), begin("learner")

    async def deleted_here() -> None:
        await here.streams.create("sea", {"n_features": 2})
        await there.streams.view("sea", timeout_s=120)
        monkeypatch.setattr((await there.streams.get("sea")).view_source, "update", lambda: None)
        await here.streams.delete("sea")

    await deleted_here()
    with pytest.raises(UnknownStreamError):
        await there.streams.describe("sea")
    await deleted_here()
    assert (await there.streams.create_or_change("sea", {"n_features": 3}))[1]
    await there.streams.delete("sea")
    await deleted_here()
    receipt = await there.streams.ingest("sea", batch(1.0), create=True)
    assert (receipt.stream, receipt.log_offset) == ("sea", 30)


async def test_changes_are_listed_since_an_event_that_another_process_showed_first(
    begin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was refused as one that is not known any more."""
    here, there, _ = begin("api"), begin("api"), begin("learner")
    await here.streams.ingest("default", batch(1.0))
    await there.streams.view("default", min_offset=30, timeout_s=120)
    replica = (await there.streams.get("default")).view_source
    update = replica.update
    monkeypatch.setattr(replica, "update", lambda: None)
    await here.streams.ingest("default", batch(500.0))
    view = await here.streams.view("default", min_offset=60, timeout_s=120)
    asked = there.runtime.records.changed_since(
        "default", EventPlace(view.seq, 0), 10, None, min_offset=None, timeout_s=120
    )
    answer = asyncio.create_task(asked)
    await asyncio.sleep(0.05)
    monkeypatch.setattr(replica, "update", update)
    assert await answer == ([], None)
