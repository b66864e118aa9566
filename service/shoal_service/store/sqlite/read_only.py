"""Data folder opened to be read only: nothing in it changes, whether a process uses it or not.

A folder that no process uses is locked meanwhile, so that none begins. Its database is opened as immutable, unless a
crash has left a write-ahead log, which SQLite reads with the help of a small file of its own. That file is removed.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from shoal_service.errors import StoreFormatError, StoreUnavailableError
from shoal_service.store.sqlite.folder_lock import LOCK_FILE, unusable
from shoal_service.store.sqlite.schema import (
    CHECKSUMS_SINCE,
    DATABASE_ERRORS,
    DATABASE_FILE,
    format_version,
    store_error,
)


@contextmanager
def open_read_only(folder: Path) -> Iterator[tuple[sqlite3.Connection, int, bool]]:
    """Give a connection, the format version, and whether a process uses the folder.

    StoreFormatError for a file that is no store, or of a format without checksums; StoreUnavailableError for a folder
    that holds none or cannot be read.
    """
    path = folder.absolute() / DATABASE_FILE
    if not path.is_file():
        raise StoreUnavailableError(f"{folder} holds no store (no file {DATABASE_FILE}); name the folder of the data")
    with _rest_of(folder) as in_use:
        wal, shared = (path.with_name(f"{DATABASE_FILE}-{end}") for end in ("wal", "shm"))
        needs_log = in_use or (wal.exists() and wal.stat().st_size > 0)
        leaves = [] if in_use else [file for file in (wal, shared) if not file.exists()]
        options = "mode=ro" if needs_log else "mode=ro&immutable=1"
        try:
            with closing(sqlite3.connect(f"{path.as_uri()}?{options}", uri=True, isolation_level=None)) as db:
                db.text_factory = lambda text: text.decode("utf-8", "surrogateescape")  # damaged text is still read
                version = format_version(db, path)
                if version is None:
                    raise StoreFormatError(
                        f"{path} is empty or holds another database, no shoal store; restore it from a copy"
                    )
                if version < CHECKSUMS_SINCE:
                    raise StoreFormatError(
                        f"{path} has format {version}, from before checksums; start shoal once, which converts it"
                    )
                yield db, version, in_use
        except DATABASE_ERRORS as error:
            raise store_error(error, f"reading {path}") from error
        finally:
            for file in filter(Path.exists, leaves):  # on a read-only disk, to remove even an absent file is an error
                file.unlink(missing_ok=True)


@contextmanager
def _rest_of(folder: Path) -> Iterator[bool]:
    """Keep other processes from beginning to use the folder. Gives whether one uses it already."""
    try:
        fd = os.open(folder / LOCK_FILE, os.O_RDONLY)
    except FileNotFoundError:
        yield False  # a copy without the lock file
        return
    except OSError as error:
        raise unusable(folder, error) from error
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            in_use = False
        except BlockingIOError:
            in_use = True
        yield in_use
    finally:
        os.close(fd)


@contextmanager
def one_commit(db: sqlite3.Connection) -> Iterator[None]:
    """Read from one commit within the block."""
    db.execute("BEGIN")
    try:
        yield
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
