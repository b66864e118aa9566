"""Compiling kernels: whether it is needed, saying so, and doing it in another process.

Beside `cache` this is the only module that uses private parts of Numba.
"""

import atexit
import os
import subprocess
import sys
from contextlib import suppress
from typing import Any

_children: set["CompilingChild"] = set()
_announced = False


def needs_compiler(kernel: Any, arguments: tuple[Any, ...]) -> bool:
    """Whether a call of the kernel with arguments of these types would compile: nobody has in this process, and the
    folder of compiled kernels has no such one.

    False where this version of Numba does not let one look: then the call itself finds out, and may take its time.
    """
    try:
        signature = tuple(kernel.typeof_pyval(argument) for argument in arguments)
        if signature in kernel.overloads:
            return False
        if kernel.stats.cache_path is None:
            return True
        cache = kernel._cache
        key = cache._index_key(signature, kernel.targetctx.codegen())
        return key not in cache._cache_file._load_index()
    except OSError:
        return True
    except AttributeError:
        return False


def announce(what: str) -> None:
    """Say on stderr, once a process, what the caller waits for."""
    global _announced
    if not _announced:
        _announced = True
        sys.stderr.write(f"shoal: compiling {what}; this happens once, later processes load the result from disk\n")
        sys.stderr.flush()


class CompilingChild:
    """A process that compiles kernels into the cache on disk, while this one goes on with its work.

    A thread would share the interpreter's lock, which the compiler holds for most of its time. The child ends with this
    process; what it has compiled by then stays in the cache.
    """

    def __init__(self, code: str) -> None:
        """Run Python `code`. Raises OSError where no process can be started."""
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen([sys.executable, "-c", code], stdin=quiet, stdout=quiet, stderr=quiet)
        _children.add(self)

    @property
    def running(self) -> bool:
        """Whether it is still at work."""
        if self._process.poll() is None:
            return True
        _children.discard(self)
        return False

    def stop(self) -> None:
        """End it now."""
        self._process.kill()
        self._process.wait()
        _children.discard(self)


def yield_to_others() -> None:
    """Have this process run behind others that want the processor."""
    with suppress(AttributeError, OSError):
        os.nice(10)


def stop_children() -> None:
    """End the children of this process."""
    for child in list(_children):
        child.stop()


atexit.register(stop_children)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_children.clear)
