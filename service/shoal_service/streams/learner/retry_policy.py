"""Retry policy of a learner: which failures pass by themselves, and how often and how long they are waited for.

A store that does not answer is asked again without limit. A fault of the machine is retried a few times in a row.
Everything else is the fault of the entry, and would come again on every replay.
"""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from shoal_service.errors import StoreUnavailableError

T = TypeVar("T")

RETRY_S = 0.5
"""Pause before a store that did not answer is asked again."""
MAX_FAULTS_IN_A_ROW = 5
"""Faults of the machine without an entry applied between them, before the learner stops."""
FAULT_PAUSE_S = 0.25
"""Pause after the first of them. It doubles with each."""

_MACHINE_FAULTS = (MemoryError, OSError, ImportError)
_COMPILERS = ("numba.core", "llvmlite")
"""Packages that compile. Errors of theirs, or raised inside them, say nothing about the entry."""


class InterruptedWorkError(Exception):
    """The thread must end while it holds no state that may be kept."""


class RetryPolicy:
    """The retries of one thread, which ends when `stopping` is set."""

    def __init__(self, stopping: threading.Event, log: Any) -> None:
        self._stopping = stopping
        self._log = log
        self._faults = 0

    def until_answered(self, call: Callable[[], T]) -> T:
        """The result of a call of the store, repeated until it answers. InterruptedWorkError when the thread ends."""
        while True:
            try:
                return call()
            except StoreUnavailableError as error:
                if not self.wait_for_store(error):
                    raise InterruptedWorkError from error
            except Exception as error:  # noqa: BLE001 - `wait_after_fault` raises again what does not pass by itself
                self.wait_after_fault(error)

    def wait_for_store(self, error: StoreUnavailableError) -> bool:
        """Pause after a store that did not answer. False when the thread must end."""
        self._log.warning("store_unavailable", reason=str(error))
        return not self._stopping.wait(RETRY_S)

    def wait_after_fault(self, error: Exception) -> None:
        """Pause after a fault of the machine. Raises the error itself when it is none, or one too many.

        Raises InterruptedWorkError when the thread must end meanwhile.
        """
        if not is_machine_fault(error) or self._faults >= MAX_FAULTS_IN_A_ROW:
            raise error
        pause_s = FAULT_PAUSE_S * 2**self._faults
        self._faults += 1
        self._log.warning("machine_fault", reason=f"{type(error).__name__}: {error}", again_in_s=pause_s)
        if self._stopping.wait(pause_s):
            raise InterruptedWorkError from error

    def reset(self) -> None:
        """Record a success: the next fault is the first of a row again."""
        self._faults = 0


def is_machine_fault(error: BaseException) -> bool:
    """Whether memory, disk, an import or the compiler failed, here or as the stated cause.

    Such a failure says nothing about the entry, which may be applied a moment later or by another machine.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, _MACHINE_FAULTS) or _is_compiler_error(cause):
            return True
        cause = cause.__cause__
    return False


def _is_compiler_error(error: BaseException) -> bool:
    modules = [kind.__module__ for kind in type(error).__mro__]
    innermost: TracebackType | None = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    if innermost is not None:
        modules.append(str(innermost.tb_frame.f_globals.get("__name__", "")))
    return any(f"{module}.".startswith(f"{package}.") for module in modules for package in _COMPILERS)
