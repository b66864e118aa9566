"""Folders among the temporary files of the system, each tied to its process by a lock.

The operating system releases the lock when the process ends, for whatever reason, also in a container that shares the
folder of temporary files. So what a killed process has left behind is known for certain, and the next one removes it.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path

FOLDERS = "shoal-"
"""Beginning of the names of all folders."""
LOCK_FILE = "shoal-folder.lock"


class TemporaryFolder:
    """A folder for this user alone, until `remove`."""

    def __init__(self, kind: str) -> None:
        """Make a folder, and remove those that killed processes have left. `kind`: a word for its name.

        Raises OSError.
        """
        remove_abandoned(Path(tempfile.gettempdir()))
        self.path = Path(tempfile.mkdtemp(prefix=f"{FOLDERS}{kind}-"))
        before = self.path / "new.lock"
        self._lock = os.open(before, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        before.rename(self.path / LOCK_FILE)  # under its own name it is always locked, so no other process removes it

    def remove(self) -> None:
        """Remove the folder with all that is in it. May be called again."""
        shutil.rmtree(self.path, ignore_errors=True)
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)


def remove_abandoned(place: Path) -> None:
    """Remove the folders of this user in `place` whose processes are gone. What is of another kind is kept."""
    for folder in place.glob(f"{FOLDERS}*"):
        with contextlib.suppress(OSError):  # it is locked, or no folder of this kind, or removed meanwhile
            if _is_own_folder(folder):
                lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_NOFOLLOW)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
                finally:
                    os.close(lock)


def _is_own_folder(path: Path) -> bool:
    found = path.lstat()
    permissions = stat.S_IMODE(found.st_mode) & 0o777  # without the bit that a folder may have from its parent
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and permissions == 0o700
