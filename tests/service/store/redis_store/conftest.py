"""Stores over one real redis-server, each test under a prefix of its own, and the few words that the tests use."""

import tempfile
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.redis_server import RedisServer, running_redis
from shoal_service.store import Appended, Checkpoint, EntryKind, IdempotencyKey, NewEntry, SourceStep
from shoal_service.store.redis import RedisStore

PLENTY = 1 << 40


class Hand:
    """One stream of one store, with the arguments that most tests do not care about filled in."""

    def __init__(self, store: RedisStore, name: str = "s") -> None:
        self.store = store
        self.key = (name, f"inc-{name}")
        store.create_stream(*self.key, b"{}", max_streams=99)

    def post(
        self,
        payload: bytes = b"x",
        n_points: int = 1,
        *,
        key: str | None = None,
        source: SourceStep | None = None,
        budget_bytes: int = PLENTY,
    ) -> Future[Appended]:
        asked = IdempotencyKey(key, b"digest of " + payload) if key is not None else None
        entry = NewEntry(EntryKind.BATCH, payload, n_points, idempotency=asked, source=source)
        return self.store.append(*self.key, entry, budget_bytes=budget_bytes)

    def add(self, payload: bytes = b"x", n_points: int = 1, **options: Any) -> Appended:
        return self.post(payload, n_points, **options).result(120)

    def lead(self) -> int:
        self.epoch = self.store.acquire_writer(*self.key)
        return self.epoch

    def mark(self, seq: int) -> None:
        self.store.mark_applied(*self.key, self.epoch, seq)

    def save(self, seq: int, blob: bytes = b"state") -> None:
        self.store.save_checkpoint(*self.key, self.epoch, Checkpoint(seq, seq, blob))

    def payloads(self, after_seq: int = 0) -> list[bytes]:
        found: list[bytes] = []
        while entries := self.store.read(*self.key, after_seq + len(found), max_bytes=PLENTY):
            found += [entry.payload for entry in entries]
        return found


@pytest.fixture(scope="session")
def server(redis_binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running_redis(redis_binary, tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def own_server(redis_binary: str, tmp_path: Path) -> Iterator[Callable[..., RedisServer]]:
    """Start servers that the test may kill or spoil."""
    with ExitStack() as stack:

        def start(**settings: str) -> RedisServer:
            folder = Path(tempfile.mkdtemp(prefix="redis-", dir=tmp_path))
            return stack.enter_context(running_redis(redis_binary, folder, **settings))

        yield start


@pytest.fixture
def prefix() -> str:
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
def open_at(prefix: str) -> Iterator[Callable[..., RedisStore]]:
    """Open stores at an address; all are closed at the end."""
    with ExitStack() as stack:

        def open_one(url: str, **options: Any) -> RedisStore:
            store = RedisStore(url, **{"prefix": prefix, **options})
            stack.callback(store.close)
            return store

        yield open_one


@pytest.fixture
def open_store(server: RedisServer, open_at: Callable[..., RedisStore]) -> Callable[..., RedisStore]:
    """Open stores on the shared server."""
    return partial(open_at, server.url)


@pytest.fixture
def hand_of() -> type[Hand]:
    return Hand
