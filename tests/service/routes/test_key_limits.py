"""Limits of a key over HTTP: 429 with Retry-After, for that key alone, and nothing of a refused batch is stored."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import numpy as np
import pytest

from shoal_service.access import Grant, Limits, Scope
from shoal_service.client import Client

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("store_kind", ["memory"])]

ADMIN_KEY = "the-admin-key-of-these-tests"
ADMIN = {"api-key": ADMIN_KEY}


class Clock:
    """The clock of the limits, which a test moves. A busy machine changes nothing then."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def keyed(start: Any) -> Any:
    @asynccontextmanager
    async def running() -> AsyncIterator[tuple[Any, Clock]]:
        async with start(admin_key=ADMIN_KEY) as running:
            running.service.access._steady_clock = clock = Clock()
            yield running, clock

    return running


def key_of(running: Any, scope: str = "write", patterns: tuple[str, ...] = (), **limits: float) -> dict[str, str]:
    grant = Grant(Scope(scope), patterns, limits=Limits(**limits))  # type: ignore[arg-type]
    return {"api-key": running.service.access.create("gauge", grant).secret}


def check_refused(reply: httpx.Response, words: str) -> None:
    assert (reply.status_code, reply.json()["type"]) == (429, "/problems/rate-limited"), reply.text
    assert reply.json()["retryable"] is True
    assert int(reply.headers["retry-after"]) >= reply.json()["retry_after"] > 0.0
    assert words in reply.json()["detail"]


async def test_requests_a_second(keyed: Any) -> None:
    async with keyed() as (running, clock):
        own, other = key_of(running, requests_per_s=3.0), key_of(running, requests_per_s=3.0)
        replies = [await running.http.get("/streams", headers=own) for _ in range(4)]
        assert [reply.status_code for reply in replies] == [200] * 3 + [429]
        check_refused(replies[-1], "3 requests a second")
        assert (await running.http.get("/streams", headers=other)).status_code == 200
        assert (await running.http.get("/streams", headers=ADMIN)).status_code == 200
        assert (await running.http.get("/healthz", headers=own)).status_code == 200
        clock.now += replies[-1].json()["retry_after"]
        assert (await running.http.get("/streams", headers=own)).status_code == 200


async def test_what_is_forbidden_counts_as_well(keyed: Any) -> None:
    async with keyed() as (running, _clock):
        own = key_of(running, "read", requests_per_s=1.0)
        asked = [(await running.http.delete("/streams/a", headers=own)).status_code for _ in range(3)]
        assert asked == [403, 429, 429]


async def test_points_a_second_and_nothing_of_a_refused_batch_is_stored(keyed: Any) -> None:
    async with keyed() as (running, clock):
        own = key_of(running, points_per_s=100.0)
        body = json.dumps({"points": np.zeros((80, 2)).tolist()})
        headers = {**own, "Content-Type": "application/json", "Idempotency-Key": "one"}
        assert (await running.http.post("/ingest", content=body, headers=headers)).status_code == 202
        headers["Idempotency-Key"] = "two"
        refused = await running.http.post("/ingest", content=body, headers=headers)
        check_refused(refused, "100 points a second")
        assert running.tails()["default"][1] == 80
        check_refused(await running.http.post("/predict", content=body, headers=headers), "100 points a second")
        clock.now += refused.json()["retry_after"]
        again = await running.http.post("/ingest", content=body, headers=headers)
        assert (again.status_code, again.json()["log_offset"]) == (202, 160)


async def test_bytes_in_flight_of_one_key_and_of_no_other(keyed: Any) -> None:
    async with keyed() as (running, _clock):
        own, other = key_of(running, bytes_in_flight=5000), key_of(running)
        going_on, done = asyncio.Event(), asyncio.Event()
        body = json.dumps({"points": np.zeros((450, 2)).tolist()}).encode()
        assert 5000 < len(body) < 6000

        async def slow() -> Any:
            yield body[:3000]
            going_on.set()
            await done.wait()
            yield b""

        kind = {"Content-Type": "application/json"}
        held = asyncio.create_task(running.http.post("/ingest", content=slow(), headers=own | kind))
        await going_on.wait()
        refused = await running.http.post("/ingest", content=body[:3000], headers=own | kind)
        check_refused(refused, "5000 bytes in flight")
        assert (await running.http.post("/ingest", content=body, headers=other | kind)).status_code == 202
        done.set()
        assert (await held).status_code == 400  # half a document
        small = await running.http.post("/ingest", content=b'{"points": [[0, 0]]}', headers=own | kind)
        assert small.status_code == 202, small.text
        large = await running.http.post("/ingest", content=body, headers=own | kind)
        assert (large.status_code, large.json()["type"]) == (413, "/problems/body-too-large")


async def test_streams_of_a_key(keyed: Any) -> None:
    async with keyed() as (running, _clock):
        own = key_of(running, "write", ("sea-*", "default"), streams=2)
        settings = {"n_features": 2}
        for name in ("lake-1", "lake-2", "sea-1"):
            assert (await running.http.put(f"/streams/{name}", json=settings, headers=ADMIN)).status_code == 201
        assert (await running.http.put("/streams/sea-2", json=settings, headers=own)).status_code == 201
        check_refused(await running.http.put("/streams/sea-3", json=settings, headers=own), "may have 2")
        check_refused(await running.http.post("/ingest", json={"points": [[0, 0]]}, headers=own), "may have 2")
        changed = await running.http.put("/streams/sea-1", json={"half_life": 50}, headers=own)
        assert changed.status_code == 200, changed.text
        assert (await running.http.delete("/streams/sea-1", headers=ADMIN)).status_code == 204
        assert (await running.http.put("/streams/sea-3", json=settings, headers=own)).status_code == 201


async def test_streams_created_at_once_stay_within_the_number(keyed: Any) -> None:
    async with keyed() as (running, _clock):
        own = key_of(running, "admin", ("sea-*",), streams=2)
        made = await running.http.put("/streams/lake", json={"n_features": 2}, headers=ADMIN)
        assert made.status_code == 201, made.text
        snapshot = (await running.http.get("/streams/lake/snapshot?timeout=60", headers=ADMIN)).content
        kind, body = {"content-type": "application/vnd.shoal.snapshot"}, {"points": [[1.0, 2.0]]}
        await running.http.put("/streams/sea-0", json={"n_features": 2}, headers=own)
        replies = await asyncio.gather(
            *(running.http.put(f"/streams/sea-1{i}", json={"n_features": 2}, headers=own) for i in range(4)),
            *(running.http.post(f"/streams/sea-2{i}/ingest?create=true", json=body, headers=own) for i in range(4)),
            *(running.http.put(f"/streams/sea-3{i}/snapshot", content=snapshot, headers=own | kind) for i in range(4)),
        )
        refused = [reply for reply in replies if reply.status_code == 429]
        assert len(refused) == len(replies) - 1, [reply.text for reply in replies]
        for reply in refused:
            check_refused(reply, "may have 2")
        streams = (await running.http.get("/streams", headers=own)).json()["streams"]
        assert len(streams) == 2


async def test_a_first_batch_creates_a_stream_with_the_scope_write_and_within_the_number_of_streams(keyed: Any) -> None:
    async with keyed() as (running, _):
        body = {"points": [[1.0, 2.0]]}
        read = {"api-key": running.service.access.create("reader", Grant(Scope.READ)).secret}
        write = key_of(running, "write", ("sea-*",), streams=1)
        for key, name, status in (
            (read, "sea-1", 403),
            (write, "land", 403),
            (write, "sea-1", 202),
            (write, "sea-2", 429),
        ):
            reply = await running.http.post(f"/streams/{name}/ingest?create=true", json=body, headers=key)
            assert reply.status_code == status, (name, reply.text)


async def test_limits_are_given_listed_and_changed_with_the_key(keyed: Any) -> None:
    async with keyed() as (running, _clock):
        limits = {"requests_per_s": 2.5, "streams": 3}
        asked = {"name": "a", "scope": "read", "limits": limits}
        made = (await running.http.post("/keys", json=asked, headers=ADMIN)).json()
        every = {"requests_per_s": 2.5, "points_per_s": None, "bytes_in_flight": None, "streams": 3}
        assert made["limits"] == every
        assert (await running.http.get("/keys", headers=ADMIN)).json()["keys"][-1]["limits"] == every
        own = {"api-key": made["key"]}
        assert [(await running.http.get("/streams", headers=own)).status_code for _ in range(3)] == [200, 200, 429]
        await running.http.post("/keys", json={"name": "b", "scope": "read"}, headers=ADMIN)
        again = await running.http.get("/streams", headers=own)
        assert again.status_code == 429, "another key does not fill the bucket of this one"
        for wrong in ({"requests_per_s": 0}, {"streams": -1}, {"streams": 1.5}, {"rows": 1}, {"points_per_s": "many"}):
            reply = await running.http.post("/keys", json={**asked, "limits": wrong}, headers=ADMIN)
            assert (reply.status_code, reply.json()["type"]) == (400, "/problems/parameter"), wrong


async def test_the_client_waits_as_it_is_told(keyed: Any) -> None:
    async with keyed() as (running, clock):
        own = key_of(running, requests_per_s=2.0)
        loop = asyncio.get_running_loop()

        def deliver(request: httpx.Request) -> httpx.Response:
            """From the thread of the client into the service, which runs in the loop of the test."""
            sent = running.http.request(
                request.method, str(request.url), headers=dict(request.headers), content=request.content
            )
            reply = asyncio.run_coroutine_threadsafe(sent, loop).result(120)
            return httpx.Response(reply.status_code, headers=reply.headers, content=reply.content)

        pauses: list[float] = []

        def wait(seconds: float) -> None:
            pauses.append(seconds)
            clock.now += seconds

        def work() -> None:
            with Client("http://localhost", api_key=own["api-key"], transport=httpx.MockTransport(deliver)) as client:
                client._sleep = wait
                for _ in range(4):
                    client.streams()

        await asyncio.to_thread(work)
        assert pauses == [1.0], "the third of four requests waits a second: Retry-After is in whole seconds"
