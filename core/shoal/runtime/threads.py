"""Calls at the same time, in threads of this process: of kernels, which let the interpreter's lock go, or beside a
wait."""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from shoal.runtime.blas import one_blas_thread

_lock = threading.Lock()
_pool: tuple[int, ThreadPoolExecutor] | None = None


def run_in_threads(tasks: Sequence[Callable[[], Any]]) -> list[Any]:
    """The results of functions without arguments, in order: as many at once as this process has cores.

    The calling thread works, too: on the first one, then on those that no other thread has begun. All are done, or were
    never begun, when this returns or raises the first error.
    """
    if len(tasks) < 2 or n_cores() < 2:
        return [task() for task in tasks]
    pool = _threads()
    futures = [pool.submit(one_blas_thread(task)) for task in tasks[1:]]
    results, error = [], None
    for task, future in zip(tasks, [None, *futures], strict=True):
        try:
            if error is not None and future is not None and future.cancel():
                continue
            results.append(task() if future is None or future.cancel() else future.result())
        except BaseException as found:  # noqa: BLE001 - raised below, once no task writes any more
            error = error or found
    if error is not None:
        raise error
    return results


def run_beside(waits: Callable[[], Any], works: Callable[[], Any]) -> tuple["Future[Any]", Any]:
    """Call `waits`, which waits for other processes, in a thread, and `works` in this one. Gives the future of the
    first, which is done, and the result of the second. Raises the error of the second when both are done."""
    with ThreadPoolExecutor(1, "shoal-waits") as beside:
        return beside.submit(waits), works()


def n_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _threads() -> ThreadPoolExecutor:
    """The threads that all callers share, one fewer than there are cores. A process that was forked has its own."""
    global _pool
    with _lock:
        if _pool is None or _pool[0] != os.getpid():
            _pool = os.getpid(), ThreadPoolExecutor(max(n_cores() - 1, 1), thread_name_prefix="shoal-partition")
        return _pool[1]
