"""A flipped byte in the files of a SQLite store is noticed, and nothing that was not written is ever read."""

import logging
import random
import shutil
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from shoal_service.errors import LogGapError, StoreError, StoreFormatError, StoreUnavailableError
from shoal_service.store import AccessKey, Checkpoint, DeadLetter, EntryKind, NewEntry, SqliteStore
from shoal_service.store.sqlite.schema import DATABASE_FILE

KEY = ("s", "inc-s")
WAL = f"{DATABASE_FILE}-wal"
MARKS = "shoal.high-water"


def payload(seq: int) -> bytes:
    return random.Random(seq).randbytes(700)


@pytest.fixture
def copy_of(opened: Any, tmp_path: Path) -> Callable[[], Path]:
    """A copy of the folder as a crash would leave it now."""

    def copied() -> Path:
        target = tmp_path / "copy"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(opened.folder, target)
        return target

    return copied


def flip(path: Path, at: int, mask: int = 0xFF) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= mask
    path.write_bytes(data)


def flip_within(path: Path, part: bytes) -> None:
    at = path.read_bytes().find(part)
    assert at >= 0
    flip(path, at + len(part) // 2)


def read_all(store: SqliteStore) -> tuple[list[bytes], str | None]:
    """What a learner gets from the log: payloads, and the error that ends it."""
    found: list[bytes] = []
    try:
        while entries := store.read(*KEY, len(found), max_bytes=1000):
            found += [entry.payload for entry in entries]
            assert entries[-1].seq == entries[-1].log_offset == len(found)
    except StoreError as error:
        return found, str(error)
    return found, None


def test_a_point_that_was_changed_on_the_disk_is_not_learnt(opened: Any) -> None:
    for seq in range(1, 6):
        opened.add(payload(seq))
    opened.store.close()
    flip_within(opened.folder / DATABASE_FILE, payload(4))
    opened.store = SqliteStore(opened.folder)
    found, error = read_all(opened.store)
    assert found == [payload(seq) for seq in range(1, 4)], "the whole entries before it are read"
    assert "entry 4 is missing or damaged" in str(error)


def test_a_write_ahead_log_that_was_cut_by_a_flipped_byte_is_noticed(
    opened: Any, copy_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for seq in range(1, 21):
        opened.add(payload(seq))
    folder = copy_of()
    flip_within(folder / WAL, payload(15))
    with caplog.at_level(logging.ERROR, "shoal_service.store"):
        store = SqliteStore(folder)
    assert "but entry 20 was acknowledged" in caplog.text
    found, error = read_all(store)
    assert found == [payload(seq) for seq in range(1, 15)]
    assert "the log ends at entry 14, but entry 20 was acknowledged" in str(error)
    with pytest.raises(LogGapError, match="entry 20 was acknowledged"):
        store.append(*KEY, NewEntry(EntryKind.BATCH, b"x", 1), budget_bytes=1 << 40).result()
    store.close()
    store = SqliteStore(folder)
    with pytest.raises(LogGapError):
        store.read(*KEY, 14, max_bytes=1)
    store.close()
    (folder / MARKS).unlink()
    store = SqliteStore(folder)
    assert store.append(*KEY, NewEntry(EntryKind.BATCH, b"x", 1), budget_bytes=1 << 40).result().seq == 15
    store.close()


def test_a_stream_that_the_write_ahead_log_lost_is_named(opened: Any, copy_of: Any) -> None:
    opened.store._writer._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    opened.store.create_stream("newest", "inc", b"{}", max_streams=9)
    folder = copy_of()
    flip(folder / WAL, 100)
    with pytest.raises(StoreFormatError, match="lacks stream 'newest'"):
        SqliteStore(folder)


def test_a_deleted_stream_is_not_missed(opened: Any, copy_of: Any) -> None:
    opened.add()
    opened.store.create_stream("t", "inc-t", b"{}", max_streams=9)
    opened.store.delete_stream("t")
    SqliteStore(copy_of()).close()


def test_marks_that_are_damaged_or_old_raise_no_false_alarm(opened: Any, copy_of: Any) -> None:
    opened.add(b"one")
    old = (opened.folder / MARKS).read_bytes()
    opened.add(b"two")
    folder = copy_of()
    (folder / MARKS).write_bytes(old)
    store = SqliteStore(folder)
    assert read_all(store) == ([b"one", b"two"], None)
    store.close()
    flip(folder / MARKS, (folder / MARKS).stat().st_size - 100)
    store = SqliteStore(folder)
    assert read_all(store) == ([b"one", b"two"], None)
    store.close()


def test_a_damaged_last_entry_takes_no_more_appends(opened: Any, tamper: Any) -> None:
    opened.add(b"one")
    opened.add(b"two")
    opened.store.close()
    with tamper() as db:
        db.execute("UPDATE entries SET log_offset = 9 WHERE seq = 2")
    opened.store = SqliteStore(opened.folder)
    assert read_all(opened.store)[0] == [b"one"]
    with pytest.raises(LogGapError, match="entry 2 is missing or damaged"):
        opened.add(b"three")


def test_the_log_is_trimmed_past_a_damaged_entry(opened: Any, tamper: Any) -> None:
    for seq in range(1, 9):
        opened.add(payload(seq))
    opened.store.close()
    with tamper() as db:
        db.execute("UPDATE entries SET log_offset = 99 WHERE seq = 4")
    opened.store = SqliteStore(opened.folder)
    opened.epoch = opened.store.acquire_writer(*KEY)
    opened.save(4, b"a")
    opened.save(6, b"b")
    assert opened.store.tail(*KEY).first_seq == 4, "up to the last whole entry before it"
    opened.save(8, b"c")
    assert opened.store.tail(*KEY).first_seq == 7
    assert opened.payloads(6) == [payload(7), payload(8)]


@pytest.mark.parametrize("column", ["seq = 3", "log_offset = 9", "window_seq = 1", "size = 4", "sha256 = x'00'"])
def test_a_checkpoint_whose_row_was_changed_is_left_out(opened: Any, tamper: Any, caplog: Any, column: str) -> None:
    for _ in range(6):
        opened.add()
    opened.save(2, b"older")
    opened.save(5, b"newer")
    opened.store.close()
    with tamper() as db:
        db.execute(f"UPDATE checkpoints SET {column} WHERE seq = 5")
    opened.store = SqliteStore(opened.folder)
    assert [checkpoint.blob for checkpoint in opened.store.load_checkpoints(*KEY)] == [b"older"]
    assert "is damaged and left out" in caplog.text
    assert [entry.seq for entry in opened.store.read(*KEY, 2, max_bytes=1 << 20)] == [3, 4, 5, 6]


def test_a_checkpoint_with_a_changed_row_never_decides_what_is_trimmed(opened: Any, tamper: Any) -> None:
    for _ in range(5):
        opened.add()
    for seq, window_seq in ((1, 0), (3, 0)):
        checkpoint = Checkpoint(seq, seq, b"state %d" % seq, window_seq)
        opened.store.save_checkpoint(*KEY, opened.epoch, checkpoint)
    opened.store.close()
    with tamper() as db:
        db.execute("UPDATE checkpoints SET window_seq = 3 WHERE seq = 3")
    opened.store = SqliteStore(opened.folder)
    opened.epoch = opened.store.acquire_writer(*KEY)
    opened.store.save_checkpoint(*KEY, opened.epoch, Checkpoint(5, 5, b"state 5", window_seq=4))
    assert [checkpoint.seq for checkpoint in opened.store.load_checkpoints(*KEY)] == [5, 1]
    assert opened.store.tail(*KEY).first_seq == 1, "the older whole checkpoint still has its window"


def test_a_damaged_dead_letter_or_stream_is_named(opened: Any, tamper: Any) -> None:
    opened.add()
    opened.store.add_dead_letter(*KEY, opened.epoch, DeadLetter(1, 1, 1, "why", b"payload of a letter"))
    opened.store.close()
    with tamper() as db:
        db.execute("UPDATE dead_letters SET seq = 2")
    opened.store = SqliteStore(opened.folder)
    with pytest.raises(LogGapError, match="dead letter of entry 2 is damaged"):
        opened.store.dead_letter_reasons(*KEY)
    opened.store.close()
    with tamper() as db:
        db.execute("UPDATE dead_letters SET seq = 1")
    flip_within(opened.folder / DATABASE_FILE, b"payload of a letter")
    opened.store = SqliteStore(opened.folder)
    assert opened.store.dead_letter_reasons(*KEY) == {1: "why"}
    with pytest.raises(LogGapError, match="dead letter of entry 1 is damaged"):
        opened.store.dead_letters(*KEY)
    opened.store.close()
    with tamper() as db:
        db.execute("UPDATE streams SET settings = x'5b5d'")
    opened.store = SqliteStore(opened.folder)
    with pytest.raises(StoreFormatError, match="record of stream 's' is damaged"):
        opened.store.get_stream("s")


@pytest.mark.parametrize("column", ["settings = x'7b20'", "name = 't'", "incarnation = 'other'", "floor_seq = 3"])
def test_a_damaged_record_keeps_no_other_stream_out(opened: Any, tamper: Any, caplog: Any, column: str) -> None:
    opened.add(payload(1))
    opened.store.create_stream("whole", "inc-w", b"{}", max_streams=9)
    opened.store.append("whole", "inc-w", NewEntry(EntryKind.BATCH, b"kept", 1), budget_bytes=1 << 40).result()
    opened.store.close()
    with tamper() as db:
        db.execute(f"UPDATE streams SET {column} WHERE name = 's'")
    opened.store = SqliteStore(opened.folder)
    assert "is damaged, so the stream is not served" in caplog.text
    assert [record.name for record in opened.store.list_streams()] == ["whole"]
    assert opened.store.read("whole", "inc-w", 0, max_bytes=99)[0].payload == b"kept"
    assert (
        opened.store.append("whole", "inc-w", NewEntry(EntryKind.BATCH, b"x", 1), budget_bytes=1 << 40).result().seq
        == 2
    )
    for ask in (
        lambda: opened.store.get_stream("s"),
        lambda: opened.store.create_stream("s", "new", b"{}", max_streams=9),
        lambda: opened.store.delete_stream("s"),
    ):
        with pytest.raises(StoreFormatError, match="record of stream 's' is damaged"):
            ask()
    with pytest.raises(StoreError):
        opened.add()


def test_no_path_is_told_to_whoever_asks_whether_the_disk_works(opened: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("shoal_service.store.sqlite.store.CHECK_TIMEOUT_S", 0.0)
    monkeypatch.setattr(opened.store._writer, "submit", lambda work: Future())
    with pytest.raises(StoreUnavailableError, match="has not completed a write") as refused:
        opened.store.check()
    assert str(opened.folder) not in str(refused.value)


def survives(folder: Path, n_entries: int) -> str:
    """Open a damaged store, and check that what it gives was written. Returns what it says of the damage."""
    try:
        store = SqliteStore(folder)
    except StoreError as error:
        return str(error)
    said = "nothing"
    try:
        found, error_text = read_all(store)
        assert found == [payload(seq) for seq in range(1, len(found) + 1)]
        if error_text is None:
            assert len(found) == n_entries, "a shorter log is said"
        said = error_text or said
        for checkpoint in store.load_checkpoints(*KEY):
            assert checkpoint[:3] in [(2, 2, b"A" * 900), (5, 5, b"B" * 900)]
            assert checkpoint.window_seq == 0
        assert store.get_blob(*KEY, "k") == b"C" * 900
        # What came after the last entry may be lost with the end of the write-ahead log: a replay brings it again.
        assert store.dead_letters(*KEY) in ([], [DeadLetter(3, 3, 1, "why", b"D" * 900)])
    except StoreError as error:
        said = str(error)
    finally:
        store.close()
    return said


@pytest.mark.parametrize("file", [DATABASE_FILE, WAL, MARKS])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 17))])
def test_no_flipped_byte_changes_what_is_read(opened: Any, copy_of: Any, file: str, seed: int) -> None:
    n_entries = 8
    for seq in range(1, n_entries + 1):
        opened.add(payload(seq))
    for seq, blob in ((2, b"A" * 900), (5, b"B" * 900)):
        checkpoint = Checkpoint(seq, seq, blob, window_seq=0)
        opened.store.save_checkpoint(*KEY, opened.epoch, checkpoint, keep_after=0)
    opened.store.put_blob(*KEY, "k", b"C" * 900)
    opened.store.add_dead_letter(*KEY, opened.epoch, DeadLetter(3, 3, 1, "why", b"D" * 900))
    if file == DATABASE_FILE:
        opened.store._writer._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    size = (opened.folder / file).stat().st_size
    rng = random.Random(seed)
    written = [i for i, byte in enumerate((opened.folder / file).read_bytes()) if byte]
    said = set()
    for _ in range(30):
        folder = copy_of()
        at, mask = rng.choice(written), rng.randrange(1, 256)
        flip(folder / file, at, mask)
        try:
            said.add(survives(folder, n_entries))
        except AssertionError as error:
            raise AssertionError(f"byte {at} of {size} in {file}, xor {mask}") from error
    assert (len(said) > 1) is (file != MARKS), said


@pytest.mark.parametrize("column", ["name", "digest", "body", "created_at"])
def test_a_damaged_access_key_opens_nothing_and_still_counts(
    opened: Any, tamper: Any, column: str, caplog: pytest.LogCaptureFixture
) -> None:
    opened.store.put_access_key(AccessKey("a", "one", b"digest", b"read", 1.0))
    opened.store.put_access_key(AccessKey("b", "two", b"other", b"write", 2.0))
    opened.store.close()
    values = {"name": "ona", "digest": b"disest", "body": b"adin", "created_at": 1.0000001}
    with tamper() as db:
        db.execute(f"UPDATE access_keys SET {column} = ? WHERE id = 'a'", (values[column],))
    opened.reopen()
    with caplog.at_level(logging.WARNING, "shoal_service.store"):
        damaged, whole = opened.store.access_keys()
    assert (damaged.id, damaged.digest, damaged.body) == ("a", b"", b"")
    assert whole == AccessKey("b", "two", b"other", b"write", 2.0)
    assert "'a' is damaged and opens nothing" in caplog.text
    assert opened.store.delete_access_key("a")
