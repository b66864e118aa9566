"""The backends that the contract suite runs over, and the few words that its tests are written in."""

import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.redis_server import RedisServer, running_redis
from shoal_service.store import (
    Appended,
    Checkpoint,
    EntryKind,
    IdempotencyKey,
    NewEntry,
    References,
    SqliteStore,
    Store,
)
from shoal_service.store.redis import RedisStore

PLENTY = 1 << 40


Open = Callable[..., Store]
"""How to make a store; one that is opened again after a close finds what was there, where it is durable."""

# One line a backend: from an empty folder, and the way to other fixtures, to the store. A new one joins the suite here.
BACKENDS: dict[str, Callable[[Path, pytest.FixtureRequest], Open]] = {
    "memory": lambda folder, request: partial(SqliteStore, None),
    "redis": lambda folder, request: request.getfixturevalue("open_redis_store"),
    "sqlite": lambda folder, request: partial(SqliteStore, folder / "data"),
}
MARKS = {"redis": [pytest.mark.redis]}
DURABLE = BACKENDS.keys() - {"memory"}


def as_parameters(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=MARKS.get(name, [])) for name in sorted(names)]


@dataclass
class Clock:
    """A clock that stands still until it is moved."""

    now: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Line:
    """One stream of a store, with the arguments that most tests do not care about filled in."""

    store: Store
    name: str = "s"
    incarnation: str = "inc-s"
    epoch: int = field(default=0)

    def create(self) -> "Line":
        self.store.create_stream(self.name, self.incarnation, b"{}", max_streams=100)
        self.epoch = self.store.acquire_writer(self.name, self.incarnation)
        return self

    @property
    def key(self) -> tuple[str, str]:
        return self.name, self.incarnation

    def add(self, payload: bytes = b"x", n_points: int = 1, *, budget_bytes: int = PLENTY, **options: Any) -> Appended:
        kind = options.pop("kind", EntryKind.BATCH)
        future = self.store.append(*self.key, NewEntry(kind, payload, n_points, **options), budget_bytes=budget_bytes)
        return future.result(timeout=30)

    def keyed(self, key: str, body: bytes = b"x", n_points: int = 1, *, budget_bytes: int = PLENTY) -> Appended:
        asked = IdempotencyKey(key, b"digest of " + body)
        return self.add(body, n_points, budget_bytes=budget_bytes, idempotency=asked)

    def save(
        self,
        seq: int,
        log_offset: int = 0,
        blob: bytes = b"",
        window_seq: int | None = None,
        keep_after: int | None = None,
    ) -> None:
        checkpoint = Checkpoint(seq, log_offset, blob or b"state after %d" % seq, window_seq)
        self.store.save_checkpoint(*self.key, self.epoch, checkpoint, keep_after=keep_after)

    def adopt(self, blob_key: str, after_seq: int) -> Appended:
        return self.add(b"adopt", 0, kind=EntryKind.ADOPTION, references=References(blob_key, after_seq))

    def mark(self, seq: int) -> None:
        self.store.mark_applied(*self.key, self.epoch, seq)

    def seqs(self, after_seq: int | None = None) -> list[int]:
        after = self.store.tail(*self.key).first_seq - 1 if after_seq is None else after_seq
        return [entry.seq for entry in self.store.read(*self.key, after, max_bytes=PLENTY)]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def redis_server(redis_binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running_redis(redis_binary, tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def open_redis_store(redis_server: RedisServer) -> Open:
    return partial(RedisStore, redis_server.url, prefix=f"test-{uuid.uuid4().hex}")


@pytest.fixture(params=as_parameters(BACKENDS))
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    return BACKENDS[request.param](tmp_path, request)


@pytest.fixture(params=as_parameters(DURABLE))
def open_durable_store(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    return BACKENDS[request.param](tmp_path, request)


@pytest.fixture
def store(open_store: Open, clock: Clock) -> Iterator[Store]:
    store = open_store(clock=clock)
    yield store
    store.close()


@pytest.fixture
def line(store: Store) -> Line:
    return Line(store).create()


@pytest.fixture
def new_line() -> Callable[..., Line]:
    return lambda store, name="s", incarnation=None: Line(store, name, incarnation or f"inc-{name}").create()
