"""Executors whose workers are killed while they compute."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from shoal.runtime import executors
from shoal.runtime.executors import Pool, Processes


class _ForkedPool(executors._ProcessPool):
    """Workers that are forked from a process that has loaded the library, and else those of `Processes`.

    Each of theirs loads the library for itself: more than a second of a processor.
    """

    def _new(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["shoal.estimators", "shoal.offline.fit", "shoal.partitions.workers"])
        return ProcessPoolExecutor(self.n_workers, mp_context=context, initializer=executors._prepare)


@dataclass(frozen=True)
class KilledProcesses(Processes):
    """Processes that are all killed (SIGKILL) once, right after one of the tasks was submitted, counted from 0."""

    after: int = 0

    @contextmanager
    def started(self) -> Iterator[Pool]:
        pool = _ForkedPool(self.workers or 2)
        try:
            submit, count = pool.submit, iter(range(10**9))

            def submit_and_kill(function: Callable[..., Any], *arguments: Any) -> Any:
                future = submit(function, *arguments)
                if next(count) == self.after:
                    for worker in list(pool._pool._processes):
                        os.kill(worker, signal.SIGKILL)
                return future

            pool.submit = submit_and_kill  # type: ignore[method-assign]
            yield pool
        finally:
            pool.shutdown()
