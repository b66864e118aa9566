"""One BLAS thread while a stream learns or answers, whatever the process has otherwise.

A stream's products are many and small. Threads that share them wait for one another more than they work, and spin
while they wait: with the libraries' default on two cores, one of which had other work, refinements of 100,000 points in
16-D took 34 seconds instead of 13. And last digits would depend on the number of cores.
"""

from contextlib import ContextDecorator
from functools import cache
from threading import Lock
from types import TracebackType
from typing import Any


class _OneThread(ContextDecorator):
    """Sets every BLAS library that is loaded to one thread, and back when the last of those inside leaves.

    The setting is the process's: what other threads of it ask of BLAS meanwhile has one thread, too.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0
        self._before: list[tuple[Any, int]] = []

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._before = [(library, library.num_threads) for library in _libraries()]
                for library, n_threads in self._before:
                    _set(library, 1, n_threads)
            self._inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                for library, n_threads in self._before:
                    _set(library, n_threads, 1)


one_blas_thread = _OneThread()
"""A decorator, or the context of a `with`; some ten microseconds."""


def _set(library: Any, n_threads: int, now: int) -> None:
    """Of late threadpoolctl leaves a library to the first thread that sets it, and does nothing for any other: here the
    last to leave, whichever it is, sets what the first has found."""
    if n_threads != now:
        getattr(library, "_real_set_num_threads", library.set_num_threads)(n_threads)


@cache
def _libraries() -> list[Any]:
    """The BLAS libraries of NumPy and SciPy."""
    import scipy.linalg  # noqa: F401  so that its own is loaded
    from threadpoolctl import ThreadpoolController

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)
