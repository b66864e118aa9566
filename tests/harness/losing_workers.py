"""Executors whose workers are killed while a data set is fitted."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from shoal.runtime.executors import Pool, Processes


@dataclass(frozen=True)
class KilledProcesses(Processes):
    """Processes that are all killed (SIGKILL) once, right after one of the tasks was submitted, counted from 0."""

    after: int = 0

    @contextmanager
    def started(self) -> Iterator[Pool]:
        with super().started() as pool:
            submit, count = pool.submit, iter(range(10**9))

            def submit_and_kill(function: Callable[..., Any], *arguments: Any) -> Any:
                future = submit(function, *arguments)
                if next(count) == self.after:
                    for worker in list(pool._pool._processes):  # type: ignore[attr-defined]
                        os.kill(worker, signal.SIGKILL)
                return future

            pool.submit = submit_and_kill  # type: ignore[method-assign]
            yield pool
