"""What a learner bears: a store that does not answer, for as long as it takes, and a few faults of the machine in a
row.
"""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from shoal_service.errors import StoreUnavailableError
from shoal_service.streams.learner.faults import of_the_machine

T = TypeVar("T")

RETRY_S = 0.5
"""Pause before a store that did not answer is asked again."""
FAULTS_BORNE = 5
"""Faults of the machine in a row, with no new entry taken between them, before the learner halts."""
FAULT_PAUSE_S = 0.25
"""Pause after the first of them; it doubles with each."""


class InterruptedWorkError(Exception):
    """The thread is to end while it holds no state that may be kept."""


class Patience:
    """Used by one thread, which ends when `stopping` is set."""

    def __init__(self, stopping: threading.Event, log: Any) -> None:
        self._stopping = stopping
        self._log = log
        self._faults = 0

    def insist(self, verb: Callable[[], T]) -> T:
        """Ask the store until it answers. Raises InterruptedWorkError when the thread is to end meanwhile."""
        while True:
            try:
                return verb()
            except StoreUnavailableError as error:
                if not self.wait_for_store(error):
                    raise InterruptedWorkError from error
            except Exception as error:  # noqa: BLE001 - `bear` raises again what is no passing fault
                self.bear(error)

    def wait_for_store(self, error: StoreUnavailableError) -> bool:
        """Pause after a store that did not answer; False when the thread is to end."""
        self._log.warning("store_unavailable", reason=str(error))
        return not self._stopping.wait(RETRY_S)

    def bear(self, error: Exception) -> None:
        """Pause after a fault of the machine. Raises the error itself when it is none, or one too many.

        Raises InterruptedWorkError when the thread is to end meanwhile.
        """
        if not of_the_machine(error) or self._faults >= FAULTS_BORNE:
            raise error
        pause_s = FAULT_PAUSE_S * 2**self._faults
        self._faults += 1
        self._log.warning("machine_fault", reason=f"{type(error).__name__}: {error}", again_in_s=pause_s)
        if self._stopping.wait(pause_s):
            raise InterruptedWorkError from error

    def renew(self) -> None:
        """Something went well: the next fault is the first of a row again."""
        self._faults = 0
