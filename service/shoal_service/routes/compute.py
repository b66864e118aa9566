"""Work that takes a while, kept off the event loop."""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

INLINE_COST = 1_000_000
"""Multiply-adds, more or less, that are done where they are: handing them to a thread would take longer."""


class Compute:
    """A few threads for predictions and long answers: NumPy lets the interpreter's lock go while it works."""

    def __init__(self, threads: int = 2) -> None:
        self._pool = ThreadPoolExecutor(threads, "shoal-compute")

    async def __call__(self, cost: int, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """`work(*args)`, here when it costs little and in a thread otherwise."""
        if cost <= INLINE_COST:
            return work(*args, **kwargs)
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: context.run(work, *args, **kwargs))

    def close(self) -> None:
        """End the threads; what was begun is finished."""
        self._pool.shutdown(wait=True, cancel_futures=True)


ALWAYS_IN_THREAD = INLINE_COST + 1
