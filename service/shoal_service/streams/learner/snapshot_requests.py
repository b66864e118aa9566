"""Requests for the state as bytes, put by any thread, answered by the learner's between two entries."""

import threading
from collections.abc import Callable
from concurrent.futures import Future

from shoal_service.errors import NotReadyError, ServiceError
from shoal_service.store import Checkpoint
from shoal_service.streams.learner.apply import Working, checkpoint_of
from shoal_service.streams.learner.faults import of_the_machine


class Asking:
    """What is asked, until it is answered or refused. Once ended, every request is refused at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Future[Checkpoint]] = []
        self._ended: Callable[[], ServiceError] | None = None

    def ask(self) -> "Future[Checkpoint]":
        """A future for the state."""
        request: Future[Checkpoint] = Future()
        with self._lock:
            if self._ended is None:
                self._waiting.append(request)
                return request
            request.set_exception(self._ended())
        return request

    def answer(self, working: Working) -> None:
        """Give all who wait the state, serialised once. Where that fails they are told, and the learner goes on."""
        waiting = self._taken()
        if not waiting:
            return
        try:
            checkpoint = checkpoint_of(working)
        except Exception as error:  # noqa: BLE001 - a copy failed: whoever asked for it is told, the state is unharmed
            for request in waiting:
                request.set_exception(_refusal(error))
        else:
            for request in waiting:
                request.set_result(checkpoint)

    def end(self, ended: Callable[[], ServiceError]) -> None:
        """No answer will come: refuse who waits, and whoever asks later, with a fresh error from `ended`."""
        with self._lock:
            self._ended = reason = self._ended or ended  # the first reason is the true one
        for request in self._taken():
            request.set_exception(reason())

    def _taken(self) -> "list[Future[Checkpoint]]":
        with self._lock:
            waiting, self._waiting = self._waiting, []
        return [request for request in waiting if request.set_running_or_notify_cancel()]


def _refusal(error: Exception) -> Exception:
    if of_the_machine(error):
        return NotReadyError(f"no snapshot could be made just now ({type(error).__name__}: {error}); ask again")
    return error
