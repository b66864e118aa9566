"""Executors: where the blocks of a data set are worked on, and the map that hands their results back in order.

`InProcess` works in the calling process, `Processes` in processes of this machine. `runtime.ray_executor` holds the one
for a Ray cluster. A description (what to start) is plain data; `started` gives the running pool, which has the two
verbs of `concurrent.futures`: `submit` and `shutdown`.

Results depend on the items alone: which worker computed one, and how often it was tried, changes nothing.
"""

import atexit
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from shoal.errors import SettingError, WorkersLostError
from shoal.runtime.blas import one_blas_thread, pin_blas
from shoal.runtime.threads import n_cores

Item = TypeVar("Item")
Result = TypeVar("Result")

_AHEAD = 2
"""Tasks submitted for each worker: one that it works on, and one that waits."""
_LOOK_S = 5.0
"""Seconds of waiting for a result after which it is asked whether workers were lost."""
_MOST_LOSSES = 3
"""Times that workers may be lost, beyond one a worker, without any result in between."""


class Pool(Protocol):
    """Running workers."""

    n_workers: int

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> "Future[Any]":
        """Call a function of a module in a worker. A loss shows as BrokenExecutor in the future, or by `lost`."""

    def shared(self, value: Any) -> Any:
        """A handle of a value that many tasks have as their first argument."""

    def lost(self) -> bool:
        """Whether workers were lost, and futures that are not done may never be."""

    def renew(self) -> None:
        """Start workers in the place of lost ones; futures that are done stay done."""

    def shutdown(self) -> None:
        """Stop the workers; tasks that have not begun are dropped."""


class Executor(Protocol):
    """What workers to start."""

    def started(self) -> AbstractContextManager[Pool]:
        """Running workers; they are stopped at the end of the context."""


@dataclass(frozen=True)
class InProcess:
    """The calling process itself, with one BLAS thread."""

    @contextmanager
    def started(self) -> Iterator[Pool]:
        """See `Executor`."""
        yield _InProcessPool()


@dataclass(frozen=True)
class Processes:
    """Processes of this machine: `workers` of them, None for one a core that this process may use.

    A script that starts them must guard its own work by `if __name__ == "__main__":`, because each worker imports it.
    """

    workers: int | None = None

    def __post_init__(self) -> None:
        _check_workers(self.workers)

    @contextmanager
    def started(self) -> Iterator[Pool]:
        """See `Executor`."""
        pool = _ProcessPool(self.workers or n_cores())
        try:
            yield pool
        finally:
            pool.shutdown()


def executor_of(given: Any, workers: int | None = None, address: str | None = None) -> Executor:
    """The executor of a name: None or "in-process", "processes", "ray"; or the one given.

    `workers`: how many; None: one a core. `address`: of a Ray cluster. Raises SettingError.
    """
    _check_workers(workers)
    if address is not None and given != "ray":
        raise SettingError(f"address is {address!r}, which is for executor 'ray'; remove it, or choose 'ray'")
    if given is None or given == "in-process":
        if workers not in (None, 1):
            raise SettingError(
                f"{workers} workers are asked for without an executor for them; give executor='processes'"
            )
        return InProcess()
    if given == "processes":
        return Processes(workers)
    if given == "ray":
        from shoal.runtime.ray_executor import Ray

        return Ray(address, workers)
    if not hasattr(given, "started"):
        raise SettingError(
            f"executor is {given!r}; choose 'in-process', 'processes' or 'ray', or give an object of theirs"
        )
    executor: Executor = given
    return executor


class Lasting(NamedTuple):
    """Workers that run until this process ends."""

    pool: Pool
    lock: threading.Lock
    """To be held during a map: one that starts lost workers again must not stop those of another."""


def lasting(executor: Executor) -> Lasting:
    """Workers of an executor, the same ones for equal executors. They start at the first call, and end with this
    process. Raises SettingError where they cannot start."""
    with _starting:
        found = _lasting.get((os.getpid(), executor))
        if found is None:
            started = executor.started()
            found = _lasting[os.getpid(), executor] = Lasting(started.__enter__(), threading.Lock())
            atexit.register(started.__exit__, None, None, None)
        return found


_starting = threading.Lock()
_lasting: dict[tuple[int, Executor], Lasting] = {}


def in_order(
    pool: Pool, function: Callable[[Any, Item], Result], shared: Any, items: Iterable[Item]
) -> Iterator[Result]:
    """function(shared, item) of each item, in the order of the items. A few are computed ahead.

    If workers are lost, their items are computed again; results that were finished are kept. An error of the function
    ends the map. Raises WorkersLostError where workers are lost again and again without a result.
    """
    handle = pool.shared(shared)
    waiting, losses = iter(items), 0
    ahead: deque[tuple[Item, Future[Any]]] = deque()
    while True:
        while len(ahead) < _AHEAD * pool.n_workers and (item := next(waiting, _NONE)) is not _NONE:
            ahead.append((item, _submitted(pool, function, handle, item)))
        if not ahead:
            return
        try:
            result = _result_of(pool, ahead[0][1])
        except BrokenExecutor as error:
            losses += 1
            if losses > _MOST_LOSSES + pool.n_workers:
                raise WorkersLostError(
                    f"workers ended {losses} times in a row without a result ({error}); look for a lack of memory, "
                    "and for a script that starts them without a guard `if __name__ == '__main__':`"
                ) from error
            pool.renew()
            ahead = deque(
                (item, future if _finished(future) else _submitted(pool, function, handle, item))
                for item, future in ahead
            )
            continue
        ahead.popleft()
        losses = 0
        yield result


_NONE: Any = object()


def _submitted(pool: Pool, function: Callable[..., Any], handle: Any, item: Any) -> "Future[Any]":
    try:
        return pool.submit(function, handle, item)
    except BrokenExecutor as error:  # it broke since the last result; asked for its result, the map starts it again
        lost: Future[Any] = Future()
        lost.set_exception(error)
        return lost


def _result_of(pool: Pool, future: "Future[Any]") -> Any:
    """The result of a future, or its error. Raises BrokenExecutor too where workers were lost without a word."""
    while not wait((future,), _LOOK_S).done:
        if pool.lost() and not future.done():
            raise BrokenExecutor("a worker ended while tasks were submitted")
    return future.result()


def _finished(future: "Future[Any]") -> bool:
    """Whether a future holds a result, or an error of the function."""
    return future.done() and not future.cancelled() and not isinstance(future.exception(), BrokenExecutor)


class _InProcessPool:
    """Computes at once, when a task is submitted."""

    n_workers = 1

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            with one_blas_thread:
                future.set_result(function(*arguments))
        except Exception as error:  # noqa: BLE001  it is raised where the result is asked for
            future.set_exception(error)
        return future

    def shared(self, value: Any) -> Any:
        return value

    def lost(self) -> bool:
        return False

    def renew(self) -> None:
        raise AssertionError("the calling process is not lost")

    def shutdown(self) -> None:
        pass


class _ProcessPool:
    """A pool of `concurrent.futures`, and a new one in its place where a worker was lost."""

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers
        self._pool = self._new()

    def _new(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")  # a fork would copy locks that other threads hold
        return ProcessPoolExecutor(self.n_workers, mp_context=context, initializer=_prepare)

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> "Future[Any]":
        return self._pool.submit(function, *arguments)

    def shared(self, value: Any) -> Any:
        return value

    def lost(self) -> bool:
        """A worker that is killed while it writes a result leaves the pool's own thread waiting for the rest. Then the
        others are ended too, and the pipe is closed, so that the thread sees its end and the pool breaks."""
        inner: Any = self._pool
        workers = list((inner._processes or {}).values())
        if all(worker.exitcode is None for worker in workers):
            return False
        for worker in workers:
            worker.kill()
        inner._result_queue._writer.close()
        return True

    def renew(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._pool = self._new()

    def shutdown(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


def _prepare() -> None:
    """Prepare a worker: one BLAS thread, no interrupts from the terminal, and an end with the process that started it.

    An interrupt ends the map in that process, which then stops the workers.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pin_blas()
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Any) -> None:
    """End when the parent has ended: a pool's worker would wait for tasks for ever."""
    parent.join()
    os._exit(1)


def _check_workers(workers: Any) -> None:
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise SettingError(f"the number of workers is {workers!r}; it must be a whole number of at least 1")
