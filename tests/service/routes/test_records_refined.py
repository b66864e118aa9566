"""Records through a refinement: rows of the window are assigned again, and the changes are listed."""

import asyncio
import time
from typing import Any

import numpy as np
import pytest

from harness.gradient_proportions import GradientProportions
from shoal.families import FAMILIES
from shoal.mixture import from_bytes
from shoal.points.weighted_rows import weights_of
from shoal_service.refining import child
from shoal_service.streams.refinement import process

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("store_kind", ["memory"])]
JSON = {"Content-Type": "application/json"}
GRID = {"family": "gaussian", "n_features": 2, "warmup_points": 200, "window": 2000, "refinement": None}


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


async def learn(running: Any, points: np.ndarray, first: int) -> None:
    for at in range(0, len(points), 200):
        part = points[at : at + 200]
        body = {"points": part.tolist(), "keys": [f"k{first + at + i}" for i in range(len(part))]}
        params = {"wait": "applied", "timeout": 30}
        reply = await running.http.post("/streams/s/ingest", json=body, params=params)
        assert reply.status_code == 200, reply.text


async def refined(running: Any) -> dict[str, Any]:
    asked = (await running.http.post("/streams/s/refine", json={})).json()
    until = time.monotonic() + 240
    while time.monotonic() < until:
        found = await running.json(f"/streams/s/refinements/{asked['id']}")
        if found["state"] not in ("queued", "running"):
            return dict(found)
        await asyncio.sleep(0.01)
    raise TimeoutError


async def looked_up(running: Any, n: int) -> list[dict[str, Any]]:
    reply = await running.http.post("/streams/s/records/lookup", json={"keys": [f"k{i}" for i in range(n)]})
    return list(reply.json()["records"])


async def everything(running: Any, **params: Any) -> dict[str, dict[str, Any]]:
    found, cursor = {}, None
    while True:
        page = await running.json("/streams/s/records", limit=150, **params, **({"cursor": cursor} if cursor else {}))
        found |= {record["key"]: record for record in page["records"]}
        cursor = page["next"]
        if cursor is None:
            return found


def newest_event(running: Any) -> str:
    stream = next(stream for stream in running.service.streams.known.loaded if stream.name == "s")
    place = stream.view_source.feed.all()[-1].place
    return f"{stream.record.incarnation}.{place.seq}.{place.nth}"


async def test_a_refinement_assigns_the_window_again_and_the_changes_are_listed(running: Any) -> None:
    rng = np.random.default_rng(2)
    centres = np.array([[4.0 * i, 4.0 * j] for i in range(3) for j in range(3)])  # nine that overlap
    x = centres[rng.integers(9, size=2400)] + rng.normal(size=(2400, 2))
    await running.http.put("/streams/s", json=GRID)
    await learn(running, x, 0)
    before = await looked_up(running, 2400)
    event = newest_event(running)
    assert await everything(running, changed_since=event) == {}
    assert await everything(running) == {record["key"]: record for record in before}
    outcome = await refined(running)
    assert outcome["state"] == "adopted", outcome
    after = await looked_up(running, 2400)
    live = {component["id"] for component in (await running.json("/streams/s/components"))["components"]}
    predicted = (await running.http.post("/streams/s/score", json={"points": x.tolist()})).json()["components"]
    how = [record["resolved"] for record in after]
    in_window = [i for i in range(2400) if how[i] == "refined"]
    assert 1000 <= len(in_window) < 2400
    assert min(in_window) == 2400 - len(in_window), "the newest are the window"
    for i, (old, new) in enumerate(zip(before, after, strict=True)):
        assert (new["assigned"], new["log_offset"]) == (old["assigned"], old["log_offset"])
        assert new["component"] in live
        if how[i] == "refined":
            assert new["component"] == predicted[i]
        else:
            assert (how[i] == "exact") is (new["component"] == new["assigned"])
    moved = {new["key"]: new for old, new in zip(before, after, strict=True) if old["component"] != new["component"]}
    assert moved
    assert await everything(running, changed_since=event) == moved
    members = {component: set() for component in live}
    for component in live:
        cursor = None
        while True:
            params = {"limit": 700} | ({"cursor": cursor} if cursor else {})
            page = await running.json(f"/streams/s/components/{component}/records", **params)
            members[component] |= {row["key"] for row in page["records"]}
            if (cursor := page["next"]) is None:
                break
    assert members == {c: {record["key"] for record in after if record["component"] == c} for c in live}
    again = newest_event(running)
    assert await everything(running, changed_since=again) == {}
    reply = await running.http.get("/streams/s/records", params={"changed_since": "nonsense"})
    assert (reply.status_code, reply.json()["type"]) == (400, "/problems/parameter")


async def test_a_table_that_copies_answers_and_changes_follows_the_stream(running: Any) -> None:
    """Through births, merges, prunings, returns and refinements, and with keys that come again or are deleted."""
    rng = np.random.default_rng(1)
    centres = rng.uniform(-25, 25, size=(6, 2))
    await running.http.put("/streams/s", json={**GRID, "warmup_points": 100, "half_life": 300})
    table: dict[str, int | None] = {}
    last: dict[str, str] = {}
    for step in range(12):
        n, active = int(rng.integers(100, 500)), rng.choice(6, size=rng.integers(1, 5), replace=False)
        x = centres[rng.choice(active, size=n)] + rng.normal(size=(n, 2)) * (1.0 if step % 4 else 4.0)
        keys = [f"k{key}" for key in rng.integers(2_000, size=n)]
        params, body = {"wait": "applied", "timeout": 30}, {"points": x.tolist(), "keys": keys}
        answer = await running.http.post("/streams/s/ingest", json=body, params=params)
        table |= dict(zip(keys, answer.json()["components"], strict=True))
        if step % 3 == 2:
            await refined(running)
            for key in list(table)[:5]:
                await running.http.delete(f"/streams/s/records/{key}")
                del table[key]
        newest = newest_event(running)
        changes = await everything(running, **last)
        table |= {key: record["component"] for key, record in changes.items()}
        last = {"changed_since": newest}
        reply = await running.http.post("/streams/s/records/lookup", json={"keys": list(table)})
        assert {record["key"]: record["component"] for record in reply.json()["records"]} == table, step
    stream = next(stream for stream in running.service.streams.known.loaded if stream.name == "s")
    kinds = {event.kind for event in stream.view_source.feed.all()}
    assert {"born", "merged", "pruned", "returned", "split", "adopted"} <= kinds, kinds


async def test_after_a_restore_every_record_may_belong_elsewhere(running: Any) -> None:
    rng = np.random.default_rng(3)
    await running.http.put("/streams/s", json=GRID)
    await learn(running, rng.normal(size=(400, 2)), 0)
    saved = await running.http.get("/streams/s/snapshot")
    await learn(running, rng.normal(size=(200, 2)) + 30.0, 400)
    before, event = await looked_up(running, 600), newest_event(running)
    assert await everything(running, changed_since=event) == {}
    sent_as = {"Content-Type": "application/octet-stream"}
    reply = await running.http.put("/streams/s/snapshot", content=saved.content, headers=sent_as)
    await running.json("/streams/s/components", min_offset=reply.json()["log_offset"])
    after = await looked_up(running, 600)
    moved = {new["key"] for old, new in zip(before, after, strict=True) if old["component"] != new["component"]}
    assert moved, "the component of the later points is not in the snapshot"
    assert moved <= set(await everything(running, changed_since=event))
    assert await everything(running, changed_since=newest_event(running)) == {}


async def test_changes_are_listed_since_any_id_that_the_events_give(running: Any, follow: Any) -> None:
    """Also the one before the first event, which is all that a follower of a quiet stream has."""
    rng = np.random.default_rng(4)
    await running.http.put("/streams/s", json={**GRID, "half_life": 100})
    await learn(running, rng.normal(size=(400, 2)), 0)
    async for block in follow("/streams/s/events").blocks():
        begun = block["id"]
        assert "event" not in block
        break
    before = await looked_up(running, 400)
    assert await everything(running, changed_since=begun) == {}
    await learn(running, rng.normal(size=(800, 2)) + 30.0, 400)  # the first component is forgotten
    after = await looked_up(running, 400)
    moved = {new["key"] for old, new in zip(before, after, strict=True) if old["component"] != new["component"]}
    assert moved
    assert moved <= set(await everything(running, changed_since=begun))
    incarnation, entry, _ = newest_event(running).split(".")
    later = f"{incarnation}.{int(entry) + 5}.0"
    reply = await running.http.get("/streams/s/records", params={"changed_since": later})
    assert reply.status_code == 400, reply.text


async def test_weights_are_learnt_refined_restored_and_refined_again(running: Any) -> None:
    """Through the log, the window of the child process, and the window of a snapshot: the total mass stays."""
    rng = np.random.default_rng(5)
    points = np.repeat([[0.0, 0.0], [8.0, 0.0]], 500, axis=0)[rng.permutation(1_000)] + rng.normal(size=(1_000, 2))
    weights = rng.integers(1, 9, 1_000).astype(float)
    await running.http.put("/streams/s", json=GRID)
    for at in range(0, 1_000, 250):
        body = {"points": points[at : at + 250].tolist(), "weights": weights[at : at + 250].tolist()}
        reply = await running.http.post("/streams/s/ingest", json=body, params={"wait": "applied", "timeout": 30})
        assert reply.status_code == 200, reply.text
    mass = lambda: _total_mass(running)  # noqa: E731
    assert await mass() == pytest.approx(weights.sum(), rel=1e-9)
    assert (await refined(running))["state"] in ("adopted", "postponed")
    assert await mass() == pytest.approx(weights.sum(), rel=1e-9)
    snapshot = (await running.http.get("/streams/s/snapshot", params={"window": "true"})).content
    state, window = from_bytes(snapshot)
    assert state.points_seen == 1_000
    np.testing.assert_array_equal(weights_of(window), weights[-len(window) :])
    headers = {"Content-Type": "application/octet-stream"}
    assert (await running.http.put("/streams/s/snapshot", content=snapshot, headers=headers)).status_code < 300
    assert (await refined(running))["state"] in ("adopted", "postponed")
    assert await mass() == pytest.approx(weights.sum(), rel=1e-9)


async def _total_mass(running: Any) -> float:
    return sum(one["mass"] for one in (await running.json("/streams/s/components"))["components"])


async def test_a_family_without_weights_says_so(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES, GradientProportions.name, GradientProportions)
    await running.http.put("/streams/s", json={"n_features": 2, "family": GradientProportions.name})
    body = {"points": [[0.5, 0.5]], "weights": [2]}
    reply = await running.http.post("/streams/s/ingest", json=body)
    assert (reply.status_code, reply.json()["type"]) == (400, "/problems/setting")
    assert "without weights" in reply.json()["detail"]
    body["weights"] = [1]
    assert (await running.http.post("/streams/s/ingest", json=body)).status_code == 202
