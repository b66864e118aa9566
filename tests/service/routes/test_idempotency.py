"""A retry is not a second batch."""

import asyncio
import gzip
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.anyio
ON_MEMORY = pytest.mark.parametrize("store_kind", ["memory"])

BODY = b'{"points": [[1.0, 2.0]]}'


def headers(key: str, **more: str) -> dict[str, str]:
    return {"Content-Type": "application/json", "Idempotency-Key": key, **more}


async def test_the_same_request_again_gets_the_first_answer_and_stores_nothing(running: Any) -> None:
    first = await running.http.post("/ingest", content=BODY, headers=headers("k1"))
    await running.ingest([[5.0, 5.0]])
    before = running.tails()
    again = await running.http.post("/ingest", content=BODY, headers=headers("k1"))
    assert (first.status_code, again.status_code) == (202, 202)
    assert again.json() == first.json()
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert running.tails() == before


@ON_MEMORY
async def test_a_key_does_not_answer_for_another_step_of_a_source(running: Any) -> None:
    """The points came again, the position stayed where it was, and the answer was that of a stored batch."""
    plain = await running.http.post("/ingest", content=BODY, headers=headers("k"))
    first = "/ingest?source=orders&position=5"
    assert plain.status_code == 202
    assert (await running.http.post(first, content=BODY, headers=headers("k"))).status_code == 422
    for replayed in (None, "true"):
        reply = await running.http.post(first, content=BODY, headers=headers("step"))
        assert (reply.status_code, reply.headers.get("idempotency-replayed")) == (202, replayed)
    following = await running.http.post(first + "9&position_before=5", content=BODY, headers=headers("step"))
    assert (following.status_code, following.json()["type"]) == (422, "/problems/idempotency-mismatch")
    assert [one["position"] for one in (await running.json("/sources"))["sources"]] == ["5"]


@pytest.mark.parametrize(
    ("content", "more"),
    [
        (b'{"points": [[1.0, 2.5]]}', {}),
        (BODY + b" ", {}),
        (BODY, {"Content-Type": "application/json; charset=utf-8"}),
        (gzip.compress(BODY, mtime=0), {"Content-Encoding": "gzip"}),
    ],
)
@ON_MEMORY
async def test_another_request_under_the_same_key_is_refused(
    running: Any, content: bytes, more: dict[str, str]
) -> None:
    await running.http.post("/ingest", content=BODY, headers=headers("k1"))
    before = running.tails()
    reply = await running.http.post("/ingest", content=content, headers=headers("k1", **more))
    assert reply.status_code == 422
    assert reply.json()["type"] == "/problems/idempotency-mismatch"
    assert reply.json()["retryable"] is False
    assert running.tails() == before


async def test_keys_belong_to_a_stream(running: Any) -> None:
    await running.http.put("/streams/other", json={"n_features": 2})
    for path in ("/ingest", "/streams/other/ingest"):
        reply = await running.http.post(path, content=BODY, headers=headers("k1"))
        assert "idempotency-replayed" not in reply.headers
    assert running.tails() == {"default": (1, 1), "other": (1, 1)}


@pytest.mark.parametrize("key", ["", " ", "a" * 129, "tab\there", "\x7f", "\xe9"])
@ON_MEMORY
async def test_a_key_that_is_none_is_refused(running: Any, key: str) -> None:
    raw = [(b"Content-Type", b"application/json"), (b"Idempotency-Key", key.encode("latin-1"))]
    reply = await running.http.post("/ingest", content=BODY, headers=raw)
    assert reply.status_code == 400, reply.text
    assert reply.json()["type"] == "/problems/parameter"
    assert running.tails() == {}


@pytest.mark.parametrize("key", ["a", "a" * 128, 'any ~!"#$% of them'])
async def test_keys_of_printable_characters_are_taken(running: Any, key: str) -> None:
    assert (await running.http.post("/ingest", content=BODY, headers=headers(key))).status_code == 202
    again = await running.http.post("/ingest", content=BODY, headers=headers(key))
    assert again.headers["idempotency-replayed"] == "true"


async def test_many_tries_at_once_become_one_batch(running: Any) -> None:
    replies = await asyncio.gather(
        *(running.http.post("/ingest", content=BODY, headers=headers("k1")) for _ in range(10))
    )
    assert {reply.json()["log_offset"] for reply in replies} == {1}
    assert sum("idempotency-replayed" in reply.headers for reply in replies) == 9
    assert running.tails() == {"default": (1, 1)}


async def test_a_refused_request_does_not_use_its_key_up(running: Any) -> None:
    bad = await running.http.post("/ingest", content=b'{"points": []}', headers=headers("k1"))
    assert bad.status_code == 400
    good = await running.http.post("/ingest", content=BODY, headers=headers("k1"))
    assert good.status_code == 202


@pytest.mark.parametrize("store_kind", ["memory", "sqlite"])  # over redis they are kept for a minute
async def test_a_retry_that_waits_gets_the_labels_while_they_are_kept(running: Any, monkeypatch: Any) -> None:
    params = {"wait": "applied"}
    first = await running.http.post("/ingest", content=BODY, headers=headers("k1"), params=params)
    again = await running.http.post("/ingest", content=BODY, headers=headers("k1"), params=params)
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.json() == first.json()

    from shoal_service.streams import learnt_rows

    monkeypatch.setattr(learnt_rows, "ROWS_KEPT", 4)
    await running.learn(np.zeros((5, 2)))
    late = await running.http.post("/ingest", content=BODY, headers=headers("k1"), params=params)
    assert late.status_code == 202, "applied, but what it was answered is forgotten"
    assert "components" not in late.json()


@pytest.mark.parametrize("store_kind", ["sqlite"])
async def test_keys_outlive_a_restart(start: Any) -> None:
    async with start() as running:
        first = await running.http.post("/ingest", content=BODY, headers=headers("k1"))
    async with start() as running:
        again = await running.http.post("/ingest", content=BODY, headers=headers("k1"))
        assert again.json() == first.json()
        assert again.headers["idempotency-replayed"] == "true"
        assert running.tails() == {"default": (1, 1)}
