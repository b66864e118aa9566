"""Getting ready in the background: the library's engines are imported and their kernels compiled or read from the
cache.
"""

import gc
import threading
from typing import Any

from shoal_service.errors import NotReadyError
from shoal_service.streams import load_engines


class Warmth:
    """Whether kernels are ready. `start` returns at once; learners may work before, only slower."""

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
        """Functions that this process has compiled since `start`: none, where the cache holds all of them."""
        return self._compiled

    def check(self) -> None:
        """Raise NotReadyError until it is done."""
        if self._failure is not None:
            raise NotReadyError(f"the kernels cannot be compiled ({self._failure}); see the service's log")
        if not self._done.is_set():
            raise NotReadyError("the kernels are being compiled or loaded; ask again in a moment")

    def _warm(self) -> None:
        try:
            load_engines()
            self._count_compilations()
            from shoal.sequential import warm_kernels

            warm_kernels()
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


def _freeze() -> None:
    """Take what was imported out of the collector's sight, once: walking it would stop requests for 50 ms."""
    if gc.get_freeze_count() == 0:
        gc.collect()
        gc.freeze()
