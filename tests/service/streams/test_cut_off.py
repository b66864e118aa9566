"""Requests cut off half-way, and streams that go while somebody looks: what is durable is what is told."""

import asyncio
import json
import threading
from typing import Any

import numpy as np
import pytest

from shoal_service.errors import UnknownStreamError
from shoal_service.store import EntryKind, NewEntry
from shoal_service.streams import stream as stream_module
from shoal_service.wire import Points

pytestmark = pytest.mark.anyio


def batch(n: int = 30) -> Points:
    return Points(np.random.default_rng(0).normal(size=(n, 2)))


async def test_a_change_whose_request_is_cut_off_is_neither_lost_nor_undone_by_the_next(
    running: Any, monkeypatch: pytest.MonkeyPatch, final: Any
) -> None:
    registry = running.begin()
    stream, _ = await registry.create("s", {"n_features": 2, "concentration": 1.0})
    await stream.view(None, 20)
    durable = stream_module._durable
    begun, go = asyncio.Event(), asyncio.Event()

    async def slow(future: Any) -> Any:
        answer = await durable(future)
        begun.set()
        await go.wait()
        return answer

    monkeypatch.setattr(stream_module, "_durable", slow)
    request = asyncio.create_task(registry.create_or_change("s", {"concentration": 5.0}))
    await asyncio.wait_for(begun.wait(), 120)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    go.set()
    await registry.create_or_change("s", {"birth_threshold": 0.25})
    stored = running.store.get_stream("s").settings.decode()
    assert (stream.settings.concentration, stream.settings.birth_threshold) == (5.0, 0.25)
    assert stored == stream.settings.to_json() == stream.record.settings.decode()
    await stream.ingest(batch(), None)
    await final(registry, "s")
    view = await registry.view("s", timeout_s=120)
    assert view.snapshot.settings.concentration == 5.0


async def test_a_look_that_began_before_a_change_of_settings_does_not_bring_the_earlier_ones_back(
    running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of the streams that was slow used to undo the change for the batches of this process that followed."""
    registry = running.begin()
    stream, _ = await registry.create("s", {"n_features": 2})
    get_stream, asked, go = type(running.store).get_stream, threading.Event(), threading.Event()

    def slow(self: Any, name: str) -> Any:
        found = get_stream(self, name)
        if not asked.is_set():
            asked.set()
            assert go.wait(120)
        return found

    monkeypatch.setattr(type(running.store), "get_stream", slow)
    listing = asyncio.create_task(registry.list_page(None))
    await asyncio.to_thread(asked.wait, 120)
    await registry.create_or_change("s", {"birth_threshold": 0.25})
    go.set()
    ((info,), _) = await listing
    assert stream.settings.birth_threshold == info.settings.birth_threshold == 0.25
    assert stream.record.settings.decode() == stream.settings.to_json()


async def test_a_change_whose_answer_is_late_does_not_undo_a_later_one_that_is_known_already(
    running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = running.begin()
    stream, _ = await registry.create("s", {"n_features": 2})
    await stream.view(None, 20)
    durable, late = stream_module._durable, []

    async def slow(future: Any) -> Any:
        answer = await durable(future)
        if not late:
            late.append(True)  # another process changes the settings once more, and this one learns of it
            settings = json.loads(running.store.get_stream("s").settings) | {"birth_threshold": 0.125}
            payload = type(stream.settings).from_dict(settings).to_json().encode()
            entry = NewEntry(EntryKind.SETTINGS, payload, settings=payload)
            running.store.append("s", stream.record.incarnation, entry, budget_bytes=1 << 40).result(120)
            await stream.refresh()
        return answer

    monkeypatch.setattr(stream_module, "_durable", slow)
    await registry.create_or_change("s", {"concentration": 5.0})
    assert (stream.settings.concentration, stream.settings.birth_threshold) == (5.0, 0.125)
    assert stream.record.settings == running.store.get_stream("s").settings


async def test_a_look_that_began_before_a_stream_was_made_again_finds_the_new_one(
    running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = running.begin()
    await registry.create("s", {"n_features": 2})
    registry.known.forget(registry.known.loaded[0])  # as after a start elsewhere: known to the store alone
    get_stream, asked, go = type(running.store).get_stream, threading.Event(), threading.Event()

    def slow(self: Any, name: str) -> Any:
        record = get_stream(self, name)
        asked.set()
        assert go.wait(120)
        return record

    with monkeypatch.context() as patched:
        patched.setattr(type(running.store), "get_stream", slow)
        looking = asyncio.create_task(registry.get("s"))
        await asyncio.to_thread(asked.wait, 120)
        running.store.delete_stream("s")
        again, created = await registry.create("s", {"n_features": 3})
        assert created
        go.set()
        assert await looking is again
    assert (await registry.describe("s")).settings.n_features == 3


@pytest.mark.parametrize("verb", ["view", "describe", "snapshot", "change"])
async def test_a_stream_made_again_behind_our_back_is_found_by_whoever_asks(running: Any, verb: str) -> None:
    registry = running.begin()
    old, _ = await registry.create("s", {"n_features": 2})
    running.store.delete_stream("s")
    running.store.create_stream("s", "another", old.record.settings, max_streams=9)
    ask = {
        "view": lambda: registry.view("s", min_offset=0, timeout_s=120),
        "describe": lambda: registry.describe("s"),
        "snapshot": lambda: registry.snapshot("s", min_offset=None, timeout_s=120),
        "change": lambda: registry.create_or_change("s", {"concentration": 3.0}),
    }[verb]
    if verb == "view":
        while not old.view_source.join(0.01):
            await asyncio.sleep(0.01)
        old.view_source.board._view = None  # a reader of the last view of all is served from memory
    await ask()
    if verb != "view":
        assert registry.known.loaded[0].record.incarnation == "another"


async def test_a_stream_that_another_process_deleted_is_unknown(running: Any) -> None:
    registry = running.begin()
    await registry.create("s", {"n_features": 2})
    running.store.delete_stream("s")
    with pytest.raises(UnknownStreamError):
        await registry.describe("s")
    assert registry.known.loaded == []
