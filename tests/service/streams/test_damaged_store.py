"""A store with a flipped byte: the learner learns what is whole, and stops with the entry that is not."""

from pathlib import Path
from typing import Any

import pytest

from harness.waiting import eventually_async
from shoal_service.errors import LearnerStoppedError
from shoal_service.store import SqliteStore
from shoal_service.wire import Points, to_log

pytestmark = pytest.mark.anyio


def flip_within(path: Path, part: bytes) -> None:
    data = bytearray(path.read_bytes())
    at = bytes(data).find(part)
    assert at >= 0
    data[at + len(part) // 2] ^= 0x10
    path.write_bytes(data)


async def stopped(registry: Any) -> Any:
    """The stream, once its learner has stopped."""
    stream = await registry.get("default")
    stream.view_source.start()
    await eventually_async(lambda: stream.view_source.failure is not None, "the learner runs")
    return stream


@pytest.mark.parametrize("file", ["shoal.sqlite3", "shoal.sqlite3-wal"])
async def test_what_is_whole_is_learnt_and_the_damage_is_said(
    running: Any, batches: list[Points], final: Any, file: str, tmp_path: Path
) -> None:
    running.begin(checkpoint_interval_s=3600)
    await running.registry.create(
        "default", {"n_features": 3, "family": "gaussian", "warmup_points": 500, "refinement": None}
    )
    for points in batches:
        await running.registry.ingest("default", points)
    saved = await final(running.registry)
    damaged = tmp_path / file
    for stream in running.registry.known.loaded:
        stream.view_source.abandon()
        assert stream.view_source.join(120)
    if file.endswith("wal"):
        copies = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}  # as a crash leaves them
        running.store.close()
        for path, data in copies.items():
            path.write_bytes(data)
    else:
        running.store.close()
    flip_within(damaged, to_log(batches[30]))
    running.store = SqliteStore(tmp_path)
    running.begin(checkpoint_interval_s=3600)
    stream = await stopped(running.registry)
    said = "entry 31 is missing" if file == "shoal.sqlite3" else "ends at entry 30, but entry 40 was acknowledged"
    assert said in stream.view_source.failure
    with pytest.raises(LearnerStoppedError, match=said):
        await stream.snapshot(5)
    view = stream.view_source.board.view
    assert view.seq == 30
    assert view.log_offset == sum(len(points.x) for points in batches[:30])
    with pytest.raises(LearnerStoppedError, match="delete the stream first"):  # its entry would never be reached
        await running.registry.restore("default", saved)
    await running.registry.delete("default")
    await running.registry.restore("default", saved)
    await final(running.registry)
    view = (await running.registry.get("default")).view_source.board.view
    assert view.points_seen == sum(len(points.x) for points in batches)
