"""SQLite database: tables, format version, and opening it for the writer and for readers."""

import logging
import os
import sqlite3
from pathlib import Path

from shoal_service.errors import StoreError, StoreFormatError, StoreUnavailableError

FORMAT_VERSION = 6
CHECKSUMS_SINCE = 3
"""First format in which rows have checksums."""
DATABASE_FILE = "shoal.sqlite3"
PAGE_BYTES = 16_384
"""Page size of a new file. An older file keeps its own. Four times the default of SQLite halves the CPU time of a
batch of 64 KB, and costs a small batch nothing."""
DATABASE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""Errors that a damaged file can raise in Python's binding of SQLite."""
FIXED_SQLITE = (3, 51, 3)
"""First version in which two connections that write or checkpoint at once cannot corrupt a WAL that is being reset."""

_log = logging.getLogger("shoal_service.store")

# All payloads are in `chunks`, as runs of consecutive ids that are found by (first_chunk, size). An append therefore
# changes the right edge of two trees, and a lookup by seq never reads pages of payloads.
# Rows that are looked up by (stream, seq) are small, hence WITHOUT ROWID. Large rows are better with a rowid.
_TABLES = """
CREATE TABLE shoal_format (version INTEGER NOT NULL, probes INTEGER NOT NULL);
CREATE TABLE streams (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, incarnation TEXT NOT NULL, settings BLOB NOT NULL,
    created_at REAL NOT NULL, epoch INTEGER NOT NULL,
    floor_seq INTEGER NOT NULL, floor_offset INTEGER NOT NULL, floor_bytes INTEGER NOT NULL);
CREATE TABLE entries (
    stream INTEGER NOT NULL, seq INTEGER NOT NULL, log_offset INTEGER NOT NULL, payload_bytes INTEGER NOT NULL,
    n_points INTEGER NOT NULL, kind TEXT NOT NULL, size INTEGER NOT NULL, first_chunk INTEGER NOT NULL,
    PRIMARY KEY (stream, seq)) WITHOUT ROWID;
CREATE TABLE answers (
    stream INTEGER NOT NULL, key TEXT NOT NULL, digest BLOB NOT NULL, seq INTEGER NOT NULL, log_offset INTEGER NOT NULL,
    n_points INTEGER NOT NULL, at REAL NOT NULL, ordinal INTEGER NOT NULL, PRIMARY KEY (stream, key)) WITHOUT ROWID;
CREATE UNIQUE INDEX answers_by_age ON answers (stream, ordinal);
CREATE TABLE checkpoints (
    stream INTEGER NOT NULL, seq INTEGER NOT NULL, log_offset INTEGER NOT NULL, sha256 BLOB NOT NULL,
    size INTEGER NOT NULL, first_chunk INTEGER NOT NULL, window_seq INTEGER, PRIMARY KEY (stream, seq)) WITHOUT ROWID;
CREATE TABLE dead_letters (
    stream INTEGER NOT NULL, seq INTEGER NOT NULL, log_offset INTEGER NOT NULL, n_points INTEGER NOT NULL,
    reason TEXT NOT NULL, size INTEGER NOT NULL, first_chunk INTEGER NOT NULL, PRIMARY KEY (stream, seq)) WITHOUT ROWID;
CREATE TABLE garbage (first_chunk INTEGER PRIMARY KEY, size INTEGER NOT NULL);
CREATE TABLE chunks (id INTEGER PRIMARY KEY, data BLOB NOT NULL);
"""
_SINCE_2 = """
CREATE TABLE blobs (
    stream INTEGER NOT NULL, key TEXT NOT NULL, sha256 BLOB NOT NULL, size INTEGER NOT NULL,
    first_chunk INTEGER NOT NULL, PRIMARY KEY (stream, key)) WITHOUT ROWID;
CREATE TABLE needs (
    stream INTEGER NOT NULL, seq INTEGER NOT NULL, blob_key TEXT NOT NULL, after_seq INTEGER NOT NULL,
    PRIMARY KEY (stream, seq)) WITHOUT ROWID;
CREATE TABLE jobs (
    stream INTEGER NOT NULL, id TEXT NOT NULL, ordinal INTEGER NOT NULL, version INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (stream, id)) WITHOUT ROWID;
"""
_SINCE_3 = "".join(
    f"ALTER TABLE {table} ADD COLUMN checksum BLOB;" for table in ("streams", "entries", "checkpoints", "dead_letters")
)
_SINCE_4 = """
CREATE TABLE access_keys (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, digest BLOB NOT NULL, body BLOB NOT NULL, created_at REAL NOT NULL,
    last_used_at REAL, checksum BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE access_version (version INTEGER NOT NULL);
INSERT INTO access_version VALUES (0);
"""
_SINCE_5 = """
CREATE TABLE pages (stream INTEGER NOT NULL, run INTEGER NOT NULL, page INTEGER NOT NULL, data BLOB NOT NULL);
CREATE UNIQUE INDEX pages_by_place ON pages (stream, run, page);
"""
_SINCE_6 = """
CREATE TABLE documents (
    stream INTEGER NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL, checksum BLOB NOT NULL);
CREATE UNIQUE INDEX documents_by_name ON documents (stream, kind, name);
"""
_CREATE = (
    f"{_TABLES} {_SINCE_2} {_SINCE_3} {_SINCE_4} {_SINCE_5} {_SINCE_6}"
    f" INSERT INTO shoal_format VALUES ({FORMAT_VERSION}, 0);"
)
_FROM_1_TO_2 = f"ALTER TABLE checkpoints ADD COLUMN window_seq INTEGER; {_SINCE_2}"


def open_writer(folder: Path) -> sqlite3.Connection:
    """Open the connection that writes, and create the tables of a new file. StoreFormatError for a foreign file."""
    path = folder / DATABASE_FILE
    _note_old_sqlite()
    db = None
    try:
        # Created here, so that this file, and those beside it that copy its mode, belong to their owner only.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        db = _connect(path, "rw")
        version = format_version(db, path)
        if version is None:
            _create(db, folder)
        elif version < FORMAT_VERSION:
            steps = [_FROM_1_TO_2, _SINCE_3, _SINCE_4, _SINCE_5, _SINCE_6][version - 1 :]
            done = f"UPDATE shoal_format SET version = {FORMAT_VERSION}"
            db.executescript(f"BEGIN IMMEDIATE; {' '.join(steps)} {done}; COMMIT;")
        # FULL: each commit waits until the log is on the disk. A Mac needs `fullfsync` for that.
        # The writer checkpoints between commits, never inside one. The log file shrinks after a large one.
        db.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA fullfsync = ON;"
            "PRAGMA checkpoint_fullfsync = ON; PRAGMA wal_autocheckpoint = 0;"
            f"PRAGMA journal_size_limit = {64 << 20}; PRAGMA cache_size = -16384;"
        )
        if (mode := db.execute("PRAGMA journal_mode").fetchone()[0]) != "wal":
            raise StoreUnavailableError(
                f"SQLite keeps {path} in journal mode {mode!r}, not in WAL mode; choose a folder on a local disk"
            )
    except OSError as error:
        raise StoreUnavailableError(f"{path} cannot be opened ({error.strerror}); make it writable") from error
    except DATABASE_ERRORS as error:
        _close(db)
        raise store_error(error, f"opening {path}") from error
    except StoreError:
        _close(db)
        raise
    return db


def open_reader(folder: Path) -> sqlite3.Connection:
    """Open a connection that can neither write nor checkpoint. One thread at a time may use it."""
    return _connect(folder / DATABASE_FILE, "ro")


def file_identity(folder: Path) -> tuple[int, int] | None:
    """Return device and inode of the database in `folder`, None where there is no file or it cannot be looked at."""
    try:
        found = (folder / DATABASE_FILE).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def store_error(error: sqlite3.Error | UnicodeDecodeError, doing: str) -> StoreError:
    """Convert an error of SQLite to one of the store. Damage is final, and everything else may pass."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if is_corruption(error) or code == sqlite3.SQLITE_NOTADB:
        return StoreFormatError(f"{doing}: the file is damaged or no shoal store ({error}); restore it from a copy")
    hint = "free some disk space" if code == sqlite3.SQLITE_FULL else "see that the disk works and can be written"
    return StoreUnavailableError(f"{doing}: {error}; {hint}, and try again")


def is_corruption(error: Exception) -> bool:
    """Return whether SQLite reports damage of the file. It may do so in bytes that are no text."""
    return (
        isinstance(error, UnicodeDecodeError) or getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CORRUPT
    )


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    # Python opens no transaction by itself. The store executes BEGIN and COMMIT.
    return sqlite3.connect(
        f"{path.as_uri()}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False, timeout=5.0
    )


def format_version(db: sqlite3.Connection, path: Path) -> int | None:
    """Return the version of the file, None for one without tables. StoreFormatError for a file that is not a store."""
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return None
    if "shoal_format" not in tables:
        raise StoreFormatError(f"{path} is a SQLite file, but no shoal store; choose another data folder")
    version: int | None
    (version,) = db.execute("SELECT max(version) FROM shoal_format").fetchone()
    if version not in range(1, FORMAT_VERSION + 1):
        raise StoreFormatError(
            f"{path} has format {version}, this shoal reads formats up to {FORMAT_VERSION}; "
            "use the shoal that wrote it, or a newer one"
        )
    return version


def open_memory() -> sqlite3.Connection:
    """Open a new database in the memory of this process."""
    db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    db.executescript(f"BEGIN; {_CREATE} COMMIT;")
    return db


def _create(db: sqlite3.Connection, folder: Path) -> None:
    db.executescript(
        f"PRAGMA page_size = {PAGE_BYTES}; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; BEGIN IMMEDIATE;"
        f"{_CREATE} COMMIT;"
    )
    # The name of the file must survive a power cut too. SQLite ensures that for its log only.
    for directory in (folder, folder.parent):
        fd = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _note_old_sqlite() -> None:
    if sqlite3.sqlite_version_info < FIXED_SQLITE:
        _log.info(
            "SQLite %s has a fault that can corrupt a database when two connections checkpoint at once (fixed in %s). "
            "shoal avoids it: only one connection writes and checkpoints. Let no other program open the data folder "
            "while shoal runs",
            sqlite3.sqlite_version,
            ".".join(map(str, FIXED_SQLITE)),
        )


def _close(db: sqlite3.Connection | None) -> None:
    if db is not None:
        db.close()
