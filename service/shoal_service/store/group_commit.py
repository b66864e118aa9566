"""Group commit: one thread collects the requests of many callers and commits them as one group.

While one group is being synced, the next one collects in the queue. Eight callers therefore share one sync, and a
single caller waits for nobody else. A backend gives the function that commits a group; everything else is here.
"""

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, Protocol, TypeVar

from shoal_service.store import rules

GROUP_BYTES = 16 << 20
"""Payload bytes that close a group. The limit bounds how long the first request waits for the last one."""
GROUP_REQUESTS = 512
_LINGER_PART, _LINGER_MAX_S = 0.2, 0.002


class Request(Protocol):
    """Request in the queue, with the future of its caller."""

    @property
    def future(self) -> "Future[Any]":
        """Future that the commit completes."""

    @property
    def n_bytes(self) -> int:
        """Payload bytes, roughly."""


R = TypeVar("R", bound=Request)


class GroupCommit(Generic[R]):
    """Queue and thread of a backend's writer, from construction to `close`."""

    def __init__(
        self,
        thread_name: str,
        commit: Callable[[list[R]], None],
        *,
        idle_s: Callable[[], float | None] = lambda: None,
        finish: Callable[[], None] = lambda: None,
    ) -> None:
        """Start the thread.

        `commit` gets each group and completes its futures. `idle_s` says how long the thread may wait for the first
        request; None means without limit. After that time `commit` gets an empty group, for work of its own. `finish`
        runs in the thread after the last group.
        """
        self._commit = commit
        self._idle_s = idle_s
        self._finish = finish
        self._queue: queue.SimpleQueue[R | _Signal] = queue.SimpleQueue()
        self._entrance = threading.Lock()
        self._closed = False
        self._expected = 1  # callers of the last group, and those who came while it was committed
        self._arrived = 0
        self._linger_s = 0.0
        self._thread = threading.Thread(target=self._run, name=thread_name, daemon=True)
        self._thread.start()

    @property
    def closing(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def submit(self, request: R) -> None:
        """Queue a request. After `close` its future fails at once."""
        with self._entrance:
            if not self._closed:
                self._queue.put(request)
                return
        request.future.set_exception(rules.closed())

    def wake(self) -> None:
        """Make the waiting thread ask `idle_s` again."""
        with self._entrance:
            if not self._closed:
                self._queue.put(_WAKE)

    def count_arrivals(self) -> None:
        """Count the callers that came during this commit. `commit` calls it before it completes the first future."""
        self._arrived = self._queue.qsize()

    def close(self) -> None:
        """Commit what is queued, then end the thread. May be called again."""
        with self._entrance:
            if not self._closed:
                self._closed = True
                self._queue.put(_END)
        self._thread.join()

    def _run(self) -> None:
        last = False
        while not last:
            group, last = self._collect()
            began = time.perf_counter()
            self._arrived = 0
            try:
                self._commit(group)
            except Exception as error:  # noqa: BLE001 - the error of one group must not end the thread that serves all
                fail([request for request in group if not request.future.done()], error)
            self._linger_s = min(_LINGER_MAX_S, _LINGER_PART * (time.perf_counter() - began))
            self._expected = len(group) + self._arrived
        self._finish()

    def _collect(self) -> tuple[list[R], bool]:
        """Return the next group, and whether it is the last. The group is empty when the thread has idled long enough.

        The thread lingers for callers that were just answered and are about to come back, as long as those who came
        during the last commit are queued already. Without that, the two sets would take turns forever, each waiting for
        the sync of the other. A small part of the time of a commit brings them together. A single caller never waits.
        """
        group: list[R] = []
        n_bytes, linger_until = 0, 0.0
        try:
            request = self._queue.get(timeout=self._idle_s())
            while request is not _END:
                if not isinstance(request, _Signal) and request.future.set_running_or_notify_cancel():
                    group.append(request)
                    n_bytes += request.n_bytes
                if n_bytes >= GROUP_BYTES or len(group) >= GROUP_REQUESTS:
                    return group, False
                if not group:
                    request = self._queue.get(timeout=self._idle_s())
                elif self._queue.empty() and len(group) < self._expected:
                    linger_until = linger_until or time.perf_counter() + self._linger_s
                    request = self._queue.get(timeout=max(0.0, linger_until - time.perf_counter()))
                else:
                    request = self._queue.get_nowait()
        except queue.Empty:
            return group, False
        return group, True


def fail(requests: list[R], error: Exception) -> None:
    """Give all callers the same error."""
    for request in requests:
        request.future.set_exception(error)


class _Signal:
    """Message to the thread itself."""


_WAKE, _END = _Signal(), _Signal()
