"""Compiled kernels on disk, each under a digest of the sources that it is compiled from.

Numba's own cache notices an edit in a kernel's file, not in a file whose functions or tuple types the kernel uses.
Here the name of a kernel's folder holds a digest of its module and of every module of shoal that this one imports,
directly or not. A module that compiles something counts whole. Of any other the tuple types count, as the order of
their fields is compiled in, and so do the constants, as their values are. An edit compiles again what depends on it,
and nothing else. The folder's name does not depend on where shoal is installed: installations of one version share what
is compiled.

A folder that cannot be written (a container's image, a system's package) is read all the same; what it does not hold is
compiled in memory. The parts of Numba that are used here are not public; without them every process compiles.
"""

import hashlib
import inspect
import os
import pickle
import re
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

_PACKAGE = Path(__file__).parents[1]
_OPTIONS = Path(__file__).parent / "kernels.py"
"""The only module of this room that decides what is compiled: of the others an edit changes no kernel."""

_BY_TYPE = _PACKAGE / "families" / "every_kernel.py"
"""Not followed either: which family's overloads a kernel uses shows in the types of its arguments (`_overloads`)."""

_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(shoal[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n(]+)|import[ \t]+(shoal[\w.]*))", re.MULTILINE
)
_COMPILES = re.compile(r"^(?:from|import) (?:shoal\.runtime\.kernels|numba)\b", re.MULTILINE)
_TUPLE_TYPES = re.compile(r"^class \w+\(NamedTuple\):\n(?:(?:[ \t].*)?\n)+", re.MULTILINE)
_CONSTANTS = re.compile(r"^[A-Z][A-Z0-9_]*(?::.*)? = .*\n", re.MULTILINE)

_UNREADABLE = (
    OSError, pickle.UnpicklingError, AttributeError, EOFError, ImportError, IndexError, KeyError, TypeError, ValueError,
)  # fmt: skip
"""What reading a damaged or a strange file raises."""


def cache_root() -> Path:
    """Folder for compiled kernels: SHOAL_KERNEL_CACHE, else NUMBA_CACHE_DIR, else the user's cache folder."""
    return Path(os.environ.get("SHOAL_KERNEL_CACHE") or os.environ.get("NUMBA_CACHE_DIR") or _user_cache())


def _user_cache() -> str:
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "shoal")


def cache_is_writable() -> bool:
    """Whether other processes can be handed compiled kernels."""
    return _writable(cache_root())


def enable_cache(dispatcher: Any) -> Any:
    """The same kernel, which loads what the cache holds of it and keeps what is compiled, where that can be written."""
    with suppress(AttributeError, RuntimeError):  # another version of Numba; no file to take the digest of
        dispatcher._cache = _kernel_cache()(dispatcher.py_func)
    return dispatcher


def folder_of(source: Path) -> Path:
    """The cache folder of the kernels in a file."""
    return cache_root() / f"{_name_of(source).replace('/', '.').removesuffix('.py')}-{digest_of(source)}"


@cache
def digest_of(source: Path) -> str:
    """Sixteen hexadecimal digits that change with the file and with any module of shoal that it imports."""
    parts = sorted(f"{_name_of(path)} {_read(path).digest}" for path in sources_of(source))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


@cache
def library_digest() -> str:
    """Sixteen hexadecimal digits that change with any source file of the library. Some milliseconds, once."""
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        digest.update(f"{path.relative_to(_PACKAGE).as_posix()} ".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def sources_of(source: Path) -> set[Path]:
    """The file, and the modules of shoal that it imports, directly or not. This room is followed to `kernels` only."""
    found, waiting = {source}, [source]
    while waiting:
        for path in _read(waiting.pop()).imports - found:
            found.add(path)
            if path not in (_OPTIONS, _BY_TYPE):
                waiting.append(path)
    return found


def _name_of(source: Path) -> str:
    """A name that does not depend on the place of the installation."""
    return source.relative_to(_PACKAGE).as_posix() if source.is_relative_to(_PACKAGE) else source.name


class _Source(NamedTuple):
    """What is read of a file: the digest of what compiled code depends on, and the modules of shoal that it imports."""

    digest: str
    imports: frozenset[Path]


@cache
def _read(source: Path) -> _Source:
    """A package stands for its `__init__` where an import line names something that is defined there."""
    text, found = source.read_text(encoding="utf-8"), set()
    for match in _IMPORT.finditer(text):
        module, names, whole = match.groups()
        if whole is not None:
            found.add(_module_file(whole))
            continue
        for name in re.sub(r"#[^\n]*", "", names).strip("() \t\r\n").split(","):
            inner = _module_file(f"{module}.{name.split()[0]}") if name.strip() else None
            found.add(inner or _module_file(module))
    part = text if _counts_whole(source, text) else "".join(_TUPLE_TYPES.findall(text) + _CONSTANTS.findall(text))
    return _Source(hashlib.sha256(part.encode()).hexdigest(), frozenset(path for path in found if path is not None))


def _counts_whole(source: Path, text: str) -> bool:
    """Whether any edit of the file may change a kernel."""
    return source == _OPTIONS or not source.is_relative_to(_PACKAGE) or bool(_COMPILES.search(text))


@cache
def _module_file(name: str) -> Path | None:
    """The file of a module of shoal; None where there is no such module."""
    path = _PACKAGE.joinpath(*name.split(".")[1:])
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return path if path.exists() else None


def _in_words(types: Any) -> Iterator[str]:
    """Types of arguments by their names, with the fields of named tuples: whoever reads them need not have the tuples,
    which may be those of a family that another installation has."""
    for part in types:
        yield str(part)
        if hasattr(part, "instance_class"):
            kind = part.instance_class
            yield f"{kind.__module__}.{kind.__qualname__}({', '.join(part.fields)})"
        if hasattr(part, "types"):
            yield from _in_words(part.types)


def _overloads(types: Any) -> Iterator[str]:
    """Digests of the kernel modules beside the types of the named tuples among types of arguments, where these are in
    the folder of one family, and of the files of tuples that are not shoal's."""
    for part in types:
        if hasattr(part, "instance_class"):
            file = Path(inspect.getfile(part.instance_class))
            if not file.is_relative_to(_PACKAGE):
                yield digest_of(file)
            elif file.parent != _BY_TYPE.parent and file.is_relative_to(_BY_TYPE.parent):
                yield from (digest_of(path) for path in sorted(file.parent.glob("*kernel.py")))
        if hasattr(part, "types"):
            yield from _overloads(part.types)


@cache
def _writable(folder: Path) -> bool:
    """Whether files can be made in the folder, which is made if need be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


@cache
def _kernel_cache() -> Any:
    """Numba's cache of functions in a folder of ours. AttributeError where Numba does not have these parts."""
    from numba.core import caching as numba_caching

    caching: Any = numba_caching

    class Locator(caching._CacheLocator):  # type: ignore[misc]  # Numba has no types
        """Names the folder of a kernel by the digest of its sources."""

        def __init__(self, function: Any) -> None:
            self._folder = folder_of(Path(inspect.getfile(function)))

        @classmethod
        def from_function(cls, py_func: Any, py_file: str) -> Any:
            return cls(py_func) if Path(py_file).is_file() else None

        def get_cache_path(self) -> str:
            return str(self._folder)

        def get_source_stamp(self) -> str:
            return self._folder.name

        def get_disambiguator(self) -> str:
            return ""

    class Impl(caching.CompileResultCacheImpl):  # type: ignore[misc]
        """Looks nowhere else: Numba's own folders know nothing of the digest."""

        _locator_classes = [Locator]  # noqa: RUF012  as the class above has it

    class Files(caching.IndexDataCacheFile):  # type: ignore[misc]
        """A file that cannot be read counts as absent: it is damaged, or holds a type that this installation lacks."""

        def _load_index(self) -> Any:
            try:
                return super()._load_index()
            except _UNREADABLE:
                return {}

        def _load_data(self, name: str) -> Any:
            try:
                return super()._load_data(name)
            except _UNREADABLE as error:
                raise OSError(f"the compiled kernel {name} cannot be read") from error

    class KernelCache(caching.FunctionCache):  # type: ignore[misc]
        """Keeps what is compiled only where it can."""

        _impl_class = Impl

        def __init__(self, function: Any) -> None:
            super().__init__(function)
            self._cache_file = Files(self._cache_path, self._impl.filename_base, self._impl.locator.get_source_stamp())

        def _index_key(self, sig: Any, codegen: Any) -> Any:
            """Numba's key, with the types of the arguments in words, and the overloads of their families."""
            _, *rest = super()._index_key(sig, codegen)
            return " ".join(_in_words(sig)), *rest, tuple(sorted(set(_overloads(sig))))

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            with suppress(OSError):
                return super().load_overload(sig, target_context)

        def save_overload(self, sig: Any, data: Any) -> None:
            if cache_is_writable():
                with suppress(OSError):  # a full disk: this process has the kernel all the same
                    super().save_overload(sig, data)

    return KernelCache
