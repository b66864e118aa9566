"""POST /ingest: durable, whole or not at all, once."""

import asyncio
import gzip
import io
import json
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pytest
from starlette.requests import ClientDisconnect

from harness.in_turn import in_turn
from shoal_service.wire import from_log

pytestmark = pytest.mark.anyio
ON_MEMORY = pytest.mark.parametrize("store_kind", ["memory"])

JSON = {"Content-Type": "application/json"}
MSGPACK = {"Content-Type": "application/msgpack"}
NPY = {"Content-Type": "application/x-npy"}
NDJSON = {"Content-Type": "application/x-ndjson"}
ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}


def npy(x: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, x)
    return file.getvalue()


def arrow(x: np.ndarray) -> bytes:
    file = io.BytesIO()
    lists = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), x.shape[1])
    with pa.ipc.new_stream(file, pa.schema([("x", lists.type)])) as stream:
        stream.write_batch(pa.record_batch([lists], ["x"]))
    return file.getvalue()


def packed(x: np.ndarray, **changes: Any) -> bytes:
    code = "f4" if x.dtype == np.float32 else "f8"
    return msgspec.msgpack.encode({"d": x.shape[1], "x": x.tobytes(), "t": code, **changes})


async def test_the_answer_is_202_with_the_place_in_the_log(running: Any) -> None:
    first = await running.ingest([[1.0, 2.0], [3.0, 4.0]])
    assert first.status_code == 202
    (record,) = running.store.list_streams()
    assert first.json() == {
        "stream": "default",
        "incarnation": record.incarnation,
        "accepted": 2,
        "log_offset": 2,
    }
    second = await running.ingest([[5.0, 6.0]])
    assert second.json()["log_offset"] == 3
    assert "idempotency-replayed" not in second.headers


async def test_what_was_acknowledged_is_in_the_log_as_it_was_sent(running: Any) -> None:
    x4, x8 = np.array([[0.1, 0.2]], np.float32), np.array([[0.1, 0.2]])
    for content, headers in (
        (json.dumps({"points": [[0.1, 0.2]]}).encode(), JSON),
        (packed(x4), MSGPACK),
        (npy(x8), NPY),
        (gzip.compress(npy(x8), mtime=0), NPY | {"Content-Encoding": "gzip"}),
        (b"[0.1, 0.2]\n", NDJSON),
        (arrow(x4), ARROW),
    ):
        reply = await running.http.post("/ingest", content=content, headers=headers)
        assert reply.status_code == 202, reply.text
    (record,) = running.store.list_streams()
    entries = running.store.read(record.name, record.incarnation, 0, max_bytes=1 << 20)
    assert [from_log(entry.payload).tolist() for entry in entries] == [
        x8.tolist(),
        x4.tolist(),
        x8.tolist(),
        x8.tolist(),
        x8.tolist(),
        x4.tolist(),
    ]
    assert [entry.log_offset for entry in entries] == [1, 2, 3, 4, 5, 6]


async def test_wait_applied_answers_with_the_component_of_each_point(running: Any, clusters: np.ndarray) -> None:
    await running.learn(clusters)
    answer = await running.learn(clusters[:6])
    assert answer["accepted"] == 6
    assert answer["log_offset"] == 606
    ids = answer["components"]
    assert len(set(ids)) == 3
    assert ids[:3] == ids[3:]
    live = {c["id"] for c in (await running.json("/components"))["components"]}
    assert set(ids) <= live, "readers see what the answer speaks of"


async def test_wait_that_runs_out_answers_202_and_keeps_the_batch(
    running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shoal_service.streams.learner import thread

    await running.learn([[0.0, 0.0]])
    apply_inplace, go_on = thread.apply_inplace, threading.Event()

    def slow(*arguments: Any) -> Any:
        go_on.wait(120)
        return apply_inplace(*arguments)

    monkeypatch.setattr(thread, "apply_inplace", slow)
    reply = await running.ingest([[1.0, 1.0]], wait="applied", timeout=0.05)
    go_on.set()
    assert reply.status_code == 202
    assert reply.json()["log_offset"] == 2
    assert "components" not in reply.json()
    assert (await running.json("/components", min_offset=2))["points_seen"] == 2


async def test_a_named_stream_takes_points_under_its_own_path(running: Any) -> None:
    await running.http.put("/streams/rain", json={"n_features": 1})
    reply = await running.ingest([[1.0]], "/streams/rain/ingest")
    assert reply.status_code == 202
    assert reply.json()["stream"] == "rain"
    assert set(running.tails()) == {"rain"}


async def test_the_default_stream_gets_the_dimension_of_its_first_points(running: Any) -> None:
    await running.ingest([[1.0, 2.0, 3.0]], "/streams/default/ingest")
    settings = (await running.json("/streams/default"))["settings"]
    assert settings["n_features"] == 3
    assert settings["family"] == "gaussian"
    reply = await running.ingest([[1.0, 2.0]])
    assert reply.status_code == 400
    assert reply.json()["type"] == "/problems/shape"
    assert "expects 3" in reply.json()["detail"]
    assert running.tails() == {"default": (1, 1)}


async def test_first_points_of_many_clients_at_once_make_one_stream(running: Any) -> None:
    replies = await asyncio.gather(*(running.ingest([[float(n), 0.0]]) for n in range(8)))
    assert [r.status_code for r in replies] == [202] * 8
    assert len({r.json()["incarnation"] for r in replies}) == 1
    assert sorted(r.json()["log_offset"] for r in replies) == list(range(1, 9))


BAD = {
    "ragged": (b'{"points": [[1, 2], [3]]}', JSON, 400, "/problems/shape", 1),
    "empty list": (b'{"points": []}', JSON, 400, "/problems/shape", None),
    "empty rows": (b'{"points": [[]]}', JSON, 400, "/problems/shape", 0),
    "empty body": (b"", JSON, 400, "/problems/malformed-body", None),
    "NaN": (npy(np.array([[1.0, 2.0], [np.nan, 0.0]])), NPY, 400, "/problems/not-finite", 1),
    "infinity": (npy(np.array([[1.0, np.inf]])), NPY, 400, "/problems/not-finite", 0),
    "NaN in JSON": (b'{"points": [[1, NaN]]}', JSON, 400, "/problems/not-finite", 0),
    "beyond float64": (b'{"points": [[1, 1e400]]}', JSON, 400, "/problems/not-finite", 0),
    "too large to square": (b'{"points": [[1, 2], [1, 1e151]]}', JSON, 400, "/problems/not-finite", 1),
    "1e39 in an f4 body": (
        packed(np.array([[1.0, np.inf]], np.float32)), MSGPACK, 400, "/problems/not-finite", 0,
    ),
    "boolean": (b'{"points": [[1, 2], [true, 2]]}', JSON, 400, "/problems/not-numeric", 1),
    "string": (b'{"points": [[1, "2"]]}', JSON, 400, "/problems/not-numeric", 0),
    "null": (b'{"points": [[1, null]]}', JSON, 400, "/problems/not-numeric", 0),
    "truncated JSON": (b'{"points": [[1, 2', JSON, 400, "/problems/malformed-body", None),
    "truncated MessagePack": (packed(np.ones((3, 2)))[:-3], MSGPACK, 400, "/problems/malformed-body", None),
    "MessagePack that lies about its width": (
        packed(np.ones((3, 2)), d=4), MSGPACK, 400, "/problems/malformed-body", None,
    ),
    "truncated npy": (npy(np.ones((30, 2)))[:-8], NPY, 400, "/problems/malformed-body", None),
    "npy that lies about its size": (
        npy(np.ones((3, 2))).replace(b"(3, 2)", b"(9, 2)"), NPY, 400, "/problems/malformed-body", None,
    ),
    "npy of objects": (npy(np.array([[1, "a"]], dtype=object)), NPY, 400, None, None),
    "npy of complex numbers": (npy(np.array([[1j]])), NPY, 400, "/problems/not-numeric", None),
    "unknown content type": (b"1,2", {"Content-Type": "text/csv"}, 415, "/problems/unsupported-media-type", None),
    "no content type": (b"[]", {}, 415, "/problems/unsupported-media-type", None),
    "unknown encoding": (
        b'{"points": [[1, 2]]}', JSON | {"Content-Encoding": "br"}, 415, "/problems/unsupported-media-type", None,
    ),
    "no gzip although it says so": (
        b'{"points": [[1, 2]]}', JSON | {"Content-Encoding": "gzip"}, 400, "/problems/malformed-body", None,
    ),
    "over the limit": (b" " * ((1 << 20) + 1), JSON, 413, "/problems/body-too-large", None),
    "over the limit after gzip": (
        gzip.compress(b" " * (1 << 22), mtime=0), JSON | {"Content-Encoding": "gzip"},
        413, "/problems/body-too-large", None,
    ),
    "too many features": (npy(np.ones((1, 5000))), NPY, 400, "/problems/limit", None),
    "ragged lines": (b"[1, 2]\n[3]\n", NDJSON, 400, "/problems/shape", 1),
    "a line that is no JSON": (b"[1, 2]\n[3,\n", NDJSON, 400, "/problems/malformed-body", 1),
    "NaN in Arrow": (arrow(np.array([[1.0, np.nan]])), ARROW, 400, "/problems/not-finite", 0),
    "truncated Arrow": (arrow(np.ones((30, 2)))[:-20], ARROW, 400, "/problems/malformed-body", None),
    "an index beyond the stream's features": (
        b'{"points": [{"indices": [2], "values": [1]}]}', JSON, 400, "/problems/shape", 0,
    ),
}  # fmt: skip


@ON_MEMORY
@in_turn("name", BAD)
async def test_bad_input_is_a_problem_and_stores_nothing(running: Any, name: str) -> None:
    content, headers, status, kind, row = BAD[name]
    await running.ingest([[1.0, 2.0]])
    before = running.tails()
    for path in ("/ingest", "/predict"):
        reply = await running.http.post(path, content=content, headers=headers)
        assert reply.status_code == status, reply.text
        assert reply.headers["content-type"] == "application/problem+json"
        problem = reply.json()
        assert problem["status"] == status
        assert problem["retryable"] is False
        assert kind is None or problem["type"] == kind
        assert problem.get("row") == row
        assert "\n" not in problem["detail"]
        assert problem["detail"]
    assert running.tails() == before


@pytest.mark.parametrize("name", ["wrong dimension", "unknown stream", "bad stream name"])
@ON_MEMORY
async def test_bad_address_is_a_problem_and_stores_nothing(running: Any, name: str) -> None:
    await running.ingest([[1.0, 2.0]])
    before = running.tails()
    points, path, status, kind = {
        "wrong dimension": ([[1.0]], "/ingest", 400, "/problems/shape"),
        "unknown stream": ([[1.0]], "/streams/nobody/ingest", 404, "/problems/unknown-stream"),
        "bad stream name": ([[1.0]], "/streams/No%20body/ingest", 400, "/problems/stream-name"),
    }[name]
    reply = await running.ingest(points, path)
    assert (reply.status_code, reply.json()["type"]) == (status, kind)
    assert reply.headers["content-type"] == "application/problem+json"
    assert running.tails() == before


@ON_MEMORY
async def test_a_length_that_lies_over_the_limit_is_refused_before_the_body_is_read(running: Any) -> None:
    async def never() -> Any:
        raise AssertionError("the body was asked for")
        yield b""

    headers = JSON | {"Content-Length": str(1 << 30)}
    reply = await running.http.post("/ingest", content=never(), headers=headers)
    assert reply.status_code == 413
    assert reply.json()["type"] == "/problems/body-too-large"


@ON_MEMORY
async def test_a_body_without_length_is_refused_as_soon_as_it_is_over_the_limit(running: Any) -> None:
    sent = 0

    async def endless() -> Any:
        nonlocal sent
        while True:
            sent += 1
            yield b" " * 65_536

    reply = await asyncio.wait_for(running.http.post("/ingest", content=endless(), headers=JSON), 120)
    assert reply.status_code == 413
    assert sent <= 18
    assert running.tails() == {}


@ON_MEMORY
async def test_a_connection_cut_off_half_way_stores_nothing_and_is_one_log_line(running: Any) -> None:
    sent: list[Any] = []
    messages = iter(
        [
            {"type": "http.request", "body": b'{"points": [[1, 2]', "more_body": True},
            {"type": "http.disconnect"},
        ]
    )

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"90")]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": "/ingest", "raw_path": b"/ingest", "query_string": b"", "headers": headers, "root_path": "",
        "client": ("127.0.0.1", 9), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    before = len(running.log())
    await running.http._transport.app(scope, receive, send)
    assert sent == []
    assert running.tails() == {}
    (line,) = [said for said in running.log()[before:] if said["event"].startswith("request")]
    assert line["event"] == "request_cut_off"
    assert ClientDisconnect.__name__ not in running.written.getvalue()
    assert "shoal_requests_cut_off_total 1.0" in (await running.http.get("/metrics")).text


@ON_MEMORY
async def test_bodies_that_are_too_many_at_once_are_refused_for_now(start: Any) -> None:
    async with start() as running:
        uploads = running.service.uploads
        uploads._small.limit_bytes = 1000
        assert (await running.ingest(np.ones((200, 2)))).status_code == 202, "one body alone may be larger"
        uploads._small.held_bytes = 990
        reply = await running.ingest([[1.0, 2.0]])
        assert reply.status_code == 503
        assert reply.json()["retryable"] is True
        assert uploads._small.held_bytes == 990
        uploads._small.held_bytes = 0
        assert (await running.ingest([[1.0, 2.0]])).status_code == 202
        assert uploads._small.held_bytes == 0


async def test_past_its_byte_budget_the_log_takes_no_more_for_now(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from shoal_service.streams.learner import thread

    go_on = threading.Event()
    apply_inplace = thread.apply_inplace

    def stuck(*arguments: Any) -> Any:
        go_on.wait(120)
        return apply_inplace(*arguments)

    async with start(log_budget_bytes=1 << 20) as running:
        settings = {"n_features": 16, "family": "gaussian", "refinement": None}
        await running.http.put("/streams/default", json=settings)
        await running.learn([[0.0] * 16])
        monkeypatch.setattr(thread, "apply_inplace", stuck)
        body = npy(np.ones((7_000, 16)))
        replies = [await running.http.post("/ingest", content=body, headers=NPY) for _ in range(4)]
        go_on.set()
        assert [r.status_code for r in replies] == [202, 202, 503, 503], replies[1].text
        refused = replies[-1]
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["type"] == "/problems/overloaded"
        assert refused.json()["retryable"] is True
        await running.json("/components", min_offset=14_001)
        assert (await running.http.post("/ingest", content=body, headers=NPY)).status_code == 202


@pytest.fixture
def go_on(monkeypatch: pytest.MonkeyPatch) -> Callable[[], threading.Event]:
    """Call it, and learners are stuck until the event is set."""
    from shoal_service.streams.learner import thread

    event = threading.Event()
    apply_inplace = thread.apply_inplace

    def stuck(*arguments: Any) -> Any:
        event.wait(120)
        return apply_inplace(*arguments)

    def begin() -> threading.Event:
        monkeypatch.setattr(thread, "apply_inplace", stuck)
        return event

    return begin


async def test_a_batch_waits_at_the_door_while_the_learner_is_far_behind(
    start: Any, go_on: Callable[[], threading.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal_service.streams.stream.PACE_S", 600.0)
    monkeypatch.setattr("shoal_service.streams.shared.replica.STALLED_S", 600.0)
    body = npy(np.ones((100, 16)))
    async with start(log_pace_bytes=10_000) as running:
        await running.learn([[0.0] * 16])
        event = go_on()
        first = await running.http.post("/ingest", content=body, headers=NPY)
        waiting = asyncio.create_task(running.http.post("/ingest", content=body, headers=NPY))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        assert running.tails()["default"] == (2, 101), "what waits at the door is in no log"
        event.set()
        assert (first.status_code, (await waiting).status_code) == (202, 202)


async def test_a_batch_waits_at_the_door_for_a_while_only(
    start: Any, go_on: Callable[[], threading.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal_service.streams.stream.PACE_S", 0.05)
    body = npy(np.ones((100, 16)))
    async with start(log_pace_bytes=0) as running:
        await running.learn([[0.0] * 16])
        event = go_on()
        replies = [await running.http.post("/ingest", content=body, headers=NPY) for _ in range(3)]
        event.set()
        assert [reply.status_code for reply in replies] == [202, 202, 202]


@pytest.mark.redis
@pytest.mark.parametrize("store_kind", ["redis"])
async def test_nobody_waits_for_a_leader_that_shows_nothing_new(
    start: Any, go_on: Callable[[], threading.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal_service.streams.stream.PACE_S", 600.0)
    monkeypatch.setattr("shoal_service.streams.shared.replica.STALLED_S", 0.5)
    body = npy(np.ones((100, 16)))
    async with start(log_pace_bytes=0) as running:
        await running.learn([[0.0] * 16])
        event = go_on()
        async with asyncio.timeout(120.0):
            replies = [await running.http.post("/ingest", content=body, headers=NPY) for _ in range(3)]
        event.set()
        assert [reply.status_code for reply in replies] == [202, 202, 202]


@ON_MEMORY
@pytest.mark.parametrize("path", ["/ingest", "/streams/sensors/ingest"])
async def test_a_parameter_that_is_none_is_refused_and_nothing_is_stored(running: Any, path: str) -> None:
    """Left out, `stream` would send points to `default`, and a misspelt `wait` would not wait."""
    for given in ({"stream": "sensors"}, {"wiat": "applied"}, {"min_offset": 3}):
        reply = await running.ingest([[1.0, 2.0]], path, **given)
        assert reply.status_code == 400, reply.text
        detail = reply.json()["detail"]
        assert detail.startswith(f"{path} has no parameter '{next(iter(given))}'; ")
        assert ("did you mean 'wait'? it accepts create, " in detail) == ("wiat" in given)
        assert (
            "level, partition, payload_columns, position, position_before, source, time_column, timeout, wait" in detail
        )
        assert ("in the path" in detail) == ("stream" in given)
    assert running.store.list_streams() == []
    assert (await running.ingest([[1.0, 2.0]], wait="applied", timeout=60)).status_code == 200


@ON_MEMORY
async def test_every_endpoint_of_data_refuses_a_parameter_that_is_none(running: Any) -> None:
    await running.learn([[1.0, 2.0], [3.0, 4.0]])
    asked = [("/predict", {"x": "1,2", "stream": "other"}), ("/components", {"feilds": "covariance"})]
    for path, given in [*asked, ("/components/0", {"fields": "covariance"})]:
        reply = await running.http.get(path, params=given)
        assert reply.status_code == 400, reply.text
        assert "has no parameter" in reply.json()["detail"]
    for method, path in [("PUT", "/snapshot"), ("POST", "/refine"), ("GET", "/events"), ("GET", "/streams")]:
        reply = await running.http.request(method, path, params={"stream": "other"})
        assert reply.status_code == 400, reply.text
        assert "has no parameter 'stream'" in reply.json()["detail"]
    reply = await running.http.get("/components?limit=1&limit=2")  # not one of the two, which the caller cannot know
    assert (reply.status_code, reply.json()["detail"]) == (400, "parameter limit is given 2 times; give it once")
    for name, again in (("Idempotency-Key", [("Idempotency-Key", "a")] * 2), ("Host", [("Host", "localhost")])):
        headers = [("Host", "localhost"), ("Content-Type", "application/json"), *again]
        reply = await running.http.post("/ingest", json={"points": [[0.0, 0.0]]}, headers=headers)
        assert reply.status_code == 400, name
        assert name.lower() in reply.json()["detail"].lower()
    assert (await running.http.get("/predict", params={"x": "1,2", "min_offset": 2})).status_code == 200
    assert (await running.http.get("/components", params={"fields": "covariance", "limit": 5})).status_code == 200
