"""Kernels that were compiled beforehand, in a folder that cannot be written: a container's image, a system's package.

Numba looks into a cache only where it may write, so a folder of compiled kernels on a read-only file system would be
left unread, and every process would compile for itself. Here it is told to read such a folder and never to write there.
"""

from pathlib import Path
from typing import Any


def read_prebuilt(dispatcher: Any, folder: Path) -> Any:
    """The same kernel, which loads what `folder` holds of it and compiles the rest in memory. In older versions of
    Numba, whose cache has other parts, it compiles all.
    """
    import numba

    config: Any = numba.config
    before = config.CACHE_DIR
    config.CACHE_DIR = str(folder)  # read by the locator, when it is made
    try:
        dispatcher._cache = _cache_class()(dispatcher.py_func)
    except (AttributeError, RuntimeError):  # RuntimeError: no folder for this kernel's file
        pass
    finally:
        config.CACHE_DIR = before
    return dispatcher


def _cache_class() -> Any:
    """Numba's cache of functions, without the writing. AttributeError where it has not these parts."""
    from numba.core import caching as numba_caching

    caching: Any = numba_caching

    class Locator(caching.UserProvidedCacheLocator):  # type: ignore[misc]  # Numba has no types
        """Finds the folder; one that is not there is none."""

        def ensure_cache_path(self) -> None:
            if not Path(self.get_cache_path()).is_dir():
                raise FileNotFoundError(self.get_cache_path())

    class Impl(caching.CompileResultCacheImpl):  # type: ignore[misc]
        """Looks nowhere else: Numba's own fallback, beside the source, knows nothing of the digest."""

        _locator_classes = [Locator]  # noqa: RUF012  as the class above has it

    class PrebuiltCache(caching.FunctionCache):  # type: ignore[misc]
        """Loads, and keeps nothing."""

        _impl_class = Impl

        def save_overload(self, sig: Any, data: Any) -> None:
            """What had to be compiled stays in this process."""

    return PrebuiltCache
