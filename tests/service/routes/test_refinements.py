"""POST /refine, GET /refinements, GET /events, over HTTP."""

import asyncio
import time
from typing import Any

import numpy as np
import pytest

from harness.event_reader import Reader
from harness.in_turn import in_turn
from harness.waiting import eventually_async
from shoal_service.errors import LogGapError
from shoal_service.refining import child
from shoal_service.routes import events
from shoal_service.streams.learner import publisher
from shoal_service.streams.refinement import process
from shoal_service.wire.models import RefinementOut, RefinementsOut

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("store_kind", ["memory"])]
JSON = {"Content-Type": "application/json"}
SMALL = {"family": "gaussian", "n_features": 2, "warmup_points": 200, "window": 2000, "refinement": None}


@pytest.fixture(autouse=True)
def inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child's work is done in this process."""

    def refine(self: Any, task: process.Task, timeout_s: float, watch: Any) -> process.Outcome:
        import io

        paths = {name: str(getattr(task, name)) for name in ("state", "window", "result")}
        return process._outcome(
            child._answer({**paths, "method": task.method, "window_rows": task.window_rows}, io.StringIO())
        )

    monkeypatch.setattr(process.RefinementProcess, "refine", refine)


@pytest.fixture
async def fed(running: Any, clusters: np.ndarray) -> Any:
    await running.http.put("/streams/s", json=SMALL)
    await running.learn(clusters, "/streams/s/ingest")
    return running


async def done(running: Any, path: str) -> dict[str, Any]:
    until = time.monotonic() + 240
    while time.monotonic() < until:
        found = await running.json(path)
        if found["state"] not in ("queued", "running"):
            return dict(found)
        await asyncio.sleep(0.01)
    raise TimeoutError(found)


async def test_a_refinement_is_asked_for_and_told_of(fed: Any) -> None:
    reply = await fed.http.post("/streams/s/refine", json={"method": "vdp"})
    assert reply.status_code == 202
    asked = reply.json()
    RefinementOut.model_validate(asked)
    assert asked["adopted"] is None
    assert reply.headers["location"] == f"/streams/s/refinements/{asked['id']}"
    found = await done(fed, reply.headers["location"])
    RefinementOut.model_validate(found)
    assert found["state"] in ("adopted", "not-adopted")
    assert found["adopted"] is (found["state"] == "adopted")
    assert found["points_seen"] == found["window_rows"] == 600
    assert found["bound_after"] >= found["bound_before"]
    assert found["components_after"] == 3
    assert found["copies"] == 1
    assert found["seconds"] > 0
    listed = await fed.json("/streams/s/refinements")
    RefinementsOut.model_validate(listed)
    assert [one["id"] for one in listed["refinements"]] == [asked["id"]]


async def test_who_is_told_of_an_adoption_is_shown_it(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Views that nobody waits for do not come here: one that was shown before would be shown for ever."""
    monkeypatch.setattr(publisher, "PUBLISH_SHARE", 1e-9)
    rng = np.random.default_rng(0)
    points = 4.0 * np.indices((3, 3)).reshape(2, -1).T[rng.integers(9, size=1_500)] + rng.normal(size=(1_500, 2))
    await running.http.put("/streams/s", json=SMALL)
    await running.learn(points, "/streams/s/ingest")
    before = await running.json("/streams/s/components?min_offset=1500")
    reply = await running.http.post("/streams/s/refine")
    assert (await done(running, reply.headers["location"]))["state"] == "adopted"
    after = await running.json("/streams/s/components")
    assert after["log_offset"] == before["log_offset"]
    assert after["components"] != before["components"]


async def test_no_body_asks_for_the_default_and_a_key_asks_once(fed: Any) -> None:
    headers = {"Idempotency-Key": "k"}
    replies = [await fed.http.post("/streams/s/refine", headers=headers) for _ in range(2)]
    assert [r.status_code for r in replies] == [202, 202]
    assert replies[0].json()["id"] == replies[1].json()["id"]
    assert replies[0].json()["method"] == "vdp"


@in_turn(
    ("body", "headers", "status", "kind"),
    [
        (b'{"method": "magic"}', JSON, 400, "parameter"),
        (b'{"window": 0}', JSON, 400, "parameter"),
        (b'{"window": 3}', JSON, 400, "parameter"),
        (b'{"windows": 3000}', JSON, 400, "parameter"),
        (b'{"method": 1', JSON, 400, "malformed-body"),
        (b"[]", JSON, 400, "malformed-body"),
        (b"{}", {"Content-Type": "text/plain"}, 415, "unsupported-media-type"),
        (b" " * 5000, JSON, 413, "body-too-large"),
    ],
)
async def test_a_bad_wish_is_a_problem(fed: Any, body: bytes, headers: Any, status: int, kind: str) -> None:
    reply = await fed.http.post("/streams/s/refine", content=body, headers=headers)
    assert (reply.status_code, reply.json()["type"]) == (status, f"/problems/{kind}")


async def test_what_cannot_be_refined_says_why(fed: Any) -> None:
    await fed.http.put("/streams/empty", json=SMALL)
    await fed.http.put("/streams/none", json={**SMALL, "window": 0})
    for path, status, kind in (
        ("/streams/empty/refine", 409, "no-points"),
        ("/streams/none/refine", 409, "not-refinable"),
        ("/streams/nobody/refine", 404, "unknown-stream"),
        ("/refine", 404, "unknown-stream"),
    ):
        reply = await fed.http.post(path)
        assert (reply.status_code, reply.json()["type"]) == (status, f"/problems/{kind}"), path
    for path in ("/streams/s/refinements/nothing", "/streams/s/refinements/6b1f0a52-53f6-4c06-9ee1-0f1d3c1c8d3a"):
        reply = await fed.http.get(path)
        assert (reply.status_code, reply.json()["type"]) == (404, "/problems/unknown-refinement")


async def test_metrics_count_refinements(fed: Any) -> None:
    reply = await fed.http.post("/streams/s/refine")
    found = await done(fed, reply.headers["location"])
    text = (await fed.http.get("/metrics")).text
    name = "adopted" if found["adopted"] else "not_adopted"
    assert f'shoal_refinements_{name}_total{{stream="s"}} 1.0' in text
    assert "shoal_refinements_made_total 1.0" in text
    if found["adopted"]:
        assert 'shoal_last_adoption_offset{stream="s"} 600.0' in text


# -- events: the transport of these tests gives a body only once it is whole, so the feed is read from the app itself


async def test_events_tell_what_becomes_of_components_and_go_on_where_one_left(fed: Any, follow: Any) -> None:
    everything = follow("/streams/s/events", query="after=0")
    first = await everything.events(3)
    assert everything.status == 200
    assert {e["kind"] for e in first} <= {"born", "refined", "split", "merged"}
    incarnation = (await fed.json("/streams/s"))["incarnation"]
    assert all(e["id"].startswith(incarnation) for e in first)
    for how in ({"headers": {"Last-Event-ID": first[0]["id"]}}, {"query": f"after={first[0]['id']}"}):
        again = follow("/streams/s/events", **how)
        assert await again.events(2) == first[1:]


async def test_events_of_today_can_be_read_without_waiting_for_more(fed: Any, follow: Any) -> None:
    found = (await fed.http.get("/streams/s/events?after=0&follow=false")).text
    ids = [line.removeprefix("id: ") for line in found.splitlines() if line.startswith("id: ")][1:]
    assert ids == [event["id"] for event in await follow("/streams/s/events", query="after=0").events(len(ids))]
    rest = (await fed.http.get(f"/streams/s/events?after={ids[0]}&follow=false")).text
    assert [line for line in rest.splitlines() if line.startswith("id: ")] == [f"id: {one}" for one in ids]
    none = (await fed.http.get("/streams/s/events?follow=false")).text
    assert "event:" not in none


async def test_without_a_place_only_what_comes_is_told(fed: Any, follow: Any) -> None:
    reader = follow("/streams/s/events")
    block = await anext(reader.blocks())
    assert set(block) == {"retry", "id"}, "the place where it began, for a connection that is lost before any event"
    saved = (await fed.http.get("/streams/s/snapshot")).content
    await fed.http.put("/streams/s/snapshot", content=saved, headers={"Content-Type": "application/octet-stream"})
    (event,) = await reader.events(1)
    assert event["kind"] == "restored"
    assert await follow("/streams/s/events", headers={"Last-Event-ID": block["id"]}).events(1) == [event]
    oldest = follow("/streams/s/events", query="after=0")
    first = await anext(oldest.blocks())
    begun, resumed = (await oldest.events(1)), follow("/streams/s/events", query=f"after={first['id']}")
    assert await resumed.events(1) == begun, "no gap"
    live = (await fed.json("/streams/s/components"))["components"]
    assert event["children"] == sorted(c["id"] for c in live)


async def test_a_slow_reader_holds_nobody_up_and_gets_a_gap(start: Any, clusters: np.ndarray) -> None:
    async with start(events_kept=5) as running:
        app = running.http._transport.app
        await running.http.put("/streams/s", json={**SMALL, "refinement": None})
        await running.learn(clusters[:1], "/streams/s/ingest")
        slow, quick = Reader(app, "/streams/s/events", query="after=0"), Reader(app, "/streams/s/events")
        try:
            async for _ in quick.blocks():
                break
            began = time.monotonic()
            saved = (await running.http.get("/streams/s/snapshot")).content
            file = {"Content-Type": "application/octet-stream"}
            for _ in range(12):
                assert (await running.http.put("/streams/s/snapshot", content=saved, headers=file)).status_code == 200
            assert len(await quick.events(3)) == 3
            assert time.monotonic() - began < 30
            kinds = []
            for _ in range(40):
                (event,) = await slow.events(1)
                kinds.append(event["kind"])
                if kinds[-1] == "gap":
                    assert "read the components again" in event["reason"]
                    after = event["id"]
                    break
            assert kinds[-1] == "gap"
            resumed = Reader(app, "/streams/s/events", headers={"Last-Event-ID": after})
            try:
                assert (await resumed.events(1))[0]["kind"] == "restored", "a break at the gap leads on behind it"
            finally:
                await resumed.close()
        finally:
            await slow.close()
            await quick.close()


async def test_another_incarnation_and_bad_places(fed: Any, follow: Any) -> None:
    old = (await follow("/streams/s/events", query="after=0").events(1))[0]["id"]
    await fed.http.delete("/streams/s")
    await fed.http.put("/streams/s", json=SMALL)
    await fed.learn([[0.0, 0.0]] * 20, "/streams/s/ingest")
    first = await anext(follow("/streams/s/events", headers={"Last-Event-ID": old}).blocks())
    assert "id" not in first, "a client whose connection is lost here would never hear of the gap"
    found = await follow("/streams/s/events", headers={"Last-Event-ID": old}).events(2)
    assert found[0]["kind"] == "gap"
    assert "created again" in found[0]["reason"]
    assert found[1]["kind"] == "born"
    incarnation = (await fed.json("/streams/s"))["incarnation"]
    ahead = {"Last-Event-ID": f"{incarnation}.1000.0"}  # from before an older copy of the store was put back
    assert "id" not in await anext(follow("/streams/s/events", headers=ahead).blocks())
    missed = await follow("/streams/s/events", headers=ahead).events(2)
    assert [event["kind"] for event in missed] == ["gap", "born"], "all further events up to entry 1000 were missed"
    for bad in ("x", "1.2", f"{old}.3", "-1"):
        reply = await fed.http.get("/streams/s/events", params={"after": bad})
        assert (reply.status_code, reply.json()["type"]) == (400, "/problems/parameter"), bad


async def test_silence_is_filled_and_a_deleted_stream_ends_its_readers(
    fed: Any, follow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "KEEP_ALIVE_S", 0.05)
    monkeypatch.setattr(events, "LOOK_S", 0.02)
    reader = follow("/streams/s/events")
    async for block in reader.blocks():
        if block == {"": "keep-alive"}:
            break
    await fed.http.delete("/streams/s")
    await asyncio.wait_for(_drained(reader), 120)


async def _drained(reader: Reader) -> None:
    while not reader._task.done():
        try:
            await asyncio.wait_for(reader.chunks.get(), 0.05)
        except TimeoutError:
            continue


async def test_readers_end_when_the_service_stops(start: Any, clusters: np.ndarray) -> None:
    async with start() as running:
        await running.learn(clusters[:50])
        reader = Reader(running.http._transport.app, "/events")
        async for _ in reader.blocks():
            break
    await asyncio.wait_for(_drained(reader), 120)
    await reader.close()


async def test_long_readers_are_no_latency(fed: Any, follow: Any) -> None:
    reader = follow("/streams/s/events", query="after=0")
    await reader.events(1)
    await reader.close()
    text = (await fed.http.get("/metrics")).text
    assert not [line for line in text.splitlines() if "/events" in line and "_count" in line]


async def test_what_waits_for_a_learner_that_has_stopped_gets_the_reason(
    fed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refinement was queued for ever, and a client that follows events connected again and again without a word."""

    def damaged(*_: Any, **__: Any) -> Any:
        raise LogGapError("the log has a gap: entry 3 is missing or damaged")

    last = (await fed.http.get("/streams/s/events?after=0&follow=false")).text.split("id: ")[-1].split("\n")[0]
    monkeypatch.setattr(fed.store, "read", damaged)
    assert (await fed.ingest([[1.0, 2.0]], "/streams/s/ingest")).status_code == 202
    stream = await fed.service.streams.get("s")
    await eventually_async(lambda: stream.view_source.feed._failure is not None)
    for reply in (
        await fed.http.post("/streams/s/refine"),
        await fed.http.get("/streams/s/events", params={"after": last}),
    ):
        assert (reply.status_code, reply.json()["type"]) == (500, "/problems/learner-stopped"), reply.text
        assert "entry 3 is missing" in reply.json()["detail"]
    rest = await fed.http.get("/streams/s/events?after=0")
    assert rest.status_code == 200, "what there is comes first"
    assert last in rest.text
