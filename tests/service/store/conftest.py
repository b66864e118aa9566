"""A SQLite store in a folder of its own, with looks under its lid that the contract does not offer."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import shoal.errors
import shoal_service.errors
from shoal_service.store import Appended, Checkpoint, EntryKind, NewEntry, SqliteStore
from shoal_service.store.sqlite.schema import DATABASE_FILE

KEY = ("s", "inc-s")


class Opened:
    """One open store and its stream `s`, with the arguments that most tests do not care about filled in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = SqliteStore(folder)
        self.store.create_stream(*KEY, b"{}", max_streams=9)
        self.epoch = self.store.acquire_writer(*KEY)

    def post(self, payload: bytes = b"x", n_points: int = 1) -> Any:
        return self.store.append(*KEY, NewEntry(EntryKind.BATCH, payload, n_points), budget_bytes=1 << 40)

    def add(self, payload: bytes = b"x", n_points: int = 1) -> Appended:
        answer: Appended = self.post(payload, n_points).result(120)
        return answer

    def save(self, seq: int, blob: bytes, keep_after: int | None = None) -> None:
        checkpoint = Checkpoint(seq, seq, blob)
        self.store.save_checkpoint(*KEY, self.epoch, checkpoint, keep_after=keep_after)

    def payloads(self, after_seq: int = 0) -> list[bytes]:
        found: list[bytes] = []
        while entries := self.store.read(*KEY, after_seq + len(found), max_bytes=1 << 40):
            found += [entry.payload for entry in entries]
        return found

    def in_writer(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        """Run something on the connection that writes, inside a transaction of its thread."""
        return self.store._writer.run(lambda tx: work(tx.db))

    def ask(self, sql: str) -> Any:
        """Ask the file through a connection of one's own: what another process would see."""
        return ask(self.folder, sql)

    def sweep(self) -> None:
        """Wait until all garbage is swept."""
        while self.ask("SELECT count(*) FROM garbage"):
            self.store.check()

    def reopen(self) -> None:
        self.store.close()
        self.store = SqliteStore(self.folder)
        self.epoch = self.store.acquire_writer(*KEY)


def ask(folder: Path, sql: str) -> Any:
    with closing(sqlite3.connect(folder / DATABASE_FILE)) as db:
        return db.execute(sql).fetchone()[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def opened(folder: Path) -> Iterator[Opened]:
    opened = Opened(folder)
    yield opened
    opened.store.close()


@pytest.fixture
def tamper(folder: Path) -> Callable[..., Any]:
    """Change the file of a closed store: `with tamper() as db`."""

    @contextmanager
    def tampering() -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(folder / DATABASE_FILE)) as db, db:
            yield db

    return tampering


@pytest.fixture
def package_path() -> dict[str, str]:
    """An environment in which a child process finds the packages under test."""
    places = {str(Path(module.__file__ or "").parents[1]) for module in (shoal.errors, shoal_service.errors)}
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sorted(places)), "PYTHONUNBUFFERED": "1"}
