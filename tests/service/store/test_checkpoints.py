"""A checkpoint is whole or it does not count: damage is found, said, and survived by the older one."""

import logging
import random
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from harness.short_form import short_form
from shoal_service.errors import LogGapError, StaleWriterError
from shoal_service.store import Checkpoint
from shoal_service.store.sqlite.chunks import CHUNK_BYTES

KEY = ("s", "inc-s")
NEWEST = "(SELECT first_chunk FROM checkpoints ORDER BY seq DESC LIMIT 1)"
DAMAGE = {
    "a bit": f"UPDATE chunks SET data = CAST(x'00' || substr(data, 2) AS BLOB) WHERE id = {NEWEST}",
    "cut off": f"UPDATE chunks SET data = substr(data, 1, length(data) - 1) WHERE id = {NEWEST} + 1",
    "a row lost": f"DELETE FROM chunks WHERE id = {NEWEST} + 1",
    "rows exchanged": f"UPDATE chunks SET id = -id WHERE id IN ({NEWEST}, {NEWEST} + 1);"
    f" UPDATE chunks SET id = {NEWEST} + ({NEWEST} + 1 + id) WHERE id < 0",
    "checksum": "UPDATE checkpoints SET sha256 = zeroblob(32) WHERE seq = 4",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_newest_falls_back_to_the_older_with_a_warning(
    opened: Any, tamper: Any, caplog: Any, damage: str
) -> None:
    for _ in range(6):
        opened.add(b"entry")
    blobs = {seq: random.Random(seq).randbytes(CHUNK_BYTES + 1000) for seq in (2, 4, 5, 6)}
    opened.save(2, blobs[2])
    opened.save(4, blobs[4])
    opened.store.close()
    with tamper() as db:
        db.executescript(DAMAGE[damage])
    opened.reopen()
    with caplog.at_level(logging.WARNING, "shoal_service.store"):
        assert opened.store.load_checkpoints(*KEY) == [Checkpoint(2, 2, blobs[2])]
    assert "the checkpoint at entry 4 of stream 's' is damaged" in caplog.text
    assert opened.payloads(after_seq=2) == [b"entry"] * 4  # the log still reaches back to the older one

    # The damaged one no longer counts as one of the two: the good one stays, and so does the log behind it.
    opened.save(5, blobs[5])
    assert opened.store.load_checkpoints(*KEY) == [Checkpoint(s, s, blobs[s]) for s in (5, 2)]
    assert opened.store.tail(*KEY).first_seq == 3
    opened.save(6, blobs[6])
    assert opened.store.load_checkpoints(*KEY) == [Checkpoint(s, s, blobs[s]) for s in (6, 5)]
    opened.sweep()
    assert opened.ask("SELECT count(*) FROM chunks") == 2 * 2 + len(opened.payloads(5))
    assert opened.ask("PRAGMA integrity_check") == "ok"


def test_when_both_are_damaged_the_log_says_what_is_missing(opened: Any, tamper: Any) -> None:
    for _ in range(3):
        opened.add()
    opened.save(1, b"one")
    opened.save(2, b"two")
    opened.store.close()
    with tamper() as db:
        db.execute("UPDATE checkpoints SET sha256 = zeroblob(32)")
    opened.reopen()
    assert opened.store.load_checkpoints(*KEY) == []
    with pytest.raises(LogGapError):
        opened.store.read(*KEY, 0, max_bytes=100)


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM chunks WHERE id = (SELECT first_chunk FROM entries WHERE seq = 2)",
        "UPDATE chunks SET data = x'00' WHERE id = (SELECT first_chunk FROM entries WHERE seq = 2)",
        "DELETE FROM entries WHERE seq = 2",
    ],
)
def test_an_entry_that_is_not_whole_is_a_gap(opened: Any, tamper: Any, damage: str) -> None:
    for i in range(3):
        opened.add(b"entry %d" % i)
    opened.store.close()
    with tamper() as db:
        db.execute(damage)
    opened.reopen()
    for after in (0, 1):
        with pytest.raises(LogGapError, match="entry 2"):
            opened.payloads(after)
    assert opened.payloads(after_seq=2) == [b"entry 2"]


def test_a_last_row_that_was_lost_is_not_given_to_somebody_else(opened: Any, tamper: Any) -> None:
    opened.add(b"x" * (3 * CHUNK_BYTES))
    opened.store.close()
    with tamper() as db:
        db.execute("DELETE FROM chunks WHERE id = (SELECT max(id) FROM chunks)")
    opened.reopen()
    opened.add(b"y")
    with pytest.raises(LogGapError):
        opened.payloads()
    assert opened.payloads(after_seq=1) == [b"y"]


def test_the_ids_of_a_run_that_was_never_finished_are_not_given_out_while_it_is_swept(opened: Any, tamper: Any) -> None:
    opened.add(b"before")
    opened.store.close()
    with tamper() as db:  # as a kill leaves it, right after the first piece of a large checkpoint was reserved
        db.execute("INSERT INTO garbage SELECT max(id) + 1, 1 << 30 FROM chunks")
    opened.reopen()
    for i in range(100):
        opened.post(b"after %d" % i)
    opened.sweep()
    assert opened.payloads() == [b"before", *(b"after %d" % i for i in range(100))]


def test_appends_pass_between_the_pieces_of_a_large_checkpoint(opened: Any) -> None:
    opened.add()
    passed = 0
    done = threading.Event()

    def save() -> None:
        opened.save(0, b"x" * (48 << 20))
        done.set()

    thread = threading.Thread(target=save)
    thread.start()
    while not done.is_set():
        opened.add()
        passed += 1
    thread.join(120)
    assert passed > 5
    assert opened.store.load_checkpoints(*KEY)[0].blob == b"x" * (48 << 20)


def test_a_checkpoint_whose_writer_is_overtaken_on_the_way_leaves_nothing(
    opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened.add()
    refused: list[BaseException] = []
    begun, overtaken = threading.Event(), threading.Event()

    def save() -> None:
        try:
            opened.save(1, b"x" * (16 << 20))
        except StaleWriterError as error:
            refused.append(error)

    thread = threading.Thread(target=save)
    run, pieces = opened.store._writer.run, [0]

    def held_up(*given: Any) -> Any:
        pieces[0] += threading.current_thread() is thread
        if threading.current_thread() is thread and pieces[0] == 3:
            begun.set()
            assert overtaken.wait(120)
        return run(*given)

    monkeypatch.setattr(opened.store._writer, "run", held_up)
    thread.start()
    assert begun.wait(120)
    opened.store.acquire_writer(*KEY)
    overtaken.set()
    thread.join(120)
    assert len(refused) == 1
    opened.sweep()
    assert opened.store.load_checkpoints(*KEY) == []
    assert opened.ask("SELECT count(*) FROM chunks") == 1


TORN = """
import sys
from shoal_service.store import Checkpoint, SqliteStore
store = SqliteStore(sys.argv[1])
epoch = store.acquire_writer("s", "inc-s")
n = max((c.log_offset for c in store.load_checkpoints("s", "inc-s")), default=0)
print("ready", flush=True)
while True:
    n += 1
    blob = n.to_bytes(8, "big") * (1 << 20)
    store.save_checkpoint("s", "inc-s", epoch, Checkpoint(n % 2, n, blob))
    print(n, flush=True)
"""


@pytest.mark.parametrize("seed", short_form(range(4), (1, 3)))
def test_a_checkpoint_torn_by_kill_9_leaves_the_last_whole_one(
    opened: Any, package_path: dict[str, str], seed: int
) -> None:
    opened.add()
    opened.store.close()
    rounds = 2
    saved = 0
    for round_ in range(rounds):
        child = subprocess.Popen(
            [sys.executable, "-c", TORN, str(opened.folder)], env=package_path, stdout=subprocess.PIPE, text=True
        )
        with child:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            time.sleep(0.01 + 0.04 * (rounds * seed + round_))
            child.kill()
            for said in child.stdout:
                saved = int(said)
    opened.reopen()
    checkpoints = opened.store.load_checkpoints(*KEY)
    assert max((c.log_offset for c in checkpoints), default=0) in (saved, saved + 1)
    assert all(c.blob == c.log_offset.to_bytes(8, "big") * (1 << 20) for c in checkpoints)
    opened.sweep()
    assert opened.ask("SELECT count(*) FROM chunks") == 1 + 32 * len(checkpoints)
    assert opened.ask("PRAGMA integrity_check") == "ok"
