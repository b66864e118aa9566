"""A whole service in this process, spoken to over ASGI: no socket, no child process."""

import io
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from harness.event_reader import Reader
from harness.redis_server import RedisServer, running_redis
from harness.web import wait_patiently
from shoal_service.app import create_app, open_store
from shoal_service.logs import make_log
from shoal_service.routes.service import Service
from shoal_service.settings import Settings
from shoal_service.store import Store
from shoal_service.streams.learner import thread
from shoal_service.wire import Decoder

JSON = {"Content-Type": "application/json"}
OVER_REDIS = (
    "test_configured_sources.py", "test_health.py", "test_idempotency.py", "test_keys.py",
    "test_records.py", "test_snapshot.py", "test_webhooks.py",
)  # fmt: skip
"""Files whose tests run over Redis in the short form, too: what the store does has most part in them. All stores pass
one suite, so that the other files say over Redis what they say over SQLite."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the cases over Redis of other files to the long form."""
    for item in items:
        if item.path.parent == Path(__file__).parent and item.path.name not in OVER_REDIS:
            callspec = getattr(item, "callspec", None)
            if callspec is not None and callspec.params.get("store_kind") == "redis":
                item.add_marker("slow")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def warm() -> None:
    """Compile once, outside of any test's time limit."""
    from shoal.sequential import warm_kernels

    warm_kernels()


async def patiently(request: httpx.Request) -> None:
    wait_patiently(request)


@dataclass
class Running:
    """One service that runs."""

    http: httpx.AsyncClient
    service: Service
    written: io.StringIO

    @property
    def store(self) -> Store:
        return self.service.store

    def log(self) -> list[dict[str, Any]]:
        """What it has logged."""
        self.service.request_log.write()
        return [json.loads(line) for line in self.written.getvalue().splitlines()]

    async def ingest(self, points: Any, path: str = "/ingest", **params: Any) -> httpx.Response:
        body = json.dumps({"points": np.asarray(points).tolist()}).encode()
        return await self.http.post(path, content=body, headers=JSON, params=params)

    async def learn(self, points: Any, path: str = "/ingest") -> dict[str, Any]:
        """Ingest and wait until it is learnt."""
        reply = await self.ingest(points, path, wait="applied", timeout=60)
        assert reply.status_code == 200, reply.text
        return dict(reply.json())

    async def json(self, path: str, **params: Any) -> dict[str, Any]:
        reply = await self.http.get(path, params=params)
        assert reply.status_code == 200, reply.text
        return dict(reply.json())

    def tails(self) -> dict[str, tuple[int, int]]:
        """Where each stream's log ends."""
        records = self.store.list_streams()
        tails = {r.name: self.store.tail(r.name, r.incarnation) for r in records}
        return {name: (tail.seq, tail.log_offset) for name, tail in tails.items()}


Start = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=pytest.mark.redis)])
def store_kind(request: pytest.FixtureRequest) -> str:
    """Where a store has a part in what a test says, it runs over both. Others set this to `memory`: SQLite, no file."""
    return str(request.param)


@pytest.fixture(scope="session")
def redis_server(redis_binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running_redis(redis_binary, tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def store_settings(store_kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Where the services of one test keep things."""
    if store_kind != "redis":
        return {"store": store_kind, "data_dir": tmp_path / "data"}
    server = request.getfixturevalue("redis_server")
    return {"store": "redis", "redis_url": server.url, "redis_prefix": f"test-{uuid.uuid4().hex}", "lease_s": 1.0}


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, store_settings: dict[str, Any]) -> Start:
    """Start services over one folder (or over a store that is given); settings may be overridden."""
    monkeypatch.setattr(
        Decoder, "start", lambda self: None
    )  # its child is started when a large JSON body comes, if ever
    monkeypatch.setattr(thread, "WAIT_S", 0.02)

    @asynccontextmanager
    async def running(store: Store | None = None, **overrides: Any) -> AsyncIterator[Running]:
        values = {"publish_interval_s": 0.01, "shutdown_s": 10.0, "max_body_bytes": 1 << 20, "log_level": "debug"}
        settings = Settings(**store_settings, **values | overrides)
        written = io.StringIO()
        log = make_log("debug", "json", written)
        app = create_app(settings, store=store if store is not None else open_store(settings), log=log)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(
                transport=transport, base_url="http://localhost", event_hooks={"request": [patiently]}
            ) as client,
        ):
            yield Running(client, app.state.service, written)

    return running


@pytest.fixture
async def running(start: Start) -> AsyncIterator[Running]:
    """One service with the settings of the tests."""
    async with start() as service:
        yield service


@pytest.fixture
def clusters() -> np.ndarray:
    """(600, 2) points of three clusters far apart, in turn."""
    rng = np.random.default_rng(5)
    centres = np.array([[0.0, 0.0], [20.0, 0.0], [0.0, 20.0]])
    return np.asarray(centres[np.arange(600) % 3] + rng.normal(size=(600, 2)))


@pytest.fixture
async def follow(running: Any) -> AsyncIterator[Any]:
    app = running.http._transport.app
    readers: list[Reader] = []

    def make(path: str, **more: Any) -> Reader:
        readers.append(Reader(app, path, **more))
        return readers[-1]

    yield make
    for reader in readers:
        await reader.close()
