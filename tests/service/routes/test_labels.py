"""PATCH /components/{id}: labels in every answer and event that shows a component."""

import asyncio
import time
from typing import Any

import numpy as np
import pytest

from harness.waiting import LONGEST_WAIT_S
from shoal_service.access import Grant, Scope
from shoal_service.errors import StoreFormatError

pytestmark = pytest.mark.anyio
ON_MEMORY = pytest.mark.parametrize("store_kind", ["memory"])
GROUPS = np.array([[0.0, 0.0], [60.0, 0.0], [0.0, 60.0]])
X = GROUPS[np.arange(90) % 3] + np.random.default_rng(2).normal(size=(90, 2))


async def learn(running: Any) -> list[dict[str, Any]]:
    """Learn the groups under keys; gives the components."""
    body = {"points": X.tolist(), "keys": [f"k{i}" for i in range(len(X))]}
    reply = await running.http.post("/ingest?wait=applied&timeout=60", json=body)
    assert reply.status_code == 200, reply.text
    return list((await running.json("/components"))["components"])


async def test_a_label_is_in_every_answer_that_shows_the_component(running: Any, follow: Any) -> None:
    first, second, *_ = await learn(running)
    assert (first["label"], first["note"]) == (None, None)
    before = await running.http.get("/components")
    said = {"label": "idle höst", "note": "since\nthe backup"}
    reply = await running.http.patch(f"/components/{first['id']}", json=said)
    assert reply.status_code == 200, reply.text
    assert {name: reply.json()[name] for name in ("id", "label", "note")} == {"id": first["id"], **said}
    after = await running.http.get("/components", headers={"If-None-Match": before.headers["etag"]})
    assert after.status_code == 200, "another label is another answer"
    rows = {row["id"]: row for row in after.json()["components"]}
    assert (rows[first["id"]]["label"], rows[first["id"]]["note"]) == (said["label"], said["note"])
    assert (rows[second["id"]]["label"], rows[second["id"]]["note"]) == (None, None)
    one = await running.json(f"/components/{first['id']}")
    assert (one["label"], one["note"]) == (said["label"], said["note"])
    clusters = {row["id"]: row["label"] for row in (await running.json("/clusters", n=3))["clusters"]}
    assert clusters == {row["id"]: row["label"] for row in rows.values()}
    assert (await running.json(f"/clusters/{first['id']}", n=3))["label"] == said["label"]
    key = next(f"k{i}" for i in range(3) if np.allclose(X[i], first["mean"], atol=10))
    assert (await running.json(f"/records/{key}"))["label"] == said["label"]
    found = (await running.http.post("/records/lookup", json={"keys": ["k0", "k1", "k2", "no"]})).json()["records"]
    assert [None if row is None else row["label"] for row in found].count(said["label"]) == 1
    listed = (await running.json("/records", limit=90))["records"]
    assert {row["label"] for row in listed if row["component"] == first["id"]} == {said["label"]}
    plane = (await running.http.post("/projection")).json()["components"]
    assert dict(zip(plane["ids"], plane["label"], strict=True)) == {i: row["label"] for i, row in rows.items()}
    own, others = first["mean"], second["mean"]
    named = {"labels": {str(first["id"]): said["label"]}}
    assert (await running.json("/sample")).items() >= named.items()
    for path, wait in (("/predict", ""), ("/score", ""), ("/ingest", "?wait=applied&timeout=60")):
        reply = (await running.http.post(path + wait, json={"points": [others, own]})).json()
        assert reply.items() >= named.items(), path
        assert "labels" not in (await running.http.post(path + wait, json={"points": [others]})).json()
    assert (await running.json("/predict", x=",".join(map(str, own)))).items() >= named.items()
    seen = await follow("/events", query="after=0").events(3)
    born = next(event for event in seen if first["id"] in event["children"])
    assert born["labels"] == {str(first["id"]): said["label"]}
    assert all(event["labels"] == {} for event in seen if event is not born)


@ON_MEMORY
async def test_points_are_answered_when_the_labels_are_damaged(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of the store can be damaged. The batch is stored, so its sender must not be told that it failed."""

    def damaged(*_args: Any) -> Any:
        raise StoreFormatError("the file is damaged")

    monkeypatch.setattr(running.store, "documents", damaged)
    assert len((await running.learn(X))["components"]) == len(X)
    reply = await running.http.get("/components")
    assert (reply.status_code, reply.json()["type"]) == (500, "/problems/store-format")
    assert "run shoal doctor" in reply.json()["detail"]


async def test_null_removes_and_what_is_left_out_stays(running: Any) -> None:
    (first, *_) = await learn(running)
    path = f"/components/{first['id']}"
    for body, expected in (
        ({"label": "a"}, ("a", None)), ({"note": "n"}, ("a", "n")), ({"label": None}, (None, "n")),
        ({"label": "b", "note": None}, ("b", None)), ({"label": None, "note": None}, (None, None)),
    ):  # fmt: skip
        found = (await running.http.patch(path, json=body)).json()
        assert (found["label"], found["note"]) == expected


@ON_MEMORY
async def test_what_is_no_label_is_refused(running: Any) -> None:
    (first, *_) = await learn(running)
    for body, words in (
        ({}, "changes nothing"), ({"label": "x" * 201}, "at most 200 characters"), ({"label": ""}, "at least 1"),
        ({"label": "two\nlines"}, "control characters"), ({"label": "two\u2028lines"}, "control characters"),
        ({"label": "a\x85b"}, "control characters"), ({"label": "  \u00a0"}, "is blank"),
        ({"note": "é" * 2049}, "4,098 bytes, the limit is 4,096"),
        ({"lable": "x"}, "did you mean 'label'?"), ({"x": "y"}, "unknown field 'x'; send label, note"),
        ({"label": 7}, "valid string"), ([], "not a JSON object"),
    ):  # fmt: skip
        reply = await running.http.patch(f"/components/{first['id']}", json=body)
        assert reply.status_code == 400, reply.text
        assert words in reply.json()["detail"], reply.json()["detail"]
    assert (
        (await running.http.patch("/components/99", json={"label": "x"})).json()["type"].endswith("unknown-component")
    )
    assert (await running.http.patch("/streams/no/components/1", json={"label": "x"})).status_code == 404
    assert (await running.http.patch(f"/components/{first['id']}", json={"note": "é" * 2048})).status_code == 200


async def test_labels_outlive_a_restart_and_go_with_the_stream(start: Any) -> None:
    async with start() as running:
        (first, *_) = await learn(running)
        await running.http.patch(f"/components/{first['id']}", json={"label": "kept"})
    async with start() as running:
        found = await running.json(f"/components/{first['id']}", min_offset=90, timeout=60)
        assert found["label"] == "kept"
        assert (await running.http.delete("/streams/default")).status_code == 204
        again = {row["id"]: row["label"] for row in await learn(running)}
        assert first["id"] in again
        assert set(again.values()) == {None}


@pytest.mark.parametrize("store_kind", [pytest.param("redis", marks=pytest.mark.redis)])
async def test_another_process_shows_a_label_soon(start: Any) -> None:
    async with start() as here, start() as there:
        (first, *_) = await learn(here)
        path = f"/components/{first['id']}"
        assert (await there.json(path, min_offset=90, timeout=60))["label"] is None
        await here.http.patch(path, json={"label": "seen"})
        done = time.monotonic()
        while (await there.json(path))["label"] is None:
            assert time.monotonic() - done < LONGEST_WAIT_S
            await asyncio.sleep(0.02)


@ON_MEMORY
async def test_labels_need_the_scope_write_and_are_audited(start: Any) -> None:
    async with start(admin_key="the-admin-key-of-these-tests") as running:
        create = running.service.access.create
        read, write = ({"api-key": create(scope.value, Grant(scope)).secret} for scope in (Scope.READ, Scope.WRITE))
        await running.http.post("/ingest?wait=applied&timeout=60", json={"points": X.tolist()}, headers=write)
        (first, *_) = (await running.http.get("/components", headers=read)).json()["components"]
        path = f"/components/{first['id']}"
        assert (await running.http.patch(path, json={"label": "x"}, headers=read)).status_code == 403
        assert (await running.http.patch(path, json={"label": "x"}, headers=write)).status_code == 200
        refused, done = (line for line in running.log() if line["event"] == "audit")
        assert (refused["outcome"], done["outcome"], done["key_name"]) == ("refused", "done", "write")
        assert (done["action"], done["stream"]) == ("PATCH /components/{component}", "default")
        assert done["subject"] == str(first["id"])
