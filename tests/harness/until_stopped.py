"""A thread of a test that repeats its work until it is stopped, and whose failure fails the test."""

import threading
from abc import ABC, abstractmethod

from harness.waiting import LONGEST_WAIT_S


class UntilStopped(threading.Thread, ABC):
    """Calls `turn` again and again, until `end`."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.stop = threading.Event()
        self._failure: BaseException | None = None

    @abstractmethod
    def turn(self) -> None:
        """Do the work once. What it raises ends the thread, and is raised by `end`."""

    def run(self) -> None:
        """Repeat the work."""
        try:
            while not self.stop.is_set():
                self.turn()
        except BaseException as error:  # noqa: BLE001 - raised again by `end`
            self._failure = error

    def end(self) -> None:
        """Stop after the turn that is made, and raise what went wrong."""
        self.stop.set()
        self.join(LONGEST_WAIT_S)
        assert not self.is_alive()
        if self._failure is not None:
            raise self._failure
