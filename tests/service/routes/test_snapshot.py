"""GET and PUT /snapshot: a state as a file, and back as an entry of the log."""

import asyncio
import io
from typing import Any

import numpy as np
import pytest

from shoal import StreamingDPMixture
from shoal.mixture import from_bytes
from shoal_service.refining import child
from shoal_service.streams.refinement import process

pytestmark = pytest.mark.anyio
ON_MEMORY = pytest.mark.parametrize("store_kind", ["memory"])

FILE = {"Content-Type": "application/octet-stream"}


async def test_the_file_is_the_librarys_own(running: Any, clusters: np.ndarray) -> None:
    await running.learn(clusters)
    reply = await running.http.get("/snapshot")
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "application/vnd.shoal.snapshot"
    assert reply.headers["content-disposition"] == 'attachment; filename="default-600.shoal"'
    assert reply.headers["etag"]
    state, window = from_bytes(reply.content)
    assert state.points_seen == 600
    assert window is None


async def test_a_restore_brings_the_state_back_and_offsets_go_on(running: Any, clusters: np.ndarray) -> None:
    await running.learn(clusters[:300])
    saved = (await running.http.get("/snapshot")).content
    before = (await running.json("/components"))["components"]
    await running.learn(clusters[300:])
    reply = await running.http.put("/snapshot", content=saved, headers=FILE)
    assert reply.status_code == 200
    answer = reply.json()
    assert answer == {
        "stream": "default", "incarnation": answer["incarnation"], "log_offset": 600, "restored": True,
    }  # fmt: skip
    view = await running.json("/components")
    assert view["components"] == before
    assert (view["log_offset"], view["points_seen"]) == (600, 300)
    more = await running.learn(clusters[:10])
    assert more["log_offset"] == 610
    view = await running.json("/components", min_offset=610)
    assert (view["log_offset"], view["points_seen"]) == (610, 310)


async def test_ids_given_out_before_a_restore_are_never_given_out_again(running: Any) -> None:
    prior = {"mean": [0.0], "mean_strength": 1e-7, "dof": 5.0, "scale": [[5.0]]}
    await running.http.put("/streams/line", json={"n_features": 1, "prior": prior})
    path = "/streams/line"
    await running.learn([[0.0]], f"{path}/ingest")
    saved = (await running.http.get(f"{path}/snapshot")).content
    given = (await running.learn([[1e4], [2e4], [3e4]], f"{path}/ingest"))["components"]
    assert len(set(given)) == 3
    await running.http.put(f"{path}/snapshot", content=saved, headers=FILE)
    new = (await running.learn([[-1e4]], f"{path}/ingest"))["components"][0]
    assert new > max(given)


async def test_a_stream_that_is_not_there_is_made_by_a_restore(running: Any, clusters: np.ndarray) -> None:
    await running.http.put("/streams/one", json={"n_features": 2, "concentration": 3.0})
    await running.learn(clusters, "/streams/one/ingest")
    saved = (await running.http.get("/streams/one/snapshot")).content
    reply = await running.http.put("/streams/two/snapshot", content=saved, headers=FILE)
    assert reply.status_code == 200
    one, two = [await running.json(f"/streams/{name}/components") for name in ("one", "two")]
    assert one["components"] == two["components"]
    assert one["incarnation"] != two["incarnation"]
    assert (await running.json("/streams/two"))["settings"]["concentration"] == 3.0
    assert two["log_offset"] == 0
    assert two["points_seen"] == 600


async def test_a_restored_stream_learns_as_the_saved_one_would_have(running: Any, clusters: np.ndarray) -> None:
    await running.learn(clusters[:250])
    saved = (await running.http.get("/snapshot")).content
    await running.http.put("/streams/copy/snapshot", content=saved, headers=FILE)
    await running.learn(clusters[250:])
    await running.learn(clusters[250:], "/streams/copy/ingest")
    # To the last digit what readers see; the states themselves differ in where their windows begin.
    whole, copy = [await running.json(f"{path}/components", fields="covariance") for path in ("", "/streams/copy")]
    assert whole["components"] == copy["components"]
    assert whole["points_seen"] == copy["points_seen"] == len(clusters)


@ON_MEMORY
async def test_a_snapshot_of_another_shape_is_a_conflict(running: Any) -> None:
    await running.learn([[0.0, 0.0]])
    await running.http.put("/streams/three", json={"n_features": 3})
    saved = (await running.http.get("/snapshot")).content
    before = running.tails()
    reply = await running.http.put("/streams/three/snapshot", content=saved, headers=FILE)
    assert reply.status_code == 409
    assert reply.json()["type"] == "/problems/stream-conflict"
    assert running.tails() == before


@ON_MEMORY
async def test_a_stream_of_an_automatic_family_accepts_a_snapshot_of_a_named_one(running: Any) -> None:
    rng = np.random.default_rng(0)
    saved = io.BytesIO()
    StreamingDPMixture("poisson").partial_fit(rng.poisson(4.0, (200, 2))).save(saved)
    await running.http.put("/streams/any", json={"n_features": 2})
    reply = await running.http.put("/streams/any/snapshot", content=saved.getvalue(), headers=FILE)
    assert reply.status_code == 200, reply.text
    settings = (await running.json("/streams/any"))["settings"]
    assert (settings["family"], settings["family_requested"]) == ("poisson", None)
    await running.http.put("/streams/three", json={"n_features": 3})
    reply = await running.http.put("/streams/three/snapshot", content=saved.getvalue(), headers=FILE)
    assert (reply.status_code, "n_features" in reply.json()["detail"]) == (409, True)


@pytest.mark.parametrize("harm", ["cut", "flipped", "empty", "something else"])
@ON_MEMORY
async def test_a_damaged_snapshot_is_refused_and_stores_nothing(running: Any, harm: str) -> None:
    await running.learn([[0.0, 0.0]])
    saved = (await running.http.get("/snapshot")).content
    flipped = bytearray(saved)
    flipped[len(flipped) // 2] ^= 1
    content = {"cut": saved[:-5], "flipped": bytes(flipped), "empty": b"", "something else": b"PK\x03\x04" * 9}[harm]
    before = running.tails()
    for name in ("default", "new"):
        reply = await running.http.put(f"/streams/{name}/snapshot", content=content, headers=FILE)
        assert reply.status_code == 400
        assert reply.json()["type"] == "/problems/snapshot-damaged"
    assert running.tails() == before


@pytest.mark.parametrize("kind", ["application/json", "text/plain", None])
@ON_MEMORY
async def test_a_snapshot_needs_its_content_type(running: Any, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    reply = await running.http.put("/snapshot", content=b"x", headers=headers)
    assert reply.status_code == 415
    assert reply.json()["type"] == "/problems/unsupported-media-type"


@ON_MEMORY
async def test_a_snapshot_over_the_limits_is_refused(start: Any) -> None:
    async with start() as running:
        await running.http.put("/streams/big", json={"n_features": 2})
        saved = (await running.http.get("/streams/big/snapshot")).content
        await running.http.delete("/streams/big")
    async with start(max_snapshot_bytes=1024) as running:
        reply = await running.http.put("/snapshot", content=saved + b" " * 1024, headers=FILE)
        assert reply.status_code == 413
    async with start(max_features=1) as running:
        reply = await running.http.put("/snapshot", content=saved, headers=FILE)
        assert reply.json()["type"] == "/problems/limit"
        assert running.tails() == {}


async def test_a_restore_sent_again_under_its_key_is_done_once(running: Any) -> None:
    await running.learn([[0.0, 0.0]])
    saved = (await running.http.get("/snapshot")).content
    headers = FILE | {"Idempotency-Key": "r1"}
    first = await running.http.put("/snapshot", content=saved, headers=headers)
    await running.learn([[1.0, 1.0]])
    again = await running.http.put("/snapshot", content=saved, headers=headers)
    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"
    assert (await running.json("/components"))["points_seen"] == 2


async def test_a_snapshot_waits_for_an_offset(running: Any) -> None:
    receipt = (await running.ingest(np.zeros((50, 2)))).json()
    reply = await running.http.get("/snapshot", params={"min_offset": receipt["log_offset"]})
    assert from_bytes(reply.content)[0].points_seen == 50


async def refined(running: Any, stream: str) -> dict[str, Any]:
    """A refinement of a stream with its outcome."""
    reply = await running.http.post(f"/streams/{stream}/refine")
    assert reply.status_code == 202, reply.text
    for _ in range(3000):
        found = await running.json(f"/streams/{stream}/refinements/{reply.json()['id']}")
        if found["adopted"] is not None:
            return dict(found)
        await asyncio.sleep(0.01)
    raise TimeoutError(found)


@pytest.fixture
def refined_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child's work is done in this process."""

    def refine(self: Any, task: process.Task, timeout_s: float, watch: Any) -> process.Outcome:
        paths = {name: str(getattr(task, name)) for name in ("state", "window", "result")}
        asked = {**paths, "method": task.method, "window_rows": task.window_rows}
        return process._outcome(child._answer(asked, io.StringIO()))

    monkeypatch.setattr(process.RefinementProcess, "refine", refine)


async def test_a_window_travels_with_the_snapshot(running: Any, clusters: np.ndarray, refined_here: None) -> None:
    """The restored stream refines the same rows to the same result, and learns on from there."""
    settings = {"n_features": 2, "family": "gaussian", "warmup_points": 100, "refinement": None, "window": 400}
    await running.http.put("/streams/one", json=settings)
    for start in range(0, 600, 60):
        await running.learn(clusters[start : start + 60], "/streams/one/ingest")
    reply = await running.http.get("/streams/one/snapshot?window=true")
    state, window = from_bytes(reply.content)
    assert window is not None
    np.testing.assert_array_equal(window, clusters[600 - len(window) : 600])
    assert state.past is not None
    assert len(window) == state.points_seen - state.past.offset > 0
    assert StreamingDPMixture.load(io.BytesIO(reply.content)).refine().window_rows == len(window)
    for path in ("?window=true", ""):
        etag = (await running.http.get(f"/streams/one/snapshot{path}")).headers["etag"]
        assert (
            await running.http.get(f"/streams/one/snapshot{path}", headers={"If-None-Match": etag})
        ).status_code == 304
    assert (await running.http.put("/streams/two/snapshot", content=reply.content, headers=FILE)).status_code == 200
    one, two = [await refined(running, stream) for stream in ("one", "two")]
    assert one["window_rows"] == two["window_rows"] == len(window)
    assert (one["bound_before"], one["bound_after"]) == (two["bound_before"], two["bound_after"])
    assert one["state"] == two["state"]
    for stream, offset in (("one", 660), ("two", 60)):
        await running.learn(clusters[:60], f"/streams/{stream}/ingest")
        reply = await running.http.get(f"/streams/{stream}/snapshot?window=true&min_offset={offset}")
        again, rows = from_bytes(reply.content)
        assert again.past is not None
        assert rows is not None
        np.testing.assert_array_equal(rows, np.concatenate([clusters[:600], clusters[:60]])[-len(rows) :])
        assert len(rows) == again.points_seen - again.past.offset
    views = [(await running.json(f"/streams/{stream}/components"))["components"] for stream in ("one", "two")]
    assert views[0] == views[1]


async def test_a_stream_restored_without_its_window_says_why_it_cannot_be_refined(
    running: Any, clusters: np.ndarray, refined_here: None
) -> None:
    await running.http.put(
        "/streams/one", json={"n_features": 2, "family": "gaussian", "warmup_points": 100, "refinement": None}
    )
    await running.learn(clusters, "/streams/one/ingest")
    saved = (await running.http.get("/streams/one/snapshot")).content
    await running.http.put("/streams/two/snapshot", content=saved, headers=FILE)
    done = await refined(running, "two")
    assert done["state"] == "not-adopted"
    assert done["reason"].startswith("window-empty: ")
    assert "?window=true" in done["reason"]


async def test_a_window_of_sparse_points_travels_too(running: Any, refined_here: None) -> None:
    counts = np.random.default_rng(4).poisson(0.6, size=(300, 8))
    rows = [{"indices": np.flatnonzero(x).tolist(), "values": x[x > 0].tolist()} for x in counts]
    settings = {"n_features": 8, "family": "poisson", "warmup_points": 100, "refinement": None}
    await running.http.put("/streams/one", json=settings)
    reply = await running.http.post("/streams/one/ingest?wait=applied&timeout=60", json={"points": rows})
    assert reply.status_code == 200, reply.text
    saved = (await running.http.get("/streams/one/snapshot?window=true")).content
    _, window = from_bytes(saved)
    assert window is not None
    np.testing.assert_array_equal(window.toarray(), counts[300 - window.shape[0] :])
    await running.http.put("/streams/two/snapshot", content=saved, headers=FILE)
    one, two = [await refined(running, stream) for stream in ("one", "two")]
    assert (one["window_rows"], one["bound_after"]) == (two["window_rows"], two["bound_after"])
    assert one["window_rows"] == window.shape[0], str(one)
