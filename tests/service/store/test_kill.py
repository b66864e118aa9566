"""kill -9 at many moments: what was acknowledged is there, once, where it was said to be."""

import importlib.util
import random
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from harness.short_form import longer
from shoal_service.store import EntryKind, NewEntry, SqliteStore, Store
from shoal_service.store.sqlite.schema import DATABASE_FILE

APPENDER = Path(__file__).with_name("appender.py")
ROUNDS = 7
PLENTY = 1 << 40


def load_appender() -> Any:
    spec = importlib.util.spec_from_file_location("appender", APPENDER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Acknowledged(NamedTuple):
    stream: str
    seq: int
    log_offset: int
    n_points: int
    token: str
    size: int


def run_and_kill(folder: Path, seed: int, delay_s: float, environment: dict[str, str]) -> list[list[str]]:
    """What a child said before it was killed."""
    child = subprocess.Popen(
        [sys.executable, str(APPENDER), str(folder), str(seed)], env=environment, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(delay_s)
        child.kill()
        return [line.split() for line in child.stdout]


def held_entries(store: Store, name: str) -> dict[str, tuple[int, int, int, bytes]]:
    """By token, with the numbering checked: no seq or offset twice, none left out."""
    stream = (name, f"inc-{name}")
    entries = store.read(*stream, store.tail(*stream).first_seq - 1, max_bytes=PLENTY)
    tail = store.tail(*stream)
    assert [e.seq for e in entries] == list(range(tail.first_seq, tail.seq + 1))
    offset = entries[0].log_offset - entries[0].n_points if entries else tail.log_offset
    for entry in entries:
        offset += entry.n_points
        assert entry.log_offset == offset
    assert offset == tail.log_offset
    found = {e.payload.split(b";")[0].decode(): (e.seq, e.log_offset, e.n_points, e.payload) for e in entries}
    assert len(found) == len(entries)  # no token twice
    return found


@pytest.mark.parametrize("seed", [11, longer(12), longer(13)])
def test_what_was_acknowledged_before_kill_9_is_there_once(
    folder: Path, package_path: dict[str, str], seed: int
) -> None:
    appender = load_appender()
    rng = random.Random(seed)
    acknowledged: list[Acknowledged] = []
    checkpointed = (0, 0)
    for n in count():
        if n >= ROUNDS and len(acknowledged) > 50:  # on a slow machine a round acknowledges little
            break
        # Each round opens what the last kill left behind.
        for what, *rest in run_and_kill(folder, seed * 100 + n, rng.uniform(0.0, 0.3), package_path):
            if what == "append":
                name, seq, log_offset, n_points, token, size = rest
                said = Acknowledged(name, int(seq), int(log_offset), int(n_points), token, int(size))
                acknowledged.append(said)
            else:
                checkpointed = (int(rest[0]), int(rest[1]))

    store = SqliteStore(folder)
    kept, trimmed = held_entries(store, "kept"), held_entries(store, "trimmed")
    first_held = store.tail("trimmed", "inc-trimmed").first_seq
    for said in acknowledged:
        if said.stream == "kept" or said.seq >= first_held:
            found = (kept if said.stream == "kept" else trimmed)[said.token]
            assert found == (said.seq, said.log_offset, said.n_points, appender.payload(said.token, said.size))

    checkpoints = store.load_checkpoints("trimmed", "inc-trimmed")
    if checkpointed[0]:
        assert (checkpoints[0].seq, checkpoints[0].log_offset) >= checkpointed
        assert all(c.blob == appender.state_after(c.seq) for c in checkpoints)
        assert checkpoints[-1].seq >= first_held - 1  # the log reaches back to the older one

    # Whoever did not hear the answer asks again: keyed requests are answered once more, not appended twice.
    before = store.tail("kept", "inc-kept")
    for said in [a for a in acknowledged if a.stream == "kept" and int(a.token.split("-")[2]) % 2][-20:]:
        again = store.append(
            "kept",
            "inc-kept",
            NewEntry(EntryKind.BATCH, b"", said.n_points, idempotency=appender.key(said.token)),
            budget_bytes=PLENTY,
        ).result(120)
        assert again == (said.seq, said.log_offset, said.n_points, True)
    assert store.tail("kept", "inc-kept") == before
    store.close()
    with closing(sqlite3.connect(folder / DATABASE_FILE)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
