"""Names of levels in the log: an entry holds the new ones, and entries of earlier versions give the same state."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from shoal.errors import SettingError
from shoal.mixture import StreamSettings, from_bytes
from shoal_service.refining import rows_of
from shoal_service.settings import Settings
from shoal_service.store import Entry, EntryKind
from shoal_service.streams.learner import apply
from shoal_service.streams.names import added_names, settings_after
from shoal_service.streams.stream import Stream
from shoal_service.wire import Points

pytestmark = [pytest.mark.anyio]
SETTINGS = {"n_features": 2, "family": {"0": "gaussian", "1": "categorical"}, "warmup_points": 20}


def points(texts: list[str]) -> Points:
    words = tuple(dict.fromkeys(texts))
    x = np.column_stack([np.arange(len(texts)) % 2 * 9.0, [words.index(text) for text in texts]])
    return Points(x.astype(float), texts=((1, words),))


async def test_each_entry_holds_only_new_names_and_entries_of_earlier_versions_give_the_same_state(
    running: Any, final: Any
) -> None:
    registry = running.begin(checkpoint_interval_s=3600)
    await registry.create("s", SETTINGS)
    stream = await registry.get("s")
    for start in range(0, 400, 10):
        await stream.ingest(points([f"host-{i}" for i in range(start, start + 10)] * 2), None)
    learnt = await final(registry, "s")
    log = list(running.store.read("s", stream.record.incarnation, 0, max_bytes=1 << 30))
    named = [entry for entry in log if entry.kind is EntryKind.SETTINGS]
    assert len(named) == 40
    assert max(len(entry.payload) for entry in named) < 250, "the last one as short as the first"
    assert b"host-0" not in named[-1].payload

    early = apply.begin(StreamSettings.from_dict(SETTINGS).to_json().encode())
    names: list[str] = []
    for entry in log:
        if entry.kind is EntryKind.SETTINGS:  # as earlier versions wrote it
            names += json.loads(entry.payload)["added_level_names"]["1"]["names"]
            settings = early.state.settings.with_changes(level_names={1: tuple(names)})
            entry = entry._replace(payload=settings.to_json().encode())
        early, _ = apply.apply_inplace(early, entry)
    assert apply.checkpoint_of(early).blob == apply.checkpoint_of(replayed(log)).blob == learnt
    assert early.state.settings.level_names == {1: tuple(f"host-{i}" for i in range(400))}


def replayed(log: list[Entry]) -> apply.WorkingState:
    working = apply.begin(StreamSettings.from_dict(SETTINGS).to_json().encode())
    for entry in log:
        working, _ = apply.apply_inplace(working, entry)
    return working


def test_names_that_do_not_follow_those_before_are_refused() -> None:
    before = StreamSettings.from_dict(SETTINGS)
    one, two = before.with_changes(level_names={1: ("a",)}), before.with_changes(level_names={1: ("a", "b")})
    assert settings_after(added_names(one, two), one) == two
    assert settings_after(added_names(before, two), before) == two
    with pytest.raises(SettingError, match="follow 1 names, and the stream has 0"):
        settings_after(added_names(one, two), before)


@pytest.mark.parametrize("running", ["memory"], indirect=True)
async def test_names_that_could_not_be_added_leave_the_record(
    running: Any, final: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("no")

    registry = running.begin()
    await registry.create("s", SETTINGS)
    stream = await registry.get("s")
    await stream.ingest(points(["a"]), None)
    await final(registry, "s")
    with monkeypatch.context() as patched:
        patched.setitem(apply._APPLY, EntryKind.SETTINGS, fails)
        await stream.ingest(points(["b"]), None)
        await final(registry, "s")
    assert (await registry.describe("s")).settings.level_names is None, "a replay has refused both"
    await stream.ingest(points(["c"]), None)
    await final(registry, "s")
    assert (await registry.describe("s")).settings.level_names == {1: ("c",)}
    view = await registry.view("s", timeout_s=120)
    assert view.snapshot is not None
    assert view.snapshot.settings.level_names == {1: ("c",)}


def as_another_process(running: Any, stream: Stream) -> Stream:
    return Stream(running.store, stream.record, Settings(), stream.view_source)


def late(stream: Stream, change: Callable[[], Awaitable[Any]]) -> None:
    """Let a change come after the next batch was turned into numbers, and before it is in the log."""
    append = stream.append_batch

    async def changed_first(*args: Any) -> Any:
        stream.append_batch = append  # type: ignore[method-assign]
        await change()
        return await append(*args)

    stream.append_batch = changed_first  # type: ignore[method-assign]


@pytest.mark.parametrize("elsewhere", [False, True], ids=["this process", "another process"])
@pytest.mark.parametrize("new", [False, True], ids=["known levels", "new levels"])
async def test_texts_are_numbered_by_the_names_at_their_place_in_the_log(
    running: Any, final: Any, elsewhere: bool, new: bool
) -> None:
    registry = running.begin()
    await registry.create("other", SETTINGS)
    await registry.ingest("other", points(["b", "a"]))
    snapshot = await final(registry, "other")
    restored = from_bytes(snapshot)[0].settings
    await registry.create("s", SETTINGS)
    stream = await registry.get("s")
    await stream.ingest(points(["a", "b"]), None)
    quick = as_another_process(running, stream) if elsewhere else stream
    late(stream, lambda: quick.restore(snapshot, restored, None))
    sent = ["a", "c", "b"] if new else ["a", "a", "b"]
    await stream.ingest(points(sent), None)

    working, texts = apply.begin(StreamSettings.from_dict(SETTINGS).to_json().encode()), []
    log = list(running.store.read("s", stream.record.incarnation, 0, max_bytes=1 << 30))
    for entry in log:
        working, _ = apply.apply_inplace(working, entry)
        if entry.kind is EntryKind.BATCH:
            names = (working.state.settings.level_names or {})[1]
            texts.append([names[int(number)] for number in rows_of(entry.payload)[:, 1]])
    assert texts == [["a", "b"], sent]
    assert (working.state.settings.level_names or {})[1][:2] == ("b", "a"), "the restore came first"
    assert running.store.get_stream("s").settings == working.state.settings.to_json().encode()


@pytest.mark.parametrize("elsewhere", [False, True], ids=["this process", "another process"])
async def test_columns_are_ordered_by_the_names_at_their_place_in_the_log(running: Any, elsewhere: bool) -> None:
    registry = running.begin()
    await registry.create("s", {"n_features": 2, "feature_names": ["x", "y"]})
    stream = await registry.get("s")
    quick = as_another_process(running, stream) if elsewhere else stream
    late(stream, lambda: quick.change({"feature_names": ["y", "x"]}))
    await stream.ingest(Points(np.array([[1.0, 2.0]]), names=("y", "x")), None)
    log = list(running.store.read("s", stream.record.incarnation, 0, max_bytes=1 << 30))
    assert [entry.kind for entry in log] == [EntryKind.SETTINGS, EntryKind.BATCH]
    assert rows_of(log[1].payload).tolist() == [[1.0, 2.0]]
