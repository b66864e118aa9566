"""/healthz, /readyz, /metrics, the pages, and what every answer has."""

import asyncio
import json
import os
import re
import time
from typing import Any

import numpy as np
import pytest

from harness.waiting import LONGEST_WAIT_S, eventually_async
from shoal_service.errors import LogGapError, NotReadyError, StoreUnavailableError
from shoal_service.middleware import RequestMiddleware
from shoal_service.streams import known_streams
from shoal_service.streams.learner import LearnerPool

pytestmark = pytest.mark.anyio
ON_MEMORY = pytest.mark.parametrize("store_kind", ["memory"])


async def ready(running: Any) -> Any:
    until = time.monotonic() + LONGEST_WAIT_S
    while (reply := await running.http.get("/readyz")).status_code != 200:
        assert reply.json()["type"] == "/problems/not-ready"
        assert time.monotonic() < until, "never ready"
        await asyncio.sleep(0.01)
    return reply


@pytest.mark.parametrize("store_kind", ["memory", "sqlite", pytest.param("redis", marks=pytest.mark.redis)])
async def test_it_is_alive_at_once_and_ready_soon(running: Any, store_kind: str) -> None:
    assert (await running.json("/healthz"))["status"] == "ok"
    answer = (await ready(running)).json()
    assert answer["status"] == "ready"
    assert answer["store"] == store_kind, "no path, no address"
    assert answer["streams"] == 0


@ON_MEMORY
async def test_probes_may_add_parameters(running: Any) -> None:
    for path in ("/healthz", "/metrics", "/"):
        assert (await running.http.get(path, params={"probe": "1"})).status_code == 200, path


@ON_MEMORY
async def test_an_unknown_path_or_method_is_a_problem_with_the_methods_of_the_path(running: Any) -> None:
    reply = await running.http.get("/nowhere")
    assert (reply.status_code, reply.headers["content-type"]) == (404, "application/problem+json")
    reply = await running.http.put("/predict")
    assert (reply.status_code, reply.headers["allow"]) == (405, "GET, POST, HEAD")
    assert reply.json()["type"] == "about:blank"


@ON_MEMORY
async def test_it_is_not_ready_while_the_store_takes_nothing(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await ready(running)

    def full() -> None:
        raise StoreUnavailableError("the disk is full")

    monkeypatch.setattr(running.store, "check", full)
    reply = await running.http.get("/readyz")
    assert reply.status_code == 503
    assert reply.json()["type"] == "/problems/store-unavailable"
    assert "retry-after" in reply.headers


@ON_MEMORY
async def test_it_is_not_ready_while_kernels_are_compiled(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def cold() -> None:
        raise NotReadyError("compiling")

    monkeypatch.setattr(running.service.warmth, "check", cold)
    assert (await running.http.get("/readyz")).status_code == 503
    assert (await running.http.get("/healthz")).status_code == 200
    assert (await running.ingest([[1.0]])).status_code == 202, "what is durable can be learnt later"


async def test_it_takes_nothing_more_once_it_stops(running: Any) -> None:
    await running.learn([[0.0, 0.0]])
    running.service.streams.known.stop_accepting()
    for reply in (
        await running.http.get("/readyz"),
        await running.ingest([[0.0, 0.0]]),
        await running.http.put("/streams/a", json={"n_features": 1}),
    ):
        assert reply.status_code == 503
        assert reply.json()["type"] == "/problems/not-ready"
        assert reply.json()["retryable"] is True
    assert (await running.http.get("/healthz")).status_code == 200
    assert (await running.http.get("/components")).status_code == 200
    assert running.tails() == {"default": (1, 1)}


def sample(text: str, name: str) -> float:
    (value,) = re.findall(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(value)


async def test_metrics_count_what_happened(running: Any, clusters: np.ndarray) -> None:
    await running.learn(clusters)
    await running.http.get("/predict", params={"x": "0,0"})
    await running.http.get("/predict", params={"x": "0"})
    await running.http.get("/nowhere/123")
    reply = await running.http.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    text, stream = reply.text, '{stream="default"}'
    assert sample(text, f"shoal_points_ingested_total{stream}") == 600
    assert sample(text, f"shoal_points_applied_total{stream}") == 600
    assert sample(text, f"shoal_log_offset{stream}") == 600
    assert sample(text, f"shoal_lag_points{stream}") == 0
    assert sample(text, f"shoal_components{stream}") == 3
    assert sample(text, f"shoal_dead_letters_total{stream}") == 0
    births, gone = (
        sample(text, f"shoal_component_births_total{stream}"),
        sample(text, f"shoal_component_merges_total{stream}") + sample(text, f"shoal_component_prunes_total{stream}"),
    )
    assert births - gone == 3
    assert sample(text, f"shoal_checkpoint_seconds_count{stream}") >= 1
    assert sample(text, f"shoal_checkpoint_bytes{stream}") > 100
    assert sample(text, 'shoal_request_seconds_count{method="GET",route="/predict",status="2xx"}') == 1
    assert sample(text, 'shoal_request_seconds_count{method="GET",route="/predict",status="4xx"}') == 1
    assert sample(text, 'shoal_request_seconds_count{method="any",route="unmatched",status="4xx"}') == 1
    assert "/nowhere" not in text


async def test_metrics_say_whether_the_store_accepts_writes_and_what_room_the_disk_has(
    running: Any, store_kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (await running.http.get("/metrics")).text
    assert sample(text, "shoal_store_accepts_writes") == 1
    if store_kind == "sqlite":
        room = os.statvfs(running.service.settings.data_dir)
        assert sample(text, "shoal_disk_size_bytes") == room.f_blocks * room.f_frsize
        free = sample(text, "shoal_disk_free_bytes")
        assert free == pytest.approx(room.f_bavail * room.f_frsize, abs=2**30)  # others write, too
    else:
        assert "shoal_disk" not in text, "this process has no folder of its own"

    def full() -> None:
        raise StoreUnavailableError("the disk is full")

    monkeypatch.setattr(running.store, "check", full)
    assert sample((await running.http.get("/metrics")).text, "shoal_store_accepts_writes") == 0


@ON_MEMORY
async def test_metrics_of_a_deleted_stream_end_with_it(running: Any) -> None:
    await running.http.put("/streams/brief", json={"n_features": 1})
    await running.json("/streams/brief/components")
    assert 'stream="brief"' in (await running.http.get("/metrics")).text
    assert 'route="/streams/{stream}/components"' in (await running.http.get("/metrics")).text
    await running.http.delete("/streams/brief")
    assert 'stream="brief"' not in (await running.http.get("/metrics")).text


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost.evil", "[::2]"])
@ON_MEMORY
async def test_a_host_that_is_not_on_the_list_is_refused(running: Any, host: str) -> None:
    for path in ("/components", "/healthz", "/", "/docs", "/nowhere"):
        reply = await running.http.get(path, headers={"Host": host})
        assert reply.status_code == 421
        assert reply.json()["type"] == "/problems/host-not-allowed"


@ON_MEMORY
async def test_a_request_without_a_host_is_malformed(running: Any) -> None:
    request = running.http.build_request("GET", "/healthz")
    del request.headers["host"]
    reply = await running.http.send(request)
    assert (reply.status_code, reply.json()["type"]) == (400, "/problems/parameter")  # RFC 9112, 3.2


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "127.0.0.1:9", "LOCALHOST", "[::1]:80"])
@ON_MEMORY
async def test_loopback_hosts_are_allowed(running: Any, host: str) -> None:
    assert (await running.http.get("/healthz", headers={"Host": host})).status_code == 200


@ON_MEMORY
async def test_what_is_not_there_is_a_problem(running: Any) -> None:
    for method, path, status in (
        ("GET", "/nowhere", 404), ("DELETE", "/components", 405), ("PATCH", "/streams/a", 405), ("GET", "/ingest", 405),
        ("GET", "/static/none.js", 404), ("GET", "/static/../app.py", 404), ("POST", "/events", 405),
        ("GET", "/refine", 405),
    ):  # fmt: skip
        reply = await running.http.request(method, path)
        assert reply.status_code == status, path
        assert reply.headers["content-type"] == "application/problem+json"
        problem = reply.json()
        assert problem["status"] == status
        assert problem["type"] == "about:blank"
        if status == 405:
            assert reply.headers["allow"]


@ON_MEMORY
async def test_a_405_names_every_method_that_is_there(running: Any) -> None:
    for path, methods in (
        ("/predict", {"GET", "HEAD", "POST"}),
        ("/snapshot", {"GET", "HEAD", "PUT"}),
        ("/streams/a", {"GET", "HEAD", "PUT", "DELETE"}),
    ):
        reply = await running.http.request("PATCH", path)
        assert set(reply.headers["allow"].replace(" ", "").split(",")) == methods
        assert set(reply.json()["detail"].split("; send ")[1].split("; ")[0].split(" or ")) == methods - {"HEAD"}


@ON_MEMORY
async def test_head_answers_as_get_without_the_content(running: Any, clusters: Any) -> None:
    await running.learn(clusters)
    for path in ("/healthz", "/components", "/snapshot", "/streams", "/docs", "/metrics"):
        whole, head = await running.http.get(path), await running.http.head(path)
        assert (head.status_code, head.content) == (200, b""), path
        assert head.headers["content-type"] == whole.headers["content-type"]
        if path not in ("/metrics", "/streams"):  # counters have grown since, and so has the age of a snapshot
            assert head.headers["content-length"] == str(len(whole.content)), path
    assert (await running.http.head("/nothing")).status_code == 404
    assert (await running.http.head("/ingest")).status_code == 405
    etag = (await running.http.head("/components")).headers["etag"]
    assert (await running.http.head("/components", headers={"If-None-Match": etag})).status_code == 304


@ON_MEMORY
async def test_head_of_the_events_ends(running: Any) -> None:
    """It held its connection for ever, and the next request on it got no answer."""
    await running.ingest([[0.0, 1.0]])
    reply = await asyncio.wait_for(running.http.head("/events"), LONGEST_WAIT_S)
    assert (reply.status_code, reply.content) == (200, b"")
    assert reply.headers["content-type"].startswith("text/event-stream")


@ON_MEMORY
async def test_a_fault_of_our_own_says_nothing_of_its_insides(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("secret insides")

    monkeypatch.setattr(running.service.streams, "view", broken)
    reply = await running.http.get("/components")
    assert reply.status_code == 500
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.json()["type"] == "/problems/internal"
    assert "secret" not in reply.text
    (line,) = [entry for entry in running.log() if entry["event"] == "request_failed"]
    assert "secret insides" in line["exception"]
    assert line["request_id"] == reply.headers["x-request-id"]


@ON_MEMORY
async def test_log_lines_carry_the_request_and_no_payload(running: Any) -> None:
    reply = await running.http.post(
        "/ingest", json={"points": [[123.456, 2.0]]}, headers={"X-Request-Id": "abc-1", "Idempotency-Key": "my-key"}
    )
    assert reply.headers["x-request-id"] == "abc-1"
    lines = [entry for entry in running.log() if entry["event"] == "request"]
    assert lines[-1]["request_id"] == "abc-1"
    assert (lines[-1]["method"], lines[-1]["route"], lines[-1]["status"]) == ("POST", "/ingest", 202)
    assert lines[-1]["ms"] > 0
    assert "123.456" not in running.written.getvalue()
    assert "my-key" not in running.written.getvalue()
    odd = await running.http.get("/healthz", headers={"X-Request-Id": "has spaces\tand more"})
    assert re.fullmatch("[0-9a-f]{32}", odd.headers["x-request-id"])
    for line in running.written.getvalue().splitlines():
        assert {"time", "level", "event"} <= json.loads(line).keys()


@ON_MEMORY
async def test_stopping_drains_and_says_so(start: Any, clusters: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    pools: list[LearnerPool] = []

    class Pool(LearnerPool):
        def __init__(self) -> None:
            super().__init__()
            pools.append(self)

    monkeypatch.setattr(known_streams, "LearnerPool", Pool)
    async with start() as running:
        await running.ingest(clusters)
        (pool,) = pools
        assert pool.n_threads > 0
    assert running.log()[-1]["event"] == "service_stopped"
    assert running.log()[-1]["drained"] is True
    await eventually_async(lambda: pool.n_threads == 0, lambda: pool.n_threads)


@ON_MEMORY
async def test_who_still_waits_when_the_time_to_stop_is_up_is_told(
    running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = asyncio.Event()

    async def for_ever(*_: Any, **__: Any) -> None:
        waiting.set()
        await asyncio.sleep(3600)

    monkeypatch.setattr(running.service.streams, "view", for_ever)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": "/components", "raw_path": b"/components", "query_string": b"", "headers": [(b"host", b"localhost")],
        "root_path": "", "client": ("127.0.0.1", 9), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    request = asyncio.create_task(running.http._transport.app(scope, receive, send))
    await asyncio.wait_for(waiting.wait(), 120)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert sent[0]["status"] == 503
    assert b"not-ready" in sent[1]["body"]


@ON_MEMORY
async def test_a_fault_of_the_store_is_logged_with_its_reason_and_answered_without(
    running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise LogGapError("entry 17 of stream 'default' is missing")

    monkeypatch.setattr(running.service.streams, "view", broken)
    for path in ("/components", "/predict?x=1,2"):  # by the framework's routing, and past it
        reply = await running.http.get(path)
        assert (reply.status_code, reply.json()["type"]) == (500, "/problems/log-gap")
        assert "17" not in reply.text
        line = next(entry for entry in running.log() if entry.get("request_id") == reply.headers["x-request-id"])
        assert line["event"] == "request_failed"
        assert line["reason"] == "LogGapError: entry 17 of stream 'default' is missing"


@ON_MEMORY
async def test_an_error_after_the_answer_has_begun_is_in_the_log(running: Any) -> None:
    sent: list[Any] = []

    async def broken(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise StoreUnavailableError("the disk is full")

    async def send(message: Any) -> None:
        sent.append(message)

    service = running.service
    middleware = RequestMiddleware(
        broken, allowed_hosts=["*"], metrics=service.metrics, request_log=service.request_log, log=service.log
    )
    headers = [(b"x-request-id", b"first"), (b"host", b"a"), (b"x-request-id", b"second")]
    scope = {"type": "http", "method": "GET", "path": "/events", "headers": headers, "path_params": {}}
    await middleware(scope, None, send)  # type: ignore[arg-type]
    assert [message["type"] for message in sent] == ["http.response.start"], "no second answer"
    lines = [entry for entry in running.log() if entry.get("request_id") == "first"]  # of two the first
    assert [line["event"] for line in lines] == ["request_failed", "request"]
    assert "the disk is full" in lines[0]["reason"]


@ON_MEMORY
async def test_the_line_of_a_request_comes_by_itself(running: Any) -> None:
    await running.http.get("/streams", headers={"X-Request-Id": "by-itself"})
    await eventually_async(lambda: '"by-itself"' in running.written.getvalue(), "never written")
