"""Whether a kernel has still to be compiled, and compiling in a thread.

The only module of the library that starts a thread. It and `cache` are the only ones that use private parts of Numba.
"""

import os
import threading
from collections.abc import Callable
from typing import Any

_threads: set[threading.Thread] = set()


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


def called_at_once(kernel: Any, arguments: tuple[Any, ...], patience_s: float) -> bool:
    """Call a kernel that does not need the compiler, so that it is loaded, unless the compiler is at work for longer
    than `patience_s`; whether it was called.

    To load a kernel takes the lock that the compiler holds for as long as it works, for whomever; others who load hold
    it for some hundredths of a second.
    """
    from numba.core import compiler_lock

    lock: Any = getattr(compiler_lock.global_compiler_lock, "_lock", threading.RLock())  # of another version of Numba
    if not lock.acquire(timeout=patience_s):
        return False
    try:
        kernel(*arguments)
    finally:
        lock.release()
    return True


class Compilation:
    """Work for the compiler, begun at once in a thread of its own. The compiler lets Python go on most of the time.

    No daemon: a process that ends waits for it, so that what it did is kept on disk; to end in the middle of the
    compiler's work would not be safe either. Nor would be a fork: the child would wait for a compiler that it does not
    have. So `os.fork` waits too. Raises RuntimeError where no thread can be started.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="shoal-compiler", daemon=False)
        _threads.add(self._thread)
        try:
            self._thread.start()
        except RuntimeError:
            _threads.discard(self._thread)
            raise

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  `wait` raises it, where the work is asked for
            self._error = error
        finally:
            _threads.discard(self._thread)

    @property
    def running(self) -> bool:
        """Whether the compiler is still at it."""
        return self._thread.is_alive()

    def wait(self) -> None:
        """Wait for the end. Raises what the work raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error


def _wait_for_all() -> None:
    for thread in list(_threads):
        if thread is not threading.current_thread():
            thread.join()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait_for_all)
