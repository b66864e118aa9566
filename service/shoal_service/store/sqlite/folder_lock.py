"""Lock on a data folder, and the check that the folder is on a disk with reliable locks."""

import fcntl
import os
from pathlib import Path

from shoal.errors import SettingError
from shoal_service.errors import StoreInUseError, StoreUnavailableError

LOCK_FILE = "shoal.lock"

# Locks and shared memory maps do not work between machines here, which silently corrupts SQLite's write-ahead log.
_NETWORK_NAMES = """
9p afs beegfs ceph cifs davfs glusterfs gpfs lustre ncpfs nfs nfs3 nfs4 orangefs smb2 smb3 smbfs
fuse.beegfs fuse.ceph fuse.gcsfuse fuse.glusterfs fuse.goofys fuse.rclone fuse.s3fs fuse.sshfs
"""
NETWORK_FILE_SYSTEMS = frozenset(_NETWORK_NAMES.split())


class FolderLock:
    """Lock of one process on its data folder, from construction to `release` or to the end of the process.

    The operating system ties the lock to the open file. So kill -9 releases it, and a pid left in the file proves
    nothing. The file is never removed, because then two processes could lock two files of the same name.
    """

    def __init__(self, folder: Path) -> None:
        """Acquire the lock. StoreInUseError names the owner's pid. StoreUnavailableError if no file can be created."""
        path = folder / LOCK_FILE
        try:
            # Python opens files without inheritance, so a child process does not keep the lock.
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise unusable(folder, error) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip()
            os.close(self._fd)
            if not isinstance(error, BlockingIOError):
                raise unusable(folder, error) from error
            raise StoreInUseError(
                f"data folder {folder} belongs to the running process {owner or 'of unknown pid'}; "
                "stop that one, or choose another folder"
            ) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Release the folder. May be called again."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def prepare_folder(folder: Path) -> Path:
    """Create the folder for its owner only, if it is missing. Returns its absolute path."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder.resolve(strict=True)
    except OSError as error:
        raise unusable(folder, error) from error


def refuse_network_file_system(folder: Path, mounts: Path = Path("/proc/mounts")) -> None:
    """Raise SettingError when `folder` is on a network file system. An unknown file system is accepted."""
    kind = file_system_type(folder, mounts)
    if kind in NETWORK_FILE_SYSTEMS:
        raise SettingError(
            f"data folder {folder} is on a network file system ({kind}), where SQLite loses data; "
            "choose a folder on a local disk"
        )


def file_system_type(folder: Path, mounts: Path = Path("/proc/mounts")) -> str | None:
    """Return the type of the file system of the absolute path `folder`. None when the system does not say."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    kind, depth = None, -1
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        # Blanks in a mount point are octal escapes.
        point = Path(fields[1].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\"))
        # The last of several mounts on one point hides the others.
        if folder.is_relative_to(point) and len(point.parts) >= depth:
            kind, depth = fields[2], len(point.parts)
    return kind


def unusable(folder: Path, error: OSError) -> StoreUnavailableError:
    """Return the error for a folder that cannot be written."""
    return StoreUnavailableError(
        f"data folder {folder} cannot be used ({error.strerror or error}); "
        "make it writable for this user, or choose another"
    )
