"""Sources that the service runs itself, over HTTP: with a real Redis server, real files and real child processes."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
import redis

from harness.forked_modules import ModuleForks
from harness.in_turn import in_turn
from harness.redis_server import RedisServer, running_redis
from harness.short_form import longer
from harness.waiting import LONGEST_WAIT_S, eventually_async
from shoal_service.access import Grant, Scope
from shoal_service.store import NewEntry, SqliteStore
from shoal_service.streams import sources, stream_tasks
from shoal_service.streams.sources import supervisor
from shoal_service.wire import from_log
from shoal_service.wire.models import SourceOut, SourcesOut

pytestmark = pytest.mark.anyio
ON_MEMORY = pytest.mark.parametrize("store_kind", ["memory"])
NEEDS_REDIS = pytest.mark.redis
PATH = "/streams/s/sources/readings"
OPEN = {"source_allow_private": True}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the state of a source at once, and start it again soon."""
    monkeypatch.setattr(supervisor, "SAVE_S", 0.05)
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_S", 0.05)


@pytest.fixture(scope="module")
def forks() -> Iterator[ModuleForks]:
    """What forks the child processes of sources."""
    forks = ModuleForks(supervisor.CHILD, "shoal_service.cli.connectors.redis_stream", "httpcore")
    yield forks
    forks.close()


@pytest.fixture
def new_processes() -> None:
    """For tests whose children begin as those of users do, and not as forks."""


@pytest.fixture(autouse=True)
def forked_children(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, forks: ModuleForks) -> None:
    if "new_processes" not in request.fixturenames:
        monkeypatch.setattr(asyncio, "create_subprocess_exec", forks.create)


@pytest.fixture(scope="module")
def origin(redis_binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """The Redis server of the sources."""
    with running_redis(redis_binary, tmp_path_factory.mktemp("origin")) as server:
        yield server


@pytest.fixture
def source(origin: RedisServer) -> Iterator[redis.Redis]:
    with origin.client() as client:
        client.flushall()
        yield client


def add(source: redis.Redis, values: Any, key: str = "k") -> None:
    for value in values:
        source.xadd(key, {"data": value if isinstance(value, str) else json.dumps([value, -value])})


def body_for(origin: RedisServer, **settings: Any) -> dict[str, Any]:
    return {"kind": "redis-stream", "redis_url": origin.url, "keys": ["k"], **settings}


async def stream(running: Any, n_features: int = 2) -> None:
    reply = await running.http.put("/streams/s", json={"n_features": n_features, "refinement": None})
    assert reply.status_code == 201, reply.text


async def put(running: Any, body: Any, status: int = 201, path: str = PATH) -> dict[str, Any]:
    reply = await running.http.put(path, json=body)
    assert reply.status_code == status, reply.text
    return dict(reply.json())


async def state_once(running: Any, holds: Callable[[dict[str, Any]], bool], path: str = PATH) -> dict[str, Any]:
    """The state of a source once it is as wanted."""
    until = time.monotonic() + LONGEST_WAIT_S
    while not holds(state := (await running.json(path))["state"]):
        assert time.monotonic() < until, state
        await anyio.sleep(0.05)
    return dict(state)


async def looks_no_more(runner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a runner look for changes once more, and then only when it is told of one."""
    looks: list[None] = []
    look = runner._look

    async def counted() -> None:
        await look()
        looks.append(None)

    monkeypatch.setattr(stream_tasks, "LOOK_S", 3600.0)
    monkeypatch.setattr(runner, "_look", counted)
    runner.notify("none", "none")
    await eventually_async(lambda: looks)


async def source_samples(running: Any) -> dict[str, float]:
    """The metrics of configured sources, by name and labels."""
    text = (await running.http.get("/metrics")).text
    found = [line.rpartition(" ") for line in text.splitlines() if line.startswith("shoal_source_")]
    return {name: float(value) for name, _, value in found}


def logged(running: Any) -> list[list[float]]:
    """The points of the log, in order."""
    (record,) = running.store.list_streams()
    entries = running.store.read("s", record.incarnation, 0, max_bytes=1 << 30)
    found = [np.asarray(from_log(entry.payload)) for entry in entries if entry.kind == "batch"]
    return [] if not found else np.concatenate(found).tolist()


def pairs(values: Any) -> list[list[float]]:
    return [[float(value), -float(value)] for value in values]


@NEEDS_REDIS
@pytest.mark.usefixtures("new_processes")
@pytest.mark.parametrize("store_kind", ["sqlite", longer("redis")])
async def test_a_redis_stream_is_read_paused_resumed_and_deleted(
    start: Any, origin: RedisServer, source: redis.Redis
) -> None:
    add(source, range(250))
    async with start(**OPEN) as running:
        await stream(running)
        made = await put(running, body_for(origin, batch_size=50))
        SourceOut.model_validate(made)
        assert made["state"]["state"] == "starting"
        state = await state_once(running, lambda state: state["points"] == 250 and state["state"] == "running")
        assert (state["records"], state["skipped"], state["error"]) == (250, 0, None)
        await state_once(running, lambda state: state["lag_records"] == 0)
        shown = await running.json("/streams/s/sources")
        SourcesOut.model_validate(shown)
        assert [one["name"] for one in shown["configured"]] == ["readings"]
        assert shown["sources"] == shown["configured"][0]["positions"]
        assert shown["sources"][0]["source"] == "readings"

        reply = await running.http.patch(PATH, json={"enabled": False})
        assert (reply.status_code, reply.json()["state"]["state"]) == (200, "stopped")
        runner = running.service.runtime.source_runner
        await eventually_async(lambda: not runner._slots.used)
        add(source, range(250, 300))
        reply = await running.http.patch(PATH, json={"enabled": True})
        assert reply.json()["settings"] == made["settings"]
        await state_once(running, lambda state: state["points"] == 300)
        assert logged(running) == pairs(range(300))

        assert (await running.http.delete(PATH)).status_code == 204
        assert (await running.http.get(PATH)).status_code == 404
        await eventually_async(lambda: not runner._slots.used)
        shown = await running.json("/streams/s/sources")
        assert (shown["sources"], shown["configured"]) == ([], [])
        assert logged(running) == pairs(range(300)), "it did not begin again"


@NEEDS_REDIS
@ON_MEMORY
async def test_metrics_tell_how_each_source_is(
    start: Any, origin: RedisServer, source: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_S", 3600.0)  # what has ended stays so
    monkeypatch.setattr(supervisor, "MAX_PAUSE_S", 3600.0)
    add(source, [0, 1, "no", 3])
    (tmp_path / "rows.ndjson").write_text("[0]\n")
    async with start(source_files=tmp_path, **OPEN) as running:
        samples = partial(source_samples, running)
        assert await samples() == {}
        await stream(running)
        await put(running, body_for(origin, on_bad="skip"))
        await put(running, {"kind": "file", "path": "rows.ndjson"}, path="/streams/s/sources/rows")
        await state_once(running, lambda state: state["points"] == 3 and state["lag_records"] == 0)
        failing = await state_once(running, lambda state: state["error"] is not None, "/streams/s/sources/rows")
        found = await samples()

        def of(name: str, source: str = "readings", more: str = "") -> float:
            return found[f'shoal_source_{name}{{source="{source}"{more},stream="s"}}']

        numbers = [of(f"{name}_total") for name in ("records", "bad_records", "points", "restarts")]
        assert numbers == [4, 1, 3, 0]
        assert (of("lag_records"), of("lag_seconds")) == (0, 0)
        assert abs(of("last_stored_timestamp_seconds") - time.time()) < LONGEST_WAIT_S
        states = {
            source: [of("state", source, f',state="{state}"') for state in ("starting", "running", "failed")]
            for source in ("readings", "rows")
        }
        assert states == {"readings": [0, 1, 0], "rows": [0, 0, 1]}, failing
        assert 'shoal_source_lag_records{source="rows",stream="s"}' not in found, "a file does not say"
        (known,) = running.service.runtime.source_runner._known.values()
        os.kill(known.running["readings"].work.pid, signal.SIGKILL)
        await state_once(running, lambda state: state["error"] is not None)
        assert (await samples())['shoal_source_restarts_total{source="readings",stream="s"}'] == 1
        for name in ("readings", "rows"):
            await running.http.patch(f"/streams/s/sources/{name}", json={"enabled": False})
        await eventually_async(lambda: not running.service.runtime.source_runner.running)
        assert await samples() == {}


@NEEDS_REDIS
@ON_MEMORY
async def test_a_pause_adds_nothing_to_what_prometheus_counts(
    start: Any, origin: RedisServer, source: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = [0.0]
    async with start(**OPEN) as running:
        runner = running.service.runtime.source_runner

        async def shows(points: float) -> bool:
            """Whether the counter shows as many. Each look is a scrape."""
            value = (await source_samples(running)).get('shoal_source_points_total{source="readings",stream="s"}')
            seen.extend([] if value is None else [value])
            return value == points

        async def scraped_until(points: float) -> None:
            with anyio.fail_after(LONGEST_WAIT_S):
                while not await shows(points):
                    await anyio.sleep(0.05)

        await stream(running)
        add(source, range(3))
        await put(running, body_for(origin))
        await state_once(running, lambda state: state["points"] == 3)
        monkeypatch.setattr(supervisor, "SAVE_S", 3600.0)
        add(source, range(3, 7))
        await scraped_until(7)
        await running.http.patch("/streams/s/sources/readings", json={"enabled": False})
        await eventually_async(lambda: not runner.running)
        await running.http.patch("/streams/s/sources/readings", json={"enabled": True})
        await eventually_async(lambda: runner.running)
        await shows(0)
        add(source, range(7, 9))
        await eventually_async(lambda: len(logged(running)) == 9)
        await scraped_until(2)
        increases = [now if now < before else now - before for before, now in pairwise(seen)]
        assert sum(increases) == 9, seen


@NEEDS_REDIS
@pytest.mark.usefixtures("new_processes")
@pytest.mark.parametrize(
    ("store_kind", "change"),
    [
        ("redis", "pause"),
        ("sqlite", "change"),
        ("sqlite", "restart"),
        longer("sqlite", "pause"),
        longer("redis", "change"),
        longer("redis", "restart"),
    ],
)
async def test_the_last_numbers_of_a_source_are_kept_when_its_process_ends(
    start: Any, origin: RedisServer, source: redis.Redis, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.setattr(supervisor, "SAVE_S", 3600.0)
    monkeypatch.setattr(supervisor, "TERM_S", LONGEST_WAIT_S)
    settings = {"shutdown_s": LONGEST_WAIT_S, **OPEN}  # on a slow machine, too, the process ends before the service
    async with start(**settings) as running:
        runner = running.service.runtime.source_runner
        await stream(running)
        await put(running, body_for(origin))
        await state_once(running, lambda state: state["state"] == "running")
        add(source, range(7))
        await eventually_async(lambda: len(logged(running)) == 7)
        if change == "pause":
            await running.http.patch(PATH, json={"enabled": False})
            await eventually_async(lambda: not runner.running)
        elif change == "change":
            await put(running, body_for(origin, batch_size=50), 200)
        if change != "restart":
            await state_once(running, lambda state: (state["records"], state["points"]) == (7, 7))
    if change == "restart":
        async with start(**settings) as running:
            await state_once(running, lambda state: (state["records"], state["points"]) == (7, 7))


@NEEDS_REDIS
@pytest.mark.parametrize("store_kind", [longer("sqlite"), "redis"])
async def test_a_source_goes_on_after_a_restart(
    start: Any, origin: RedisServer, source: redis.Redis, store_kind: str
) -> None:
    add(source, range(100))
    async with start(**OPEN) as running:
        await stream(running)
        await put(running, body_for(origin))
        await state_once(running, lambda state: state["points"] == 100)
    add(source, range(100, 200))
    async with start(**OPEN) as running:
        state = await state_once(running, lambda state: state["points"] == 200)
        assert state["records"] == 200
        assert logged(running) == pairs(range(200))


@NEEDS_REDIS
@pytest.mark.parametrize("store_kind", ["redis"])
async def test_the_learner_runs_what_another_process_was_asked_for(
    start: Any, origin: RedisServer, source: redis.Redis, store_kind: str
) -> None:
    add(source, range(100))
    async with start(role="api", **OPEN) as api, start(role="learner", **OPEN) as learner:
        assert api.service.runtime.source_runner is None
        await stream(api)
        await put(api, body_for(origin))
        await state_once(api, lambda state: state["points"] == 100)
        assert learner.service.runtime.source_runner._slots.used == 1
        assert (await api.http.delete(PATH)).status_code == 204
        await eventually_async(lambda: not learner.service.runtime.source_runner._slots.used)
        assert logged(api) == pairs(range(100))


@NEEDS_REDIS
@ON_MEMORY
async def test_forgotten_positions_are_read_again_and_deleted_ones_are_not(
    start: Any, origin: RedisServer, source: redis.Redis
) -> None:
    add(source, range(30))
    async with start(**OPEN) as running:
        await stream(running)
        await put(running, body_for(origin))
        await state_once(running, lambda state: state["points"] == 30)
        assert (await running.http.delete(PATH, params={"keep": "definition"})).status_code == 204
        await state_once(running, lambda state: state["points"] == 60)
        add(source, [30])
        state = await state_once(running, lambda state: state["points"] == 61)
        assert (state["failures"], state["failed_at"]) == (0, None)
        assert logged(running) == pairs([*range(30), *range(31)])
        reply = await running.http.delete(PATH, params={"keep": "positions"})
        assert reply.status_code == 204
        await eventually_async(lambda: not running.service.runtime.source_runner._slots.used)
        add(source, [31])
        await put(running, body_for(origin))
        await state_once(running, lambda state: state["points"] == 1)
        assert logged(running)[61:] == pairs([31])
        reply = await running.http.delete(PATH, params={"keep": "positions", "partition": "k"})
        assert (reply.status_code, reply.json()["type"]) == (400, "/problems/parameter")
        reply = await running.http.delete("/streams/s/sources/other", params={"keep": "positions"})
        assert (reply.status_code, reply.json()["type"]) == (404, "/problems/unknown-source")


@NEEDS_REDIS
@pytest.mark.parametrize(
    ("store_kind", "keep"),
    [("sqlite", None), ("redis", "positions"), longer("sqlite", "positions"), longer("redis", None)],
)
async def test_a_source_that_is_deleted_while_its_first_batch_is_on_its_way_leaves_no_position(
    start: Any, origin: RedisServer, source: redis.Redis, monkeypatch: pytest.MonkeyPatch, keep: str | None
) -> None:
    add(source, range(30))
    async with start(**OPEN) as running:
        await stream(running)
        (record,) = running.store.list_streams()
        documents = sources.SourceDocuments(running.store, "s", record.incarnation)
        append, deleted = running.store.append, []

        def append_late(name: str, incarnation: str, entry: NewEntry, **options: Any) -> Any:
            if entry.source is not None and not deleted:
                deleted.append(documents.delete("readings", keep_positions=keep is not None))
            return append(name, incarnation, entry, **options)

        monkeypatch.setattr(running.store, "append", append_late)
        await put(running, body_for(origin, batch_size=25))
        runner = running.service.runtime.source_runner
        await eventually_async(lambda: deleted and not runner._slots.used)
        assert (await running.json("/streams/s/sources"))["sources"] == []
        assert logged(running) == []
        assert "source_failed" not in [line["event"] for line in running.log()]
        await put(running, body_for(origin, **{"from": "$"}))
        await state_once(running, lambda state: state["state"] == "running")
        add(source, [30])
        await state_once(running, lambda state: state["points"] == 1)
        assert logged(running) == pairs([30]), "it began by its own definition"


@NEEDS_REDIS
@ON_MEMORY
async def test_a_bad_record_stops_a_source_until_it_may_be_skipped(
    start: Any, origin: RedisServer, source: redis.Redis
) -> None:
    add(source, [0, 1, "no", 3])
    async with start(**OPEN) as running:
        await stream(running)
        await put(running, body_for(origin))
        state = await state_once(running, lambda state: state["failures"] >= 2)
        assert state["state"] == "failed"
        assert "'redis stream', message" in state["error"] or "redis stream, message" in state["error"]
        assert state["next_attempt_at"] is not None
        assert logged(running) == []
        await put(running, body_for(origin, on_bad="skip"), 200)
        state = await state_once(running, lambda state: state["points"] == 3)
        assert (state["state"], state["error"], state["skipped"]) == ("running", None, 1)
        assert logged(running) == pairs([0, 1, 3])


@NEEDS_REDIS
@ON_MEMORY
async def test_a_source_that_is_away_is_tried_again(start: Any, redis_binary: str, tmp_path: Path) -> None:
    server = RedisServer(redis_binary, tmp_path)
    async with start(**OPEN) as running:
        await stream(running)
        await put(running, body_for(server))
        state = await state_once(running, lambda state: state["error"] is not None)
        assert state["state"] == "failed"
        assert "the source cannot be read: redis: Error 111" in state["error"]
        server.start()
        try:
            with server.client() as client:
                add(client, range(5))
            state = await state_once(running, lambda state: state["points"] == 5)
            assert (state["state"], state["error"]) == ("running", None)
        finally:
            server.kill()


@NEEDS_REDIS
@pytest.mark.parametrize("store_kind", ["sqlite", longer("redis")])
async def test_a_stream_that_is_made_again_gets_no_points_of_an_earlier_source(
    start: Any, origin: RedisServer, source: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start(**OPEN) as running:
        await stream(running)
        await put(running, body_for(origin))
        await state_once(running, lambda state: state["state"] == "running")
        runner = running.service.runtime.source_runner
        await looks_no_more(runner, monkeypatch)  # nothing tells it of the end of the stream
        assert (await running.http.delete("/streams/s")).status_code == 204
        await stream(running)
        add(source, range(10))
        await eventually_async(lambda: logged(running) or not runner._slots.used)
        assert logged(running) == []


@pytest.mark.usefixtures("new_processes")
async def test_a_child_that_does_not_end_is_killed_when_its_source_is_ended_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(3600)"
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    assert child.stdout is not None
    await child.stdout.readline()
    monkeypatch.setattr(supervisor, "TERM_S", 3600.0)
    ending = asyncio.create_task(supervisor._end(child, lambda report: None))
    await asyncio.sleep(0)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert child.returncode == -signal.SIGKILL


@ON_MEMORY
async def test_a_long_error_of_a_source_is_told_in_part_and_tried_later(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_S", 3600.0)
    monkeypatch.setattr(supervisor, "MAX_PAUSE_S", 3600.0)

    async def answer(reader: Any, writer: Any) -> None:
        with contextlib.suppress(ConnectionError), contextlib.closing(writer):
            while await reader.read(1 << 16):
                writer.write(b"-ERR " + b"x" * 200_000 + b"\r\n")

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, start(**OPEN) as running:
        await stream(running)
        address = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await put(running, {"kind": "redis-stream", "redis_url": address, "keys": ["k"]})
        state = await state_once(running, lambda state: state["error"] is not None)
        assert "redis refused EXISTS: xxx" in state["error"]
        assert len(state["error"]) <= 2000
        assert (state["failures"], state["state"]) == (1, "failed")


@ON_MEMORY
async def test_the_children_log_at_the_level_of_the_service(
    start: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.ndjson").write_text("[0, 0]\n")
    async with start(source_files=tmp_path, log_level="warning") as running:
        await stream(running)
        await put(running, {"kind": "file", "path": "rows.ndjson"})
        await state_once(running, lambda state: state["points"] == 1)
    assert "reading" not in capfd.readouterr().err


@NEEDS_REDIS
@ON_MEMORY
async def test_a_child_that_is_killed_is_started_again(start: Any, origin: RedisServer, source: redis.Redis) -> None:
    add(source, range(10))
    async with start(**OPEN) as running:
        await stream(running)
        await put(running, body_for(origin))
        await state_once(running, lambda state: state["points"] == 10)
        (known,) = running.service.runtime.source_runner._known.values()
        work = known.running["readings"].work
        first = work.pid
        os.kill(first, signal.SIGKILL)
        state = await state_once(running, lambda state: state["error"] is not None)
        assert state["error"] == "its process ended with signal SIGKILL"
        add(source, range(10, 20))
        await state_once(running, lambda state: state["points"] == 20)
        assert work.pid != first
        assert logged(running) == pairs(range(20))


@NEEDS_REDIS
@ON_MEMORY
async def test_secrets_are_not_shown_and_may_be_variables(
    start: Any, origin: RedisServer, source: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(source, range(10))
    async with start(**OPEN) as running:
        await stream(running)
        address = origin.url.replace("redis://", "redis://reader:hush-hush@")
        made = await put(running, body_for(origin, redis_url=address))
        assert made["settings"]["redis_url"] == origin.url.replace("redis://", "redis://reader:***@")
        for path in (PATH, "/streams/s/sources"):
            assert "hush-hush" not in (await running.http.get(path)).text
        reply = await running.http.put(PATH, json=made["settings"] | {"kind": "redis-stream"})
        assert "stands for a secret" in reply.json()["detail"]
        state = await state_once(running, lambda state: state["error"] is not None)
        assert "hush-hush" not in str(state)

        variable = {"env": "SHOAL_SOURCE_SECRET_READINGS"}
        made = await put(running, body_for(origin, redis_url=variable), 200)
        assert made["settings"]["redis_url"] == variable
        state = await state_once(running, lambda state: "variable" in (state["error"] or ""))
        assert "SHOAL_SOURCE_SECRET_READINGS is not set" in state["error"]
        monkeypatch.setenv("SHOAL_SOURCE_SECRET_READINGS", "redis://:hush-hush/hush@h:6379/0")  # "/" ends the host
        state = await state_once(running, lambda state: "redis_url" in (state["error"] or ""))
        assert "%2F" in state["error"]
        assert "hush" not in state["error"]
        monkeypatch.setenv("SHOAL_SOURCE_SECRET_READINGS", origin.url)
        await state_once(running, lambda state: state["points"] == 10)
        assert "hush-hush" not in running.written.getvalue()


@ON_MEMORY
@in_turn(
    ("body", "said"),
    [
        ({}, "kind is missing"),
        ({"kind": 7}, "kind is '7'"),
        ({"kind": "kafak"}, "did you mean 'kafka'?"),
        ({"kind": "redis-stream"}, "redis_url is missing"),
        ({"kind": "redis-stream", "redis_url": "redis://h", "key": ["k"]}, "unknown field 'key'; did you mean 'keys'?"),
        ({"kind": "redis-stream", "redis_url": "redis://h", "keys": []}, "keys is '[]'"),
        ({"kind": "redis-stream", "redis_url": "redis://h", "keys": ["k"], "key": "k"}, "unknown field 'key'"),
        ({"kind": "redis-stream", "redis_url": "redis://h", "keys": ["k"], "from": "now"}, "from is 'now'"),
        ({"kind": "redis-stream", "redis_url": "redis://h", "keys": ["k"], "format": "xml"}, "format"),
        ({"kind": "redis-stream", "redis_url": "redis://h", "keys": ["k"], "batch_size": 0}, "batch_size is '0'"),
        ({"kind": "redis-stream", "redis_url": "unix:///run/redis.sock", "keys": ["k"]}, "no address of a Redis"),
        ({"kind": "redis-stream", "redis_url": "redis://h:x", "keys": ["k"]}, "redis_url is no address"),
        ({"kind": "redis-stream", "redis_url": "redis://h?host=10.0.0.1", "keys": ["k"]}, "more than user"),
        ({"kind": "redis-stream", "redis_url": "redis://h/0?ssl_keyfile=/k", "keys": ["k"]}, "more than user"),
        ({"kind": "redis-stream", "redis_url": {"env": "SHOAL_ADMIN_KEY"}, "keys": ["k"]}, "redis_url"),
        ({"kind": "redis-stream", "redis_url": "redis://127.0.0.1", "keys": ["k"]}, "a private address"),
        ({"kind": "redis-stream", "redis_url": "redis://localhost", "keys": ["k"]}, "a private address"),
        ({"kind": "kafka", "brokers": "h:9092", "topics": ["t"]}, "source_allow_private"),
        ({"kind": "parquet", "folder": "exports"}, "source_files"),
        ({"kind": "file", "path": "/etc/passwd"}, "source_files"),
        ([], "the body is not a JSON object"),
    ],
)
async def test_bad_definitions_are_refused_in_words(running: Any, body: Any, said: str) -> None:
    await running.http.put("/streams/s", json={"n_features": 2, "refinement": None})
    reply = await running.http.put(PATH, json=body)
    assert reply.status_code == 400, reply.text
    assert reply.json()["type"] in ("/problems/parameter", "/problems/malformed-body")
    assert said in reply.json()["detail"]
    assert (await running.json("/streams/s/sources"))["configured"] == []


@ON_MEMORY
async def test_other_requests_that_are_wrong(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"kind": "redis-stream", "redis_url": "redis://example.invalid", "keys": ["k"], "enabled": False}
    assert (await running.http.put(PATH, json=body)).json()["type"] == "/problems/unknown-stream"
    await stream(running)
    for content in (b"", b"{", b"null", b"\xff", b'{"kind":"redis-stream"' * 3, b"[" * 10_000):
        reply = await running.http.put(PATH, content=content, headers={"Content-Type": "application/json"})
        assert reply.status_code == 400, (content[:20], reply.text)
    reply = await running.http.put(PATH, content=b"{}", headers={"Content-Type": "text/plain"})
    assert reply.status_code == 415
    assert (await running.http.put("/streams/s/sources/a%20b", json=body)).status_code == 400
    assert (await running.http.patch(PATH, json={"enabled": True})).status_code == 404
    await put(running, body)
    for change in ({}, {"enabled": 1}, {"enabled": True, "keys": ["j"]}):
        assert (await running.http.patch(PATH, json=change)).status_code == 400
    monkeypatch.setattr(sources.documents, "MAX_SOURCES", 1)
    reply = await running.http.put("/streams/s/sources/second", json=body)
    assert "the limit of 1" in reply.json()["detail"]
    assert (await running.json(PATH))["state"]["state"] == "stopped"


@ON_MEMORY
async def test_settings_of_kafka_that_reach_beyond_its_brokers_are_refused(start: Any) -> None:
    async with start(**OPEN) as running:
        await stream(running)
        for name in ("plugin.library.paths", "sasl.kerberos.kinit.cmd", "ssl.ca.location", "bootstrap.servers", "env"):
            body = {"kind": "kafka", "brokers": "h:9092", "topics": ["t"], "set": {name: "x"}}
            reply = await running.http.put(PATH, json=body)
            assert reply.status_code == 400, name
            assert "a request cannot give" in reply.json()["detail"]
        body = {"kind": "kafka", "brokers": "h:9092,file:///etc/x", "topics": ["t"], "enabled": False}
        assert "brokers has" in (await running.http.put(PATH, json=body)).json()["detail"]
        secret = {"sasl.username": "u", "sasl.password": "hush", "sasl.mechanisms": "PLAIN"}
        made = await put(running, {**body, "brokers": "h:9092", "set": secret})
        assert made["settings"]["set"] == {**secret, "sasl.password": "***"}


@ON_MEMORY
async def test_a_name_that_leads_to_a_private_address_is_refused_when_it_is_read(start: Any) -> None:
    async with start() as running:
        await stream(running)
        body = {"kind": "redis-stream", "redis_url": "redis://localtest.invalid", "keys": ["k"]}
        await put(running, body)
        await state_once(running, lambda state: state["error"] is not None)  # the name is not known
        await put(running, {**body, "redis_url": "redis://0x7f.1"}, 200)  # a form of 127.0.0.1
        state = await state_once(running, lambda state: "private" in (state["error"] or ""))
        assert "leads to 127.0.0.1, a private address" in state["error"]


@ON_MEMORY
async def test_files_are_read_below_the_allowed_folder_only(start: Any, tmp_path: Path) -> None:
    folder, outside = tmp_path / "allowed", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "secret.ndjson").write_text("[1, 2]\n")
    (folder / "link").symlink_to(outside)
    (folder / "rows.ndjson").write_text("".join(f"[{i}, {-i}]\n" for i in range(40)))
    async with start(source_files=folder) as running:
        await stream(running)
        for path in ("../outside/secret.ndjson", str(outside / "secret.ndjson"), "a/../../outside", "..", "/"):
            for body in ({"kind": "file", "path": path}, {"kind": "parquet", "folder": path}):
                reply = await running.http.put(PATH, json=body)
                assert (reply.status_code, reply.json()["type"]) == (400, "/problems/parameter"), path
        await put(running, {"kind": "file", "path": "link/secret.ndjson"})
        state = await state_once(running, lambda state: state["error"] is not None)
        assert "leads out of the folder" in state["error"]
        await put(running, {"kind": "parquet", "folder": "link"}, 200)
        state = await state_once(running, lambda state: state["error"] is not None)
        assert "leads out of the folder" in state["error"]
        assert logged(running) == []
        await put(running, {"kind": "file", "path": "rows.ndjson", "batch_size": 7}, 200)
        await state_once(running, lambda state: state["points"] == 40)
        with (folder / "rows.ndjson").open("a") as file:
            file.write("[40, -40]\n")
        await state_once(running, lambda state: state["points"] == 41)
        assert logged(running) == pairs(range(41))


@ON_MEMORY
async def test_links_beside_a_file_that_is_read_do_not_lead_out(start: Any, tmp_path: Path) -> None:
    """What rotation leaves behind is looked for by name, and the file is opened again when it was replaced."""
    folder, outside = tmp_path / "allowed", tmp_path / "secret.ndjson"
    folder.mkdir()
    rows = folder / "rows.ndjson"
    rows.write_text("[0, 0]\n")
    outside.write_text("[7, -7]\n")
    async with start(source_files=folder) as running:
        await stream(running)
        await put(running, {"kind": "file", "path": "rows.ndjson"})
        await state_once(running, lambda state: state["points"] == 1)
        rows.rename(folder / "old")
        rows.symlink_to(outside)
        state = await state_once(running, lambda state: state["error"] is not None)
        assert "leads out of the folder" in state["error"]
        rows.unlink()
        (folder / "old").rename(rows)
        await state_once(running, lambda state: state["state"] == "running")
        (folder / "rows.ndjson.1").symlink_to(outside)
        outside.touch()
        rows.rename(folder / "old")
        rows.write_text("[1, -1]\n")
        os.utime(rows, ns=(0, 0))
        state = await state_once(running, lambda state: state["error"] is not None)
        assert "leads out of the folder" in state["error"]
        assert logged(running) == pairs([0])


@ON_MEMORY
async def test_links_in_a_folder_of_parquet_do_not_lead_out(start: Any, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "allowed").mkdir()
    parquet.write_table(pa.table({"x": [7.0], "y": [-7.0]}), tmp_path / "secret.parquet")
    (tmp_path / "allowed" / "link.parquet").symlink_to(tmp_path / "secret.parquet")
    async with start(source_files=tmp_path / "allowed") as running:
        await stream(running)
        await put(running, {"kind": "parquet", "folder": "."})
        state = await state_once(running, lambda state: state["error"] is not None or state["points"] > 0)
        assert "leads out of the folder" in (state["error"] or "")
        assert logged(running) == []


@ON_MEMORY
async def test_a_folder_of_parquet_is_read(start: Any, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    folder = tmp_path / "exports"
    folder.mkdir()
    for n in range(3):
        values = np.arange(n * 10, n * 10 + 10, dtype=float)
        parquet.write_table(pa.table({"x": values, "y": -values}), folder / f"{n}.parquet")
    async with start(source_files=tmp_path) as running:
        await stream(running)
        await put(running, {"kind": "parquet", "folder": "exports"})
        await state_once(running, lambda state: state["points"] == 30)
        assert logged(running) == pairs(range(30))


@ON_MEMORY
async def test_a_topic_of_kafka_is_read(start: Any) -> None:
    pytest.importorskip("confluent_kafka", reason="needs the extra kafka")
    from harness.mock_kafka import MockKafka

    cluster = MockKafka()
    try:
        cluster.create("t", 2)
        for i in range(60):
            cluster.produce("t", i % 2, b"[%d,%d]" % (i, -i))
        cluster.flush()
        async with start(**OPEN) as running:
            await stream(running)
            body = {"kind": "kafka", "brokers": cluster.brokers, "topics": ["t"], "batch_size": 10}
            await put(running, {**body, "set": {"client.id": "shoal"}})
            await state_once(running, lambda state: state["points"] == 60 and state["lag_records"] == 0)
            found = logged(running)
            for partition in range(2):
                assert [row for row in found if row[0] % 2 == partition] == pairs(range(partition, 60, 2))
    finally:
        cluster.close()


@NEEDS_REDIS
@ON_MEMORY
async def test_a_service_runs_no_more_sources_than_it_is_allowed(
    start: Any, origin: RedisServer, source: redis.Redis
) -> None:
    add(source, range(10))
    async with start(source_processes=1, **OPEN) as running:
        await stream(running)
        await put(running, body_for(origin))
        await state_once(running, lambda state: state["points"] == 10)
        second = "/streams/s/sources/second"
        await put(running, body_for(origin), path=second)
        state = await state_once(running, lambda state: state["error"] is not None, second)
        assert "runs 1 sources already" in state["error"]
        assert (await running.http.delete(PATH)).status_code == 204
        await state_once(running, lambda state: state["points"] == 10, second)
    async with start(source_processes=0, **OPEN) as running:
        assert running.service.runtime.source_runner is None


@ON_MEMORY
async def test_only_admins_define_sources_and_readers_see_no_secret(start: Any) -> None:
    async with start(admin_key="the-admin-key-of-these-tests", **OPEN) as running:
        keys = {scope: running.service.access.create(scope, Grant(Scope(scope))).secret for scope in ("read", "write")}
        keys["admin"] = "the-admin-key-of-these-tests"
        head = lambda scope: {"Authorization": f"Bearer {keys[scope]}"}  # noqa: E731
        await running.http.put("/streams/s", json={"n_features": 2}, headers=head("admin"))
        body = {"kind": "redis-stream", "redis_url": "redis://:hush@h.invalid", "keys": ["k"], "enabled": False}
        for scope, status in (("read", 403), ("write", 403), ("admin", 201)):
            assert (await running.http.put(PATH, json=body, headers=head(scope))).status_code == status
        reply = await running.http.get(PATH, headers=head("read"))
        assert reply.status_code == 200
        assert "hush" not in reply.text
        running.service.request_log.write()
        audited = [line for line in running.log() if line["event"] == "audit" and line["subject"] == "readings"]
        assert [(line["key_name"], line["outcome"]) for line in audited][-1][1] == "done"


async def test_the_socket_of_the_children_is_open_to_its_user_alone(start: Any, store_kind: str) -> None:
    async with start() as running:
        place = Path(running.http._transport.app.state.children.address)
        assert place.stat().st_mode & 0o777 == 0o600
    assert not place.exists()


async def test_a_path_that_is_too_long_for_a_socket_gets_a_short_one(
    start: Any, tmp_path: Path, store_settings: dict[str, Any]
) -> None:
    store_settings["data_dir"] = tmp_path / ("long" * 30)
    async with start() as running:
        place = Path(running.http._transport.app.state.children.address)
        assert len(str(place)) <= 100
        assert place.parent.stat().st_mode & 0o777 == 0o700
    assert not place.parent.exists()


@ON_MEMORY
async def test_a_service_without_a_place_for_a_socket_runs_no_sources(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError("no sockets here")

    monkeypatch.setattr("shoal_service.server.ChildServer._bound", refuse)
    async with start() as running:
        assert running.service.runtime.source_runner is None
        assert "no sockets here" in running.written.getvalue()


def test_a_store_of_a_version_without_sources_opens(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "data")
    store.create_stream("s", "i", b"{}", max_streams=1)
    assert sources.SourceDocuments(store, "s", "i").all() == []
    store.close()
    shutil.rmtree(tmp_path / "data")
