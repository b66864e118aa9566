"""The file: how it is opened, what is refused, what it warns of."""

import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import SettingError
from shoal_service.errors import StoreFormatError, StoreUnavailableError
from shoal_service.store import AccessKey, Checkpoint, SqliteStore
from shoal_service.store.sqlite import folder_lock, schema
from shoal_service.store.sqlite.chunks import CHUNK_BYTES


def test_a_commit_waits_for_the_disk_and_only_the_writer_touches_the_log_of_the_file(opened: Any) -> None:
    pragmas = {"journal_mode": "wal", "synchronous": 2, "wal_autocheckpoint": 0}
    got = opened.in_writer(lambda db: {p: db.execute(f"PRAGMA {p}").fetchone()[0] for p in pragmas})
    assert got == pragmas
    with opened.store._readers.snapshot() as db, pytest.raises(sqlite3.OperationalError, match="readonly"):
        db.execute("DELETE FROM entries")
    reader = schema.open_reader(opened.folder)
    opened.add(b"x" * 100_000)
    with pytest.raises(sqlite3.OperationalError):
        reader.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert (opened.folder / "shoal.sqlite3-wal").stat().st_size > 100_000
    reader.close()


def test_nothing_is_acknowledged_into_a_folder_that_was_moved_or_replaced(opened: Any, tmp_path: Path) -> None:
    """Batches were acknowledged into a file without a name, and were gone at the end of the process."""
    opened.add(b"one")
    away = opened.folder.rename(tmp_path / "away")
    for change in (lambda: opened.add(b"lost"), opened.store.check):
        with pytest.raises(StoreUnavailableError, match=r"moved, removed or replaced .* move it back"):
            change()
    shutil.copytree(away, opened.folder)
    with pytest.raises(StoreUnavailableError, match="restart the service"):
        opened.add(b"lost, too")
    shutil.rmtree(opened.folder)
    away.rename(opened.folder)
    opened.add(b"two")
    opened.store.check()
    assert opened.payloads() == [b"one", b"two"]


def test_the_log_of_the_file_is_copied_back_as_it_grows(opened: Any) -> None:
    for _ in range(40):
        opened.add(b"x" * (1 << 20))
    assert (opened.folder / "shoal.sqlite3-wal").stat().st_size < 25 << 20
    assert opened.payloads() == [b"x" * (1 << 20)] * 40


def test_a_file_of_a_newer_shoal_is_refused_and_left_alone(opened: Any, tamper: Any) -> None:
    opened.store.close()
    with tamper() as db:
        db.execute("UPDATE shoal_format SET version = 7")
    with pytest.raises(StoreFormatError, match="has format 7, this shoal reads formats up to 6"):
        SqliteStore(opened.folder)
    with tamper() as db:
        db.execute("UPDATE shoal_format SET version = 6")
    SqliteStore(opened.folder).close()


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_a_file_of_an_earlier_format_is_opened(opened: Any, tamper: Any, version: int) -> None:
    opened.add(b"one")
    opened.save(1, b"state")
    opened.store.close()
    with tamper() as db:  # as that format had it
        for table in ("documents",) if version == 5 else ("documents", "pages"):
            db.execute(f"DROP TABLE {table}")
        for table in ("access_keys", "access_version") if version < 4 else ():
            db.execute(f"DROP TABLE {table}")
        for table in ("streams", "entries", "checkpoints", "dead_letters") if version < 3 else ():
            db.execute(f"ALTER TABLE {table} DROP COLUMN checksum")
        if version == 1:
            for table in ("blobs", "needs", "jobs"):
                db.execute(f"DROP TABLE {table}")
            db.execute("ALTER TABLE checkpoints DROP COLUMN window_seq")
        db.execute("UPDATE shoal_format SET version = ?", (version,))
    (opened.folder / "shoal.high-water").unlink()
    opened.reopen()
    assert opened.store.load_checkpoints("s", "inc-s") == [Checkpoint(1, 1, b"state")]
    opened.store.put_blob("s", "inc-s", "k", b"blob")
    assert opened.store.get_blob("s", "inc-s", "k") == b"blob"
    opened.store.write_pages("s", "inc-s", opened.store.acquire_writer("s", "inc-s"), {(0, 0): b"page"}).result()
    assert opened.store.read_pages("s", "inc-s", [(0, 0)]) == [b"page"]
    opened.store.set_document("s", "inc-s", "label", "7", b"text")
    assert opened.store.documents("s", "inc-s", "label") == {"7": b"text"}
    opened.store.put_access_key(AccessKey("id", "name", b"digest", b"body", 1.0))
    opened.reopen()
    assert [key.name for key in opened.store.access_keys()] == ["name"]
    assert opened.add(b"two").seq == 2
    assert opened.payloads() == [b"one", b"two"]


def test_a_file_of_something_else_is_refused_and_left_alone(folder: Path) -> None:
    folder.mkdir()
    path = folder / schema.DATABASE_FILE
    path.write_bytes(b"This is a diary and no database. " * 100)
    with pytest.raises(StoreFormatError, match="no shoal store"):
        SqliteStore(folder)
    assert path.read_bytes() == b"This is a diary and no database. " * 100
    path.unlink()

    db = sqlite3.connect(path)
    db.execute("CREATE TABLE recipes (name TEXT)")
    db.commit()
    db.close()
    before = path.read_bytes()
    with pytest.raises(StoreFormatError, match="a SQLite file, but no shoal store"):
        SqliteStore(folder)
    assert path.read_bytes() == before


def test_an_empty_file_left_by_a_start_that_was_cut_off_is_made_whole(folder: Path) -> None:
    folder.mkdir()
    (folder / schema.DATABASE_FILE).touch()
    store = SqliteStore(folder)
    store.check()
    store.close()


def test_a_failed_start_frees_the_folder(folder: Path) -> None:
    folder.mkdir()
    (folder / schema.DATABASE_FILE).write_bytes(b"not a database" * 100)
    for _ in range(2):
        with pytest.raises(StoreFormatError):
            SqliteStore(folder)


def test_no_row_is_larger_than_a_chunk(opened: Any) -> None:
    payload = os.urandom(40 << 20)
    opened.add(payload)
    opened.save(0, payload[: 5 << 20])
    assert opened.ask("SELECT max(length(data)) FROM chunks") == CHUNK_BYTES
    assert opened.ask("SELECT count(*) FROM chunks") == 165 + 20 - 5
    assert opened.payloads() == [payload]
    assert opened.store.load_checkpoints("s", "inc-s")[0].blob == payload[: 5 << 20]


@pytest.mark.parametrize(("version", "warned"), [((3, 40, 1), True), ((3, 51, 2), True), ((3, 51, 3), False)])
def test_an_sqlite_with_the_wal_reset_fault_is_warned_of(
    folder: Path, monkeypatch: Any, caplog: Any, version: tuple[int, int, int], warned: bool
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
    with caplog.at_level(logging.INFO, "shoal_service.store"):
        SqliteStore(folder).close()
    assert ("fixed in 3.51.3" in caplog.text) is warned


def test_the_files_are_for_their_owner_only(opened: Any) -> None:
    opened.add()
    files = [opened.folder, *opened.folder.iterdir()]
    assert len(files) == 6  # with the lock, the high-water marks, the database, its log and the log's index
    assert [file.stat().st_mode & 0o077 for file in files] == [0] * 6


MOUNTS = """\
/dev/vda1 / ext4 rw 0 0
server:/export /home nfs4 rw 0 0
/dev/vdb1 /home/me/local\\040disk xfs rw 0 0
//box/share /mnt/share cifs rw 0 0
tmpfs /mnt/share tmpfs rw 0 0
broken line
"""


def test_a_network_file_system_is_refused_where_the_system_says_so(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    kinds = {
        "/var/shoal": "ext4",
        "/home/me/data": "nfs4",
        "/home/me/local disk/data": "xfs",
        "/homework": "ext4",
        "/mnt/share/x": "tmpfs",  # mounted over the share
    }
    assert {path: folder_lock.file_system_type(Path(path), mounts) for path in kinds} == kinds
    with pytest.raises(SettingError, match=r"/home/me/data is on a network file system \(nfs4\)"):
        folder_lock.refuse_network_file_system(Path("/home/me/data"), mounts)
    folder_lock.refuse_network_file_system(Path("/var/shoal"), mounts)
    folder_lock.refuse_network_file_system(Path("/home/me/data"), tmp_path / "no such file")


def test_a_folder_that_cannot_be_made_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailableError, match="cannot be used"):
        SqliteStore(tmp_path / "file" / "data")


READ_ONLY = """
import os, sys
from shoal_service.errors import StoreUnavailableError
from shoal_service.store import SqliteStore
if os.getuid() == 0:
    os.setuid(65534)
try:
    SqliteStore(sys.argv[1])
except StoreUnavailableError as error:
    print(error)
"""


def test_a_read_only_folder_is_said_so(package_path: dict[str, str]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="shoal-read-only-"))
    try:
        folder.chmod(0o555)
        done = subprocess.run(
            [sys.executable, "-c", READ_ONLY, str(folder)],
            env=package_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert "cannot be used (Permission denied)" in done.stdout, done.stderr
    finally:
        shutil.rmtree(folder)


def test_an_old_sqlite_is_no_warning(tmp_path: Path, caplog: Any, monkeypatch: Any) -> None:
    """It was the first thing that anyone saw, although shoal avoids the fault."""
    monkeypatch.setattr("shoal_service.store.sqlite.schema.FIXED_SQLITE", (99, 0, 0))
    with caplog.at_level(logging.DEBUG, "shoal_service.store"):
        SqliteStore(tmp_path / "data").close()
    assert [record.levelname for record in caplog.records] == ["INFO"]
