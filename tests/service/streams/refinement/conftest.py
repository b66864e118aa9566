"""A registry with its refining worker over one data folder; the child's work may be done in this process."""

import asyncio
import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.library_replay import replayed
from shoal_service.logs import make_log
from shoal_service.refining import child
from shoal_service.settings import Settings
from shoal_service.store import Entry, SqliteStore, Store
from shoal_service.streams import StreamRegistry
from shoal_service.streams.known_streams import KnownStreams
from shoal_service.streams.learner import checkpoints, retry_policy, thread
from shoal_service.streams.refinement import process, worker
from shoal_service.streams.refinement.records import Refinement
from shoal_service.streams.refinement.service import RefinementService
from shoal_service.streams.refinement.worker import RefinementWorker
from shoal_service.wire import Points

SMALL = {"family": "gaussian", "n_features": 2, "warmup_points": 200, "window": 2000}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Works:
    """One data folder, and the registry and worker that live over it at a time."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.written = io.StringIO()
        self.store: Store = self._open()
        self.began = False

    def _open(self) -> Store:
        return SqliteStore(None) if self.kind == "memory" else SqliteStore(self.folder)

    def begin(self, *, refine: bool = True, **settings: Any) -> StreamRegistry:
        values = {
            "publish_interval_s": 0.0,
            "checkpoint_interval_s": 3600.0,
            "store": self.kind,
            "refine_nice": 1,
            **settings,
        }
        given = Settings(data_dir=self.folder, **values)
        log = make_log("debug", "json", self.written)
        self.worker = RefinementWorker(
            self.store, given, log, lambda *key: self.registry.known.state_of(*key), alone=True
        )
        self.registry = StreamRegistry(KnownStreams(self.store, given, log, notify_refiner=self.worker.notify))
        self.refinements = RefinementService(self.store, self.registry, self.worker.notify)
        self.registry.known.start()
        if refine:
            self.worker.start()
        self.began = True
        return self.registry

    def drop(self) -> None:
        """End as kill -9 would: no draining, no checkpoint. What is durable stays."""
        self.worker.close(120)
        for stream in self.registry.known.loaded:
            stream.view_source.abandon()
            assert stream.view_source.join(120)
        self._reopen()

    def close(self) -> None:
        if self.began:
            self.worker.close(120)
            assert self.registry.known.close(120)
        self._reopen()

    def _reopen(self) -> None:
        if self.kind == "sqlite":
            self.store.close()
            self.store = self._open()

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.written.getvalue().splitlines()]

    async def state(self, name: str = "s") -> bytes:
        """The state once everything in the log is applied."""
        stream = await self.registry.get(name)
        tail = await stream.tail()
        stream.view_source.start()
        try:
            await stream.view_source.board.wait(seq=tail.seq, timeout_s=120)
        except TimeoutError:
            raise TimeoutError(f"{self.log()[-5:]}") from None
        return (await stream.snapshot(120)).blob

    async def settled(self, refinement_id: str | None = None, name: str = "s") -> list[Refinement]:
        """All refinements, newest first, once none is open (or the one named is not)."""
        until = time.monotonic() + 400
        while time.monotonic() < until:
            _, found = await self.refinements.recent(name)
            watched = [r for r in found if refinement_id in (None, r.id)]
            if watched and not any(r.open for r in watched):
                return watched
            await asyncio.sleep(0.05)
        raise TimeoutError(f"{found}\n{self.log()[-5:]}")

    async def feed(self, x: np.ndarray, cut: int = 100, name: str = "s") -> None:
        """Ingest the points and wait until they are learnt."""
        for start in range(0, len(x), cut):
            await self.registry.ingest(name, Points(x[start : start + cut]))
        await self.state(name)

    def entries(self, name: str = "s") -> list[Entry]:
        record = self.store.get_stream(name)
        first = self.store.tail(name, record.incarnation).first_seq
        return self.store.read(name, record.incarnation, first - 1, max_bytes=1 << 40)


@pytest.fixture(params=["sqlite"])
def works(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Works]:
    monkeypatch.setattr(thread, "WAIT_S", 0.02)
    monkeypatch.setattr(retry_policy, "RETRY_S", 0.01)
    monkeypatch.setattr(retry_policy, "FAULT_PAUSE_S", 0.001)
    monkeypatch.setattr(checkpoints, "REPLAY_S", 3600.0)  # a slow machine writes no more checkpoints than a fast one
    monkeypatch.setattr(checkpoints, "REPLAY_INTERVAL_S", 3600.0)
    monkeypatch.setattr(worker, "RETRY_S", 0.01)
    made = Works(request.param, tmp_path / "data")
    yield made
    made.close()
    made.store.close()


class Inside:
    """The child's work, done by the worker's own thread; `gate` holds it up, `before` is called first."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.running = threading.Event()
        self.before: Callable[[], None] = lambda: None
        self.made = 0

    def refine(self, task: process.Task, timeout_s: float, watch: Callable[[Any], bool]) -> process.Outcome:
        self.before()
        paths = {name: str(getattr(task, name)) for name in ("state", "window", "result")}
        answer = child._answer({**paths, "method": task.method, "window_rows": task.window_rows}, io.StringIO())
        self.running.set()
        while not self.gate.wait(0.02):
            if not watch({"round": 1}):
                raise process.StoppedError
        self.made += 1
        return process._outcome(answer)


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> Inside:
    made = Inside()
    monkeypatch.setattr(process.RefinementProcess, "refine", lambda self, *arguments: made.refine(*arguments))
    return made


@pytest.fixture
def grid() -> np.ndarray:
    """(4000, 2) points of a 3x3 grid of unit Gaussians at spacing 5, in random order."""
    rng = np.random.default_rng(3)
    centres = 5.0 * np.array([[i, j] for i in range(3) for j in range(3)])
    return np.asarray(centres[rng.integers(9, size=4000)] + rng.normal(size=(4000, 2)))


@pytest.fixture
def library_replay() -> Callable[..., bytes]:
    return replayed


@pytest.fixture
def small() -> dict[str, Any]:
    return dict(SMALL)
