"""A restart at any moment, and whatever stood in the log: the state is the same to the bit."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from harness.short_form import longer
from shoal_service.store import Checkpoint, Entry, EntryKind
from shoal_service.streams.learner import apply, checkpoints, thread
from shoal_service.streams.monitor import encode_monitor
from shoal_service.wire import Points, from_log, to_log

pytestmark = pytest.mark.anyio

POISON = 66.0
SHORT = {"n_features": 3, "family": "gaussian", "warmup_points": 500, "refinement": None}
"""A stream whose family is given and whose fits are not searched: both take longer than all the rest."""
SETTINGS = pytest.mark.parametrize("settings", [SHORT, longer({"n_features": 3})], ids=["short", "default"])


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that fails on batches that begin with 66, after having spoilt half of the state."""
    learn = apply._batch

    def fails(state: Any, entry: Any, gathered: Any) -> Any:
        if from_log(entry.payload)[0, 0] != POISON:
            return learn(state, entry, gathered)
        for array in (state.location, state.scale, state.buffer, *(state.stats or ())):
            if array.size:
                array[...] = -1.0
        raise np.linalg.LinAlgError("not positive definite")

    monkeypatch.setattr(apply, "_batch", fails)


async def play(registry: Any, batches: list[Points], settings: dict[str, Any], between: Any = lambda n: None) -> None:
    """Batches with a change of settings, a poisoned batch, and a restore among them."""
    saved = b""
    await registry().create("default", settings)
    for n, points in enumerate(batches):
        await registry().ingest("default", points)
        if n == 5:
            await registry().ingest("default", Points(np.full((4, 3), POISON)))
        if n == 10:
            await (await registry().get("default")).change({"concentration": 2.5})
        if n == 20:
            _, checkpoint = await registry().snapshot("default", min_offset=await end(registry()), timeout_s=120)
            saved = checkpoint.blob
        if n == 28:
            await registry().restore("default", saved)
        between(n)


async def end(registry: Any) -> int:
    return int((await (await registry.get("default")).tail()).log_offset)


@SETTINGS
@pytest.mark.usefixtures("poisoned")
async def test_dropped_at_random_moments_it_ends_bit_identical(
    running: Any, batches: list[Points], final: Any, settings: dict[str, Any]
) -> None:
    rng = random.Random(4)
    running.begin(checkpoint_interval_s=3600)
    await play(lambda: running.registry, batches, settings)
    expected = await final(running.registry)
    view = await running.registry.view("default", timeout_s=120)
    running.drop()

    running.registry.known.close(120)
    other = type(running)(running.kind, running.folder / "stormy")
    other.begin(checkpoint_interval_s=0.05)
    drops = 0

    def between(n: int) -> None:
        nonlocal drops
        if rng.random() < 0.4:
            drops += 1
            (other.close if rng.random() < 0.3 else other.drop)()
            other.begin(checkpoint_interval_s=rng.choice([0.001, 0.05, 3600.0]))

    await play(lambda: other.registry, batches, settings, between)
    assert drops > 5
    assert await final(other.registry) == expected
    again = await other.registry.view("default", timeout_s=120)
    assert (again.log_offset, again.points_seen, again.seq) == (view.log_offset, view.points_seen, view.seq)
    assert again.snapshot is not None
    assert view.snapshot is not None
    np.testing.assert_array_equal(again.snapshot.masses, view.snapshot.masses)
    other.close()
    other.store.close()


@SETTINGS
@pytest.mark.usefixtures("poisoned")
async def test_a_replay_of_the_whole_log_gives_the_same(
    running: Any, batches: list[Points], final: Any, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    monkeypatch.setattr(checkpoints, "REPLAY_S", 3600.0)  # a replay on a busy machine is no reason for a checkpoint
    monkeypatch.setattr(checkpoints, "REPLAY_INTERVAL_S", 3600.0)
    running.begin(checkpoint_interval_s=3600)
    await play(lambda: running.registry, batches, settings)
    expected = await final(running.registry)
    running.drop()
    kept = running.store.load_checkpoints("default", (await running.begin().get("default")).record.incarnation)
    assert kept[-1].seq == 0, "nothing but its beginning is kept, and the dead letter's"
    assert await final(running.registry) == expected


@pytest.mark.parametrize("moments_begun", [(2,), longer(range(7))], ids=["one", "all"])
def test_a_replay_from_any_moment_chooses_the_same_family(moments_begun: Sequence[int]) -> None:
    """The automatic family is chosen within the fifth entry. State and monitor are the same to the bit, whichever
    checkpoint a replay starts from, and with one written and read again behind every second entry."""
    rng = np.random.default_rng(2)
    sizes = rng.integers(30, 110, size=8)
    x = rng.poisson(np.where(rng.random((sizes.sum(), 1)) < 0.5, [1.0, 20.0, 3.0], [9.0, 2.0, 3.0])).astype(float)
    settings = {"n_features": 3, "family": "auto", "warmup_points": 300}
    entries = [
        Entry(seq, int(ends), int(size), EntryKind.BATCH, to_log(Points(x[ends - size : ends])))
        for seq, (ends, size) in enumerate(zip(np.cumsum(sizes), sizes, strict=True), 1)
    ]
    entries.insert(3, Entry(0, 0, 0, EntryKind.SETTINGS, canonical(settings | {"concentration": 2.5})))
    working, moments = apply.begin(canonical(settings)), []
    for entry in entries:
        moments.append((apply.checkpoint_of(working), encode_monitor(working.monitor)))
        working, _ = apply.apply_inplace(working, entry)
    expected = apply.checkpoint_of(working)[2:], encode_monitor(working.monitor)
    assert working.state.settings.family == "poisson"
    for moment in moments_begun:
        working = apply.resume(*moments[moment])
        for entry in entries[moment:]:
            working, _ = apply.apply_inplace(working, entry)
            if entry.seq % 2:
                working = apply.resume(apply.checkpoint_of(working), encode_monitor(working.monitor))
        assert (apply.checkpoint_of(working)[2:], encode_monitor(working.monitor)) == expected, moment


def canonical(settings: dict[str, Any]) -> bytes:
    """The settings of a stream as its record and its log hold them."""
    from shoal.mixture import StreamSettings

    return StreamSettings.from_dict(settings).to_json().encode()


async def test_the_first_answer_after_a_restart_is_no_older_than_the_last_one_before(
    running: Any, batches: list[Points], final: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread, "REPLAY_WAIT_S", 120.0)  # a busy machine may take more than the five seconds
    running.begin(checkpoint_interval_s=3600)
    await running.registry.create("default", SHORT)
    for points in batches[:20]:
        await running.registry.ingest("default", points)
    await final(running.registry)
    before = await running.registry.view("default", timeout_s=120)
    running.drop()
    running.begin()
    again = await running.registry.view("default", timeout_s=120)
    assert (again.seq, again.log_offset) == (before.seq, before.log_offset)


async def test_cuts_of_the_stream_do_not_matter(running: Any, batches: list[Points], final: Any) -> None:
    running.begin()
    await running.registry.create("default", SHORT | {"refinement": "auto"})
    for points in batches:
        await running.registry.ingest("default", points)
    whole = Points(np.concatenate([points.x for points in batches]))
    stream, _ = await running.registry.create("whole", SHORT | {"refinement": "auto"})
    await stream.ingest(whole, None)
    assert await final(running.registry, "whole") == await final(running.registry)


async def test_a_change_of_settings_before_the_first_checkpoint_is_replayed(running: Any, final: Any) -> None:
    """The record holds the new settings at once; the stream began with the old ones."""
    running.begin(checkpoint_interval_s=3600)
    await running.registry.ingest("default", Points(np.zeros((3, 2))))
    stream = await running.registry.get("default")
    await stream.change({"half_life": 50.0})
    await running.registry.ingest("default", Points(np.ones((60, 2))))
    expected = await final(running.registry)
    running.drop()
    running.begin()
    assert await final(running.registry) == expected
    assert (await running.registry.get("default")).settings.half_life == 50.0


async def test_a_damaged_checkpoint_gives_way_to_the_older_one(
    running: Any, batches: list[Points], final: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.begin(checkpoint_points=200, checkpoint_interval_s=3600)
    await running.registry.create("default", SHORT)
    for points in batches:
        await running.registry.ingest("default", points)
    expected = await final(running.registry)
    running.drop()
    load = type(running.store).load_checkpoints

    def harmed(self: Any, *arguments: Any) -> list[Checkpoint]:
        first, *others = load(self, *arguments)
        assert others
        middle = len(first.blob) // 2
        return [first._replace(blob=first.blob[:middle] + b"harm" + first.blob[middle + 4 :]), *others]

    monkeypatch.setattr(type(running.store), "load_checkpoints", harmed)
    running.begin()
    assert await final(running.registry) == expected
    assert "checkpoint_damaged" in [line["event"] for line in running.log()]


async def test_without_a_readable_checkpoint_the_stream_says_so_and_invents_nothing(
    running: Any, batches: list[Points], final: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.begin(checkpoint_points=200, checkpoint_interval_s=3600)
    await running.registry.create("default", SHORT)
    for points in batches[:20]:
        await running.registry.ingest("default", points)
    await (await running.registry.get("default")).change({"concentration": 2.0})
    await final(running.registry)
    running.drop()
    monkeypatch.setattr(type(running.store), "load_checkpoints", lambda *_: [])
    running.begin()
    from shoal_service.errors import NotReadyError

    with pytest.raises(NotReadyError, match="no checkpoint of stream 'default' can be read"):
        await running.registry.view("default", timeout_s=120)
    running.registry.known.refuse_when_stopping()
    assert (await running.registry.describe("default")).status == "failed"
