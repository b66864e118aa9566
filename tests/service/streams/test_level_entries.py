"""Names of levels in the log: an entry holds the new ones, and entries of earlier versions give the same state."""

import json
from typing import Any

import numpy as np
import pytest

from shoal.errors import SettingError
from shoal.mixture import StreamSettings
from shoal_service.store import Entry, EntryKind
from shoal_service.streams.learner import apply
from shoal_service.streams.level_names import added_names, settings_after
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
