"""Requests for the state as bytes: made by any thread, answered by the learner's thread between two entries."""

import threading
from collections.abc import Callable
from concurrent.futures import Future

from shoal_service.errors import NotReadyError, ServiceError
from shoal_service.store import Checkpoint
from shoal_service.streams.learner.apply import WorkingState, checkpoint_of
from shoal_service.streams.learner.retry_policy import is_machine_fault


class SnapshotRequests:
    """The open requests. Once ended, every request is refused at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Future[Checkpoint]] = []
        self._ended: Callable[[], ServiceError] | None = None

    def add(self) -> "Future[Checkpoint]":
        """A future for the state."""
        request: Future[Checkpoint] = Future()
        with self._lock:
            if self._ended is None:
                self._waiting.append(request)
                return request
            request.set_exception(self._ended())
        return request

    def answer(self, working: WorkingState) -> None:
        """Answer every request with the state, serialised once. A failure goes to the requests, not to the learner."""
        waiting = self._take()
        if not waiting:
            return
        try:
            checkpoint = checkpoint_of(working)
        except Exception as error:  # noqa: BLE001 - only the copy failed: the requests get the error, the state is intact
            for request in waiting:
                request.set_exception(_refusal(error))
        else:
            for request in waiting:
                request.set_result(checkpoint)

    def end(self, ended: Callable[[], ServiceError]) -> None:
        """Refuse every request, now and later, with a fresh error from `ended`."""
        with self._lock:
            self._ended = reason = self._ended or ended  # the first reason is the cause
        for request in self._take():
            request.set_exception(reason())

    def _take(self) -> "list[Future[Checkpoint]]":
        with self._lock:
            waiting, self._waiting = self._waiting, []
        return [request for request in waiting if request.set_running_or_notify_cancel()]


def _refusal(error: Exception) -> Exception:
    if is_machine_fault(error):
        return NotReadyError(f"no snapshot could be made just now ({type(error).__name__}: {error}); ask again")
    return error
