"""Files that are read and written whole, and the files that names and globs stand for."""

import glob
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from shoal.errors import InputError

FileName: TypeAlias = str | os.PathLike[str]


def is_file_name(value: Any) -> bool:
    """Whether a value is the name of a file, a folder or a glob."""
    return isinstance(value, str | os.PathLike)


def read_whole(file: FileName | BinaryIO) -> bytes:
    """The bytes of a named or an open file."""
    return Path(file).read_bytes() if isinstance(file, str | os.PathLike) else file.read()


def write_whole(file: FileName | BinaryIO, blob: bytes) -> None:
    """Write to an open file, or put `blob` in the place of a named one in one step.

    The old file stays until the new one is complete and flushed. An error leaves the old one, and nothing beside it.
    A device or a pipe, such as /dev/stdout, is written to, and stays.
    """
    if not isinstance(file, str | os.PathLike):
        file.write(blob)
        return
    target = Path(file)
    if target.exists() and not target.is_file() and not target.is_dir():
        with _named_in_errors(target), target.open("wb") as device:
            device.write(blob)
        return
    beside = target.with_name(f"{target.name}.{uuid.uuid4().hex}.part")
    try:
        with _named_in_errors(target), beside.open("xb") as whole:
            whole.write(blob)
            whole.flush()
            os.fsync(whole.fileno())
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def files_of(sources: Sequence[FileName], endings: Sequence[str]) -> list[str]:
    """The files that names, folders and globs stand for, in the order of their names, each once.

    A folder stands for the files in it and below whose names have one of the endings, and no part that begins with `.`
    or `_`. Raises InputError where a source stands for none.
    """
    found: dict[str, None] = {}
    for source in sources:
        text = os.fspath(source)
        path = Path(text)
        if path.is_dir():
            inside = (one for one in path.rglob("*") if one.is_file() and _is_data(one.relative_to(path), endings))
            own = sorted(map(str, inside))
        elif path.exists():
            own = [text]
        else:
            own = sorted(one for one in glob.glob(text, recursive=True) if Path(one).is_file())
        if not own:
            raise InputError(
                f"{text} is no file, and no folder or glob with files in it; they end in {', '.join(endings)}"
            )
        found |= dict.fromkeys(own)
    return list(found)


def files_in(folder: FileName, names: Iterable[str], paths: Iterable[str]) -> list[str]:
    """Those of the paths that lead to a file of the folder with one of the names."""
    inside = {os.path.realpath(os.path.join(folder, name)) for name in names}
    return [path for path in paths if os.path.realpath(path) in inside]


def folder_in_common(paths: Sequence[str]) -> list[str]:
    """The names of files within the deepest folder that holds them all."""
    whole = [os.path.abspath(path) for path in paths]
    folder = os.path.commonpath([os.path.dirname(path) for path in whole])
    return [os.path.relpath(path, folder) for path in whole]


def _is_data(path: Path, endings: Sequence[str]) -> bool:
    return path.suffix[1:].lower() in endings and not any(part.startswith((".", "_")) for part in path.parts)


@contextmanager
def complete_file(folder: FileName, name: str) -> Iterator[str]:
    """The path of a file to write beside `folder`/`name`, which takes its place at the end. An error leaves nothing.

    Folders are made where they are absent.
    """
    target = Path(folder, name)
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        with _named_in_errors(target):
            yield str(beside)
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


@contextmanager
def _named_in_errors(target: Path) -> Iterator[None]:
    """Give an error of the system, such as that of a full disk, the name of the file, if it has none."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(target)) from error
