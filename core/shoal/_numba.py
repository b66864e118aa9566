"""Where compiled kernels are kept, and with which options they are compiled.

The one place where the library looks at its surroundings (environment and home folder).

Numba's disk cache notices an edit in a kernel's own file, not in a file whose functions, tuple types or constants it
uses. So the name of the cache folder holds a digest of all of those: any edit compiles anew, into another folder.
"""

import hashlib
import os
import re
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from shoal._prebuilt import read_prebuilt

_COMPILES = re.compile(r"^(?:from|import) (?:shoal\._numba|numba)\b", re.MULTILINE)
_TUPLE_TYPES = re.compile(r"^class \w+\(NamedTuple\):\n(?:(?:[ \t].*)?\n)+", re.MULTILINE)
_CONSTANTS = re.compile(r"^[A-Z][A-Z0-9_]*(?::.*)? = .*\n", re.MULTILINE)


def kernel_parts(folder: Path) -> dict[Path, str]:
    """The parts of a package's sources that compiled code depends on, by file.

    A file that compiles something counts whole. Of any other file the tuple types count, as the order of their fields
    is compiled in, and so do the constants, as their values are.
    """
    parts = {}
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        whole = path == Path(__file__) or _COMPILES.search(text)
        part = text if whole else "".join(_TUPLE_TYPES.findall(text) + _CONSTANTS.findall(text))
        if part:
            parts[path] = part
    return parts


def cache_folder() -> Path:
    """Folder for compiled kernels: under SHOAL_KERNEL_CACHE, else NUMBA_CACHE_DIR, else the user's cache folder."""
    return Path(_root()) / _folder_name()


def _root() -> str:
    return os.environ.get("SHOAL_KERNEL_CACHE") or os.environ.get("NUMBA_CACHE_DIR") or _user_cache()


def _folder_name() -> str:
    digest = hashlib.sha256()
    for source, part in kernel_parts(Path(__file__).parent).items():
        digest.update(source.name.encode())
        digest.update(part.encode())
    return f"kernels-{digest.hexdigest()[:16]}"


@cache
def _folder_under(root: str) -> tuple[Path, bool]:
    """The cache folder under `root`, and whether it can be written: found once, not anew for every kernel."""
    folder = Path(root) / _folder_name()
    return folder, _writable(folder)


def _user_cache() -> str:
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "shoal")


OVERLOAD_OPTIONS: Any = {"error_model": "numpy", "nogil": True, "forceinline": True, "_nrt": False}
"""Options of every overload that kernels resolve by type. Overloads are inlined, as a call that hands over a dozen
arrays costs more than the step for one small component; references to arrays are not counted (`compiled`)."""


def compiled(*, makes_arrays: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorator for a function that kernels call. Compiled with them, so not cached by itself, and made part of them:
    one that stays a function of its own is compiled a second time where a process compiles a kernel instead of loading
    it, and what may be reordered need not come out in the same order (last digits of refinements in 2-D did not).

    `error_model="numpy"` throughout: the check for division by zero keeps loops out of vector registers. References to
    arrays are counted only in functions that make some: a count is an atomic operation, and two at each use of an
    array took two fifths of the time of one pass in 2-D. A function without counts must return no array, nor a tuple
    that holds one: the caller would give back a reference that nobody took.
    """
    import numba

    options = {"forceinline": True} | options | {"nogil": True, "error_model": "numpy", "_nrt": makes_arrays}
    decorate: Callable[[Callable[..., Any]], Any] = numba.njit(**options)
    return decorate


def kernel(*, makes_arrays: bool = True, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorator for a kernel, the function that Python calls: as `compiled`, cached on disk in `cache_folder`, and
    counting references unless told that it makes no arrays.

    Numba reads its setting of the folder when it decorates, so the setting is put back after: other users of Numba in
    this process keep theirs. Where the folder cannot be written, what it holds is loaded and the rest is compiled in
    every process: Numba's own fallback, beside the source, would know nothing of the digest.
    """
    import numba

    config: Any = numba.config
    options |= {"makes_arrays": makes_arrays, "forceinline": False}

    def decorate(function: Callable[..., Any]) -> Any:
        folder, writable = _folder_under(_root())
        if not writable:
            return read_prebuilt(compiled(**options)(function), folder)
        before = config.CACHE_DIR
        config.CACHE_DIR = str(folder)
        try:
            return compiled(cache=True, **options)(function)
        finally:
            config.CACHE_DIR = before

    return decorate


def _writable(folder: Path) -> bool:
    """Whether files can be made in the folder, which is made if need be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True
