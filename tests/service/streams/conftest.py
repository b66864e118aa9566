"""A registry over either store, that can be stopped well, or dropped as by kill -9, and begun again."""

import asyncio
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal_service.logs import make_log
from shoal_service.settings import Settings
from shoal_service.store import SqliteStore, Store
from shoal_service.streams import StreamRegistry
from shoal_service.streams.known_streams import KnownStreams
from shoal_service.streams.learner import checkpoints, retry_policy, thread
from shoal_service.wire import Points


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def warm() -> None:
    """Compile once, outside of any test's time limit."""
    from shoal.sequential import warm_kernels

    warm_kernels()


class RunningStreams:
    """One data folder, and the registry that lives in it at a time."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.written = io.StringIO()
        self.store: Store = self._open()
        self.registry: StreamRegistry

    def _open(self) -> Store:
        return SqliteStore(None) if self.kind == "memory" else SqliteStore(self.folder)

    def begin(self, **settings: Any) -> StreamRegistry:
        values = {"publish_interval_s": 0.0, **settings}
        self.registry = StreamRegistry(
            KnownStreams(self.store, Settings(**values), make_log("debug", "json", self.written))
        )
        self.registry.known.start()
        return self.registry

    def drop(self) -> None:
        """End as kill -9 would: no draining, no checkpoint. What is durable stays."""
        for stream in self.registry.known.loaded:
            stream.view_source.abandon()
            assert stream.view_source.join(120)
        if self.kind == "sqlite":
            self.store.close()
            self.store = self._open()

    def close(self) -> None:
        assert self.registry.known.close(120)
        if self.kind == "sqlite":
            self.store.close()
            self.store = self._open()

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.written.getvalue().splitlines()]


@pytest.fixture(params=["sqlite"])
def running(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RunningStreams]:
    monkeypatch.setattr(thread, "WAIT_S", 0.02)
    monkeypatch.setattr(retry_policy, "RETRY_S", 0.01)
    monkeypatch.setattr(retry_policy, "FAULT_PAUSE_S", 0.001)
    monkeypatch.setattr(checkpoints, "REPLAY_S", 3600.0)  # a slow machine writes no more checkpoints than a fast one
    monkeypatch.setattr(checkpoints, "REPLAY_INTERVAL_S", 3600.0)
    made = RunningStreams(request.param, tmp_path)
    yield made
    made.registry.known.close(120)
    made.store.close()


@pytest.fixture
def batches() -> list[Points]:
    """Forty batches of uneven size from five clusters: past the warm-up, over checks."""
    rng = np.random.default_rng(9)
    centres = rng.normal(scale=8.0, size=(5, 3))
    sizes = rng.integers(1, 120, size=40)
    return [Points(centres[rng.integers(5, size=n)] + rng.normal(size=(n, 3))) for n in sizes]


Feed = Callable[..., Any]


@pytest.fixture
def final() -> Callable[..., Any]:
    """The state as bytes once everything in the log is applied."""

    async def ask(registry: StreamRegistry, name: str = "default") -> bytes:
        stream = await registry.get(name)
        tail = await stream.tail()
        stream.view_source.start()
        await asyncio.wait_for(stream.view_source.board.wait(seq=tail.seq, timeout_s=120), 120)
        return (await stream.snapshot(120)).blob

    return ask
