"""GET /dead-letters and POST /dead-letters/{seq}/requeue, over HTTP and over every store."""

import json
from typing import Any

import anyio
import numpy as np
import pytest

from shoal_service.store import EntryKind, NewEntry
from shoal_service.streams.learner import apply
from shoal_service.wire import Points, from_log, models, to_log

pytestmark = pytest.mark.anyio

SETTINGS = {"n_features": 2, "warmup_points": 50, "refinement": None}


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> set[float]:
    """Batches that begin with a number in this set cannot be learnt."""
    learn, bad = apply._batch, set[float]()

    def fails(state: Any, entry: Any, gathered: Any) -> Any:
        if from_log(entry.payload)[0, 0] in bad:
            raise RuntimeError("cannot take this")
        return learn(state, entry, gathered)

    monkeypatch.setattr(apply, "_batch", fails)
    return bad


def batch(first: float, n: int = 30) -> np.ndarray:
    x = np.random.default_rng(int(first)).normal(size=(n, 2))
    x[0, 0] = first
    return x


@pytest.fixture
async def spoilt(running: Any, refused: set[float]) -> dict[str, Any]:
    """The stream `s` with one dead letter between two batches that were learnt."""
    refused.add(66.0)
    assert (await running.http.put("/streams/s", json=SETTINGS)).status_code == 201
    await running.learn(batch(1.0), "/streams/s/ingest")
    reply = await running.ingest(batch(66.0), "/streams/s/ingest", wait="applied", timeout=60)
    assert reply.status_code == 422, reply.text
    await running.learn(batch(2.0), "/streams/s/ingest")
    return {"seq": 2, "log_offset": 60, "n_points": 30, "reason": "RuntimeError: cannot take this"}


async def points_seen(running: Any, log_offset: int) -> int:
    return int((await running.json("/streams/s/components", min_offset=log_offset, timeout=60))["points_seen"])


async def test_the_events_of_today_end_also_after_a_dead_letter(running: Any, spoilt: dict[str, Any]) -> None:
    assert (await running.ingest(batch(66.0), "/streams/s/ingest", wait="applied", timeout=60)).status_code == 422
    await points_seen(running, 120)
    with anyio.fail_after(60):
        assert (await running.http.get("/streams/s/events?after=0&follow=false")).status_code == 200


async def test_dead_letters_are_listed_and_shown(running: Any, spoilt: dict[str, Any]) -> None:
    found = await running.json("/streams/s/dead-letters")
    models.DeadLettersOut.model_validate(found)
    (row,) = found["dead_letters"]
    assert row == {**spoilt, "n_bytes": len(to_log(Points(batch(66.0))))}
    shown = await running.json("/streams/s/dead-letters/2")
    models.DeadLetterOut.model_validate(shown)
    assert shown["points"] == batch(66.0).tolist()
    assert {name: shown[name] for name in row} == row
    assert (await running.json("/streams/s/dead-letters/2", limit=3))["points"] == batch(66.0)[:3].tolist()
    for path in ("dead-letters/1", "dead-letters/99"):
        reply = await running.http.get(f"/streams/s/{path}")
        assert (reply.status_code, reply.json()["type"]) == (404, "/problems/unknown-dead-letter")
    assert (await running.http.get("/streams/s/dead-letters/0")).status_code == 400


async def test_a_requeued_batch_is_learnt_once(running: Any, spoilt: dict[str, Any], refused: set[float]) -> None:
    refused.clear()
    first = await running.http.post("/streams/s/dead-letters/2/requeue")
    assert first.status_code == 202
    models.RequeueOut.model_validate(first.json())
    assert first.json() | {"incarnation": ""} == {"stream": "s", "incarnation": "", "accepted": 30, "log_offset": 120}
    assert "Idempotency-Replayed" not in first.headers
    again = await running.http.post("/streams/s/dead-letters/2/requeue")
    assert again.json() == first.json()
    assert again.headers["Idempotency-Replayed"] == "true"
    assert await points_seen(running, 120) == 90
    assert running.tails()["s"] == (4, 120)
    entries = running.store.read("s", first.json()["incarnation"], 0, max_bytes=1 << 30)
    assert entries[3].payload == entries[1].payload
    assert [one["seq"] for one in (await running.json("/streams/s/dead-letters"))["dead_letters"]] == [2], "it stays"


async def test_a_batch_that_fails_again_is_another_dead_letter(running: Any, spoilt: dict[str, Any]) -> None:
    reply = await running.http.post("/streams/s/dead-letters/2/requeue")
    assert reply.status_code == 202
    assert await points_seen(running, 120) == 60
    assert [one["seq"] for one in (await running.json("/streams/s/dead-letters"))["dead_letters"]] == [2, 4]


async def test_what_holds_no_points_is_not_requeued(running: Any, spoilt: dict[str, Any]) -> None:
    incarnation = (await running.json("/streams/s"))["incarnation"]
    for payload in (b"no points", json.dumps({"d": 2}).encode(), to_log(Points(np.zeros((1, 2))))):
        entry = NewEntry(EntryKind.BATCH, payload, 1)
        running.store.append("s", incarnation, entry, budget_bytes=1 << 30).result()
    assert await points_seen(running, 93) == 61
    for seq in (4, 5):
        assert (await running.json(f"/streams/s/dead-letters/{seq}"))["points"] is None
        reply = await running.http.post(f"/streams/s/dead-letters/{seq}/requeue")
        assert (reply.status_code, reply.json()["type"]) == (409, "/problems/not-requeueable")
    assert (await running.http.post("/streams/s/dead-letters/6/requeue")).status_code == 404
    assert running.tails()["s"] == (6, 93)


async def test_a_key_of_a_client_never_meets_that_of_a_requeue(running: Any, spoilt: dict[str, Any]) -> None:
    headers = {"Idempotency-Key": " dead letter 2", "Content-Type": "application/json"}
    body = json.dumps({"points": batch(3.0).tolist()})
    await running.http.post("/streams/s/ingest", content=body, headers=headers)
    reply = await running.http.post("/streams/s/dead-letters/2/requeue")
    assert reply.status_code == 202
    assert "Idempotency-Replayed" not in reply.headers
