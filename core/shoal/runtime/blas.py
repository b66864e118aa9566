"""One BLAS thread while a stream learns or answers, whatever the process has otherwise.

A stream's products are many and small. Threads that share them wait for one another more than they work, and spin
while they wait, most of all where a core has other work. And last digits would depend on the number of cores.
"""

import os
from contextlib import ContextDecorator
from functools import cache
from threading import Lock, local
from types import TracebackType
from typing import Any


class _Setting:
    """What a few libraries have been set to by those inside, and what they had before."""

    def __init__(self) -> None:
        self.inside = 0
        self.before: list[tuple[Any, int]] = []

    def enter(self, libraries: list[Any]) -> None:
        if self.inside == 0:
            self.before = [(library, library.num_threads) for library in libraries]
            for library, n_threads in self.before:
                _set(library, 1, n_threads)
        self.inside += 1

    def leave(self) -> None:
        self.inside -= 1
        if self.inside == 0:
            for library, n_threads in self.before:
                _set(library, n_threads, 1)


class _OneThread(ContextDecorator):
    """Sets every BLAS library of NumPy and SciPy to one thread, and back when the last of those inside leaves.

    The setting is the process's: what its other threads ask of BLAS meanwhile has one thread, too. Of a library that is
    built with OpenMP it is the calling thread's own, and is counted for each.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """As if nobody were inside: a fork's child has none of the threads that were."""
        self._lock, self._shared, self._own = Lock(), _Setting(), local()

    def __enter__(self) -> None:
        if not hasattr(self._own, "setting"):
            self._own.setting = _Setting()
        self._own.setting.enter([library for library in _libraries() if _is_each_threads_own(library)])
        with self._lock:
            self._shared.enter([library for library in _libraries() if not _is_each_threads_own(library)])

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._shared.leave()
        self._own.setting.leave()


one_blas_thread = _OneThread()
"""A decorator, or the context of a `with`; some ten microseconds."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=one_blas_thread.forget)


def pin_blas() -> None:
    """One thread for good, for a process that serves."""
    for library in _libraries():
        _set(library, 1, library.num_threads)


def _is_each_threads_own(library: Any) -> bool:
    return bool(getattr(library, "threading_layer", "") == "openmp")


def _set(library: Any, n_threads: int, now: int) -> None:
    """Of late threadpoolctl leaves a library to the first thread that sets it, and does nothing for any other: here
    whichever is the last to leave sets what the first has found."""
    if n_threads != now:
        getattr(library, "_real_set_num_threads", library.set_num_threads)(n_threads)


@cache
def _libraries() -> list[Any]:
    import scipy.linalg  # noqa: F401  so that its own is loaded
    from threadpoolctl import ThreadpoolController

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)
