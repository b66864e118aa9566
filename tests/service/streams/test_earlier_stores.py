"""Stores, snapshots and models that an earlier version wrote: they open, hold what they held, and go on to the bit."""

import asyncio
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from harness import earlier_stores
from harness.earlier_stores import STREAMS
from harness.redis_server import running_redis
from shoal import StreamingDPMixture
from shoal.mixture import from_bytes, to_bytes
from shoal.sequential import assimilate_inplace
from shoal_service.logs import make_log
from shoal_service.settings import Settings
from shoal_service.store import EntryKind, IdempotencyKey, SqliteStore, Store
from shoal_service.store.redis import RedisStore
from shoal_service.streams import Runtime
from shoal_service.streams.learner.checkpoints import unpack_checkpoint
from shoal_service.wire import Points, from_log, request_digest

pytestmark = pytest.mark.anyio


class Earlier(NamedTuple):
    """One store of one version, which can be opened again and again."""

    open: Callable[[], Store]
    contents: dict[str, Any]


@pytest.fixture(params=earlier_stores.versions())
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=pytest.mark.redis)])
def earlier(request: pytest.FixtureRequest, version: str, tmp_path: Path) -> Iterator[Earlier]:
    found = earlier_stores.contents(version)
    clock = lambda: found["written_at"] + 60.0  # noqa: E731  answers to idempotency keys are kept for a day
    if request.param == "sqlite":
        folder = earlier_stores.unpack_folder(version, tmp_path / "data")
        yield Earlier(lambda: SqliteStore(folder, clock=clock), found["sqlite"])
        return
    with running_redis(request.getfixturevalue("redis_binary"), tmp_path) as server:
        earlier_stores.load_keys(version, server, "kept")
        yield Earlier(lambda: RedisStore(server.url, prefix="kept", clock=clock), found["redis"])


def begin(store: Store, folder: Path) -> Runtime:
    kind = "sqlite" if isinstance(store, SqliteStore) else "redis"
    values: dict[str, Any] = {"store": kind, "data_dir": folder, "publish_interval_s": 0.0}
    runtime = Runtime(store, Settings(**values), make_log("debug", "json", io.StringIO()))
    runtime.start(answers=True)
    return runtime


def test_versions_are_kept() -> None:
    assert "0.1.0" in earlier_stores.versions()


def test_a_store_holds_what_was_written(earlier: Earlier) -> None:
    store = earlier.open()
    assert [record.name for record in store.list_streams()] == sorted(STREAMS)
    for stream, expected in earlier.contents.items():
        key = (stream, store.get_stream(stream).incarnation)
        assert key[1] == expected["incarnation"]
        tail = store.tail(*key)
        assert [tail.first_seq, tail.seq, tail.log_offset] == [
            expected[name] for name in ("first_seq", "last_seq", "log_offset")
        ]
        assert [[one.seq, one.log_offset] for one in store.load_checkpoints(*key)] == expected["checkpoints"]
        assert [[one.seq, one.reason] for one in store.dead_letters(*key)] == expected["dead_letters"]
        assert store.blob_keys(*key) == expected["blobs"]
        assert [job.id for job in store.jobs(*key)] == [one["id"] for one in expected["refinements"]]
        for blob in expected["blobs"]:
            assert store.get_blob(*key, blob)
        dead = {seq for seq, _ in expected["dead_letters"]}
        entries = store.read(*key, tail.first_seq - 1, max_bytes=1 << 30)
        assert [entry.seq for entry in entries] == list(range(tail.first_seq, tail.seq + 1))
        batches = [e for e in entries if e.kind is EntryKind.BATCH and e.seq not in dead]
        rows = np.concatenate([from_log(entry.payload) for entry in batches])
        np.testing.assert_array_equal(rows, earlier_stores.points(stream)[-len(rows) :])
    store.close()


async def test_it_goes_on_to_the_bits_of_a_replay_without_a_break(earlier: Earlier, tmp_path: Path) -> None:
    expected = {}
    store = earlier.open()
    for stream, contents in earlier.contents.items():
        key = (stream, contents["incarnation"])
        newest = store.load_checkpoints(*key)[0]
        state, _ = from_bytes(unpack_checkpoint(newest.blob).state)
        dead = store.dead_letter_reasons(*key).keys()
        entries = store.read(*key, newest.seq, max_bytes=1 << 30)
        assert entries, "some entries come after the newest checkpoint"
        rows = [from_log(e.payload) for e in entries if e.kind is EntryKind.BATCH and e.seq not in dead]
        for x in [*rows, earlier_stores.points(stream, 150, seed=1), earlier_stores.points(stream, 150, seed=2)]:
            state, _ = assimilate_inplace(state, x)
        expected[stream] = to_bytes(state)
    store.close()
    for seed in (1, 2):
        store = earlier.open()
        runtime = begin(store, tmp_path)
        for stream in STREAMS:
            _, refinements = await runtime.refinements.recent(stream)
            assert [(one.id, one.state, one.method, one.why) for one in refinements] == [
                tuple(one.values()) for one in earlier.contents[stream]["refinements"]
            ]
            receipt = await runtime.streams.ingest(stream, Points(earlier_stores.points(stream, 150, seed=seed)))
            assert await runtime.streams.wait_until_visible(receipt, 120)
            if seed == 2:
                _, checkpoint = await runtime.streams.snapshot(stream, min_offset=receipt.log_offset, timeout_s=120)
                assert checkpoint.blob == expected[stream]
        await asyncio.to_thread(runtime.close, 120)
        store.close()


async def test_a_retry_from_before_is_answered_as_then(earlier: Earlier, tmp_path: Path) -> None:
    store = earlier.open()
    runtime = begin(store, tmp_path)
    for stream, contents in earlier.contents.items():
        *_, (key, x) = earlier_stores.batches(stream)
        digest = request_digest(earlier_stores.body_of(x), "application/json", None)
        receipt = await runtime.streams.ingest(stream, Points(x), idempotency=IdempotencyKey(key, digest))
        assert receipt.replayed
        assert receipt.log_offset == contents["log_offset"]
    await asyncio.to_thread(runtime.close, 120)
    store.close()


async def test_a_snapshot_is_restored(version: str, tmp_path: Path) -> None:
    found = earlier_stores.contents(version)["sqlite"]
    files = earlier_stores.files(version, "models")
    store = SqliteStore(None)
    runtime = begin(store, tmp_path)
    for stream in STREAMS:
        blob = files[f"{stream}.shoal"]
        masses = {int(number): mass for number, mass in found[stream]["components"].items()}
        model = StreamingDPMixture.load(io.BytesIO(blob))
        assert dict(zip(model.component_ids_.tolist(), model.masses_.tolist(), strict=True)) == masses
        receipt = await runtime.streams.restore(stream, blob)
        assert await runtime.streams.wait_until_visible(receipt, 120)
        view = await runtime.streams.view(stream, timeout_s=120)
        assert view.snapshot is not None
        assert dict(zip(view.snapshot.ids.tolist(), view.snapshot.masses.tolist(), strict=True)) == masses
    await asyncio.to_thread(runtime.close, 120)
    store.close()


def test_a_model_of_the_library_learns_on(version: str) -> None:
    files = earlier_stores.files(version, "models")
    for stream in STREAMS:
        x = earlier_stores.points(stream)
        half = len(x) // 2
        straight, broken = (StreamingDPMixture.load(io.BytesIO(files[f"{stream}.model"])) for _ in range(2))
        assert straight.masses_.sum() == pytest.approx(half, rel=1e-12)
        for start in range(half, len(x), 100):
            straight.partial_fit(x[start : start + 100])
            file = io.BytesIO()
            broken.save(file)
            broken = StreamingDPMixture.load(io.BytesIO(file.getvalue()))
            broken.partial_fit(x[start : start + 100])
        np.testing.assert_array_equal(straight.component_ids_, broken.component_ids_)
        np.testing.assert_array_equal(straight.masses_, broken.masses_)
        np.testing.assert_array_equal(straight.means_, broken.means_)
    model = StreamingDPMixture.load(io.BytesIO(files["plane.model"]))
    assert model.refine().window_rows > 0, "the rows of its window came along"
