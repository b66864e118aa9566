"""Files that are read and written whole."""

import os
import uuid
from pathlib import Path
from typing import BinaryIO, TypeAlias

FileName: TypeAlias = str | os.PathLike[str]


def read_whole(file: FileName | BinaryIO) -> bytes:
    """The bytes of a named or an open file."""
    return Path(file).read_bytes() if isinstance(file, str | os.PathLike) else file.read()


def write_whole(file: FileName | BinaryIO, blob: bytes) -> None:
    """Write to an open file, or put `blob` in the place of a named one in one step.

    The old file stays until the new one is complete and flushed. An error leaves the old one, and nothing beside it.
    """
    if not isinstance(file, str | os.PathLike):
        file.write(blob)
        return
    target = Path(file)
    beside = target.with_name(f"{target.name}.{uuid.uuid4().hex}.part")
    try:
        with beside.open("xb") as whole:
            whole.write(blob)
            whole.flush()
            os.fsync(whole.fileno())
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
