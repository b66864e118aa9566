"""Longer computations, outside the event loop."""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

INLINE_COST = 1_000_000
"""Approximate number of multiply-adds up to which a computation runs in the event loop: a thread costs more."""


class Compute:
    """A few threads for predictions and long answers. NumPy releases the lock of the interpreter while it computes."""

    def __init__(self, threads: int = 2) -> None:
        self._pool = ThreadPoolExecutor(threads, "shoal-compute")

    async def __call__(self, cost: int, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Compute `work(*args)`, at once if the cost is small, otherwise in a thread."""
        if cost <= INLINE_COST:
            return work(*args, **kwargs)
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: context.run(work, *args, **kwargs))

    def close(self) -> None:
        """End the threads after their running work."""
        self._pool.shutdown(wait=True, cancel_futures=True)


ALWAYS_IN_THREAD = INLINE_COST + 1
