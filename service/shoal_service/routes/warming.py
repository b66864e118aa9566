"""Preparation in the background: the library's engines are imported, and the kernels that a first stream needs are
compiled, or found compiled.
"""

import gc
import threading
import time
from functools import cache
from typing import Any

from shoal_service.errors import NotReadyError
from shoal_service.streams import load_engines

POLL_S = 0.1
"""How often the thread looks whether a kernel is there."""


class Warmth:
    """Whether the kernels of a stream with default settings are there. `start` returns at once.

    Points are accepted before: a learner waits for the kernels of its stream (`learner.thread`).
    """

    def __init__(self, log: Any) -> None:
        self._log = log
        self._done = threading.Event()
        self._failure: str | None = None
        self._compiled = 0

    def start(self) -> None:
        """Begin, in a thread."""
        threading.Thread(target=self._warm, name="warming", daemon=True).start()

    @property
    def compiled(self) -> int:
        """Functions that this process has compiled since `start`: none where a child does it, or the cache has them."""
        return self._compiled

    def check(self) -> None:
        """Raise NotReadyError until it is done."""
        if self._failure is not None:
            raise NotReadyError(f"the kernels cannot be compiled ({self._failure}); see the service's log")
        if not self._done.is_set():
            raise NotReadyError("compiling kernels: points are accepted now, and learnt when the kernels are there")

    def _warm(self) -> None:
        try:
            load_engines()
            self._count_compilations()
            from shoal.mixture import StreamSettings
            from shoal.sequential import initial_state, kernels_ready

            first = initial_state(StreamSettings(n_features=1))
            while not kernels_ready(first):
                time.sleep(POLL_S)
            _freeze()
        except Exception as error:  # noqa: BLE001 - said in the log and by /readyz
            self._failure = f"{type(error).__name__}: {error}"
            self._log.error("warming_failed", exc_info=True)
            return
        self._done.set()
        self._log.info("warm", compiled=self._compiled)

    def _count_compilations(self) -> None:
        """From here on, of whatever thread they are."""
        from numba.core import event as numba_event

        event: Any = numba_event  # which has no types
        warmth = self

        class Count(event.Listener):  # type: ignore[misc]
            def on_start(self, event: Any) -> None:
                warmth._compiled += 1  # Numba compiles one at a time

            def on_end(self, event: Any) -> None:
                pass

        event.register("numba:compile", Count())


@cache
def _freeze() -> None:
    """Take what was imported out of the collector's sight: walking it would stop requests for 50 ms.

    Once a process, also where it starts several services: only to count what is frozen walks it, too.
    """
    if gc.get_freeze_count() == 0:
        gc.collect()
        gc.freeze()
