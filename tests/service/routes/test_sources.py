"""Batches that carry the position of their source, and the list of positions."""

import asyncio
from typing import Any

import pytest

pytestmark = pytest.mark.anyio
ON_MEMORY = pytest.mark.parametrize("store_kind", ["memory"])

POINTS = {"points": [[0.0, 1.0], [1.0, 0.0]]}


async def send(running: Any, status: int = 202, **params: str) -> dict[str, Any]:
    reply = await running.http.post("/streams/s/ingest", params=params, json=POINTS)
    assert reply.status_code == status, reply.text
    return {**reply.json(), "replayed": reply.headers.get("Idempotency-Replayed")}


async def listed(running: Any) -> list[dict[str, Any]]:
    return list((await running.json("/streams/s/sources"))["sources"])


async def test_a_batch_moves_the_position_of_its_source(running: Any) -> None:
    first = await send(running, create="true", source="orders", position="10")
    assert (first["log_offset"], first["replayed"]) == (2, None)
    await send(running, source="orders", position_before="10", position="25")
    await send(running, source="orders", partition="b/1", position="3")
    assert await listed(running) == [
        {
            "source": "orders", "partition": "0", "position": "25", "before": "10", "n_points": 2, "seq": 2,
            "log_offset": 4,
        },
        {
            "source": "orders", "partition": "b/1", "position": "3", "before": None, "n_points": 2, "seq": 3,
            "log_offset": 6,
        },
    ]  # fmt: skip


async def test_a_batch_from_elsewhere_is_a_problem_that_tells_the_position(running: Any) -> None:
    await send(running, create="true", source="orders", position="10")
    problem = await send(running, 409, source="orders", position_before="9", position="25")
    assert problem["type"] == "/problems/source-position"
    assert problem["position"] == "10"
    assert problem["retryable"] is False
    assert "'orders' is stored up to '10' in stream 's'" in problem["detail"]
    problem = await send(running, 409, source="other", position_before="9", position="25")
    assert "position" not in problem
    assert [held["position"] for held in await listed(running)] == ["10"]
    assert (await running.json("/streams/s"))["log_offset"] == 2


async def test_the_last_batch_may_be_repeated(running: Any) -> None:
    first = await send(running, create="true", source="orders", position="10")
    again = await send(running, source="orders", position="10")
    assert again == {**first, "replayed": "true"}
    assert (await running.json("/streams/s"))["log_offset"] == 2


async def test_a_bad_batch_moves_no_position(running: Any) -> None:
    await send(running, create="true", source="orders", position="10")
    params = {"source": "orders", "position_before": "10", "position": "11"}
    reply = await running.http.post("/streams/s/ingest", params=params, json={"points": [[1.0]]})
    assert reply.status_code == 400
    assert [held["position"] for held in await listed(running)] == ["10"]


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"source": "orders"}, "position is missing"),
        ({"position": "1"}, "no source is named"),
        ({"partition": "1"}, "no source is named"),
        ({"source": "a/b", "position": "1"}, "source is 'a/b'; use 1 to 100 letters"),
        ({"source": "a", "position": "x y"}, "position is 'x y'; use 1 to 256 printable"),
        ({"source": "a", "position": "1", "partition": ""}, "partition is ''; use 1 to 150"),
        ({"source": "a", "position": "1", "position_before": "1"}, "a step leads to another position"),
    ],
)
@ON_MEMORY
async def test_wrong_words_are_refused(running: Any, params: dict[str, str], said: str) -> None:
    problem = await send(running, 400, create="true", **params)
    assert problem["type"] == "/problems/parameter"
    assert said in problem["detail"]


async def test_positions_are_forgotten_on_request_and_with_the_stream(running: Any) -> None:
    await send(running, create="true", source="orders", position="10")
    await send(running, source="orders", partition="1", position="10")
    await send(running, source="taps", position="10")
    url = "/streams/s/sources"
    assert (await running.http.delete(f"{url}/orders", params={"partition": "1"})).status_code == 204
    assert [held["source"] for held in await listed(running)] == ["orders", "taps"]
    reply = await running.http.delete(f"{url}/orders", params={"partition": "1"})
    assert (reply.status_code, reply.json()["type"]) == (404, "/problems/unknown-source")
    assert (await running.http.delete(f"{url}/orders")).status_code == 204
    assert [held["source"] for held in await listed(running)] == ["taps"]
    await send(running, source="orders", position="1")
    await running.http.delete("/streams/s")
    await send(running, create="true", source="taps", position="1")
    assert [held["log_offset"] for held in await listed(running)] == [2]


async def test_a_batch_that_goes_on_from_a_position_creates_no_stream(running: Any) -> None:
    """A connector that still runs after its stream was deleted does not bring it back."""
    for path, params in (("/streams/s/ingest", {"create": "true"}), ("/ingest", {})):
        step = {"source": "orders", "position_before": "10", "position": "25"}
        reply = await running.http.post(path, params={**params, **step}, json=POINTS)
        assert (reply.status_code, reply.json()["type"]) == (409, "/problems/source-position")
    assert (await running.json("/streams"))["streams"] == []


async def test_a_damaged_position_can_be_forgotten_as_its_error_says(running: Any) -> None:
    await send(running, create="true", source="orders", position="10")
    await send(running, source="orders", partition="1", position="10")
    store = running.service.store
    if hasattr(store, "sharing"):
        key = store._keys("s", (await running.json("/streams/s"))["incarnation"]).documents
        store._connections.ask(("HSET", key, "sources/orders/1", b"12345678" + b"{}"))
    else:
        damage = "UPDATE documents SET value = x'00' WHERE name = 'orders/1'"
        await asyncio.to_thread(store._writer.run, lambda tx: tx.db.execute(damage))
    batch = {"source": "orders", "partition": "1", "position_before": "10", "position": "25"}
    reply = await running.http.post("/streams/s/ingest", params=batch, json=POINTS)
    assert (reply.status_code, reply.json()["type"]) == (409, "/problems/source-position")
    assert "is damaged" in reply.json()["detail"]
    url = "/streams/s/sources/orders"
    assert (await running.http.delete(url, params={"partition": "1"})).status_code == 204
    assert (await running.http.delete(url, params={"partition": "1"})).status_code == 404
    assert (await send(running, source="orders", partition="1", position="25"))["log_offset"] == 6
