"""The log line and the metrics of every request, written a moment later, together with others.

A line between two requests keeps the event loop for 35 us, a quarter of a one-point prediction, for little of its code
is still in the processor's cache then; of lines that are written together each takes 8.
"""

import asyncio
import time
from collections import deque
from datetime import UTC, datetime
from typing import Any, NamedTuple

from starlette.types import Scope

from shoal_service.metrics import Metrics

CUT_OFF = 499
"""Status in the log of a request whose client went away: no answer was sent."""
DELAY_S = 0.01
"""How long a line may wait for others."""
UNMATCHED = "unmatched"
_QUIET = {"/healthz", "/readyz", "/metrics"}
"""Asked every few seconds by machines: logged at level debug."""


class _Note(NamedTuple):
    scope: Scope
    request_id: str
    status: int
    seconds: float
    at: float
    """Seconds of the epoch."""


class RequestNotes:
    """Requests that are served and not written down yet; for the loop's thread alone."""

    def __init__(self, metrics: Metrics, log: Any) -> None:
        self._metrics = metrics
        self._log = log
        self._waiting: deque[_Note] = deque()

    def add(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        """Note a request that took so long, to be written within `DELAY_S`. `status`: 0 where nothing was sent."""
        if not self._waiting:
            self._wait()
        self._waiting.append(_Note(scope, request_id, status, seconds, time.time()))

    def write(self) -> None:
        """Write all that waits, now. What cannot be written is left out, and the rest waits again."""
        try:
            while self._waiting:
                self._write(self._waiting.popleft())
        finally:
            if self._waiting:
                self._wait()

    def _wait(self) -> None:
        asyncio.get_running_loop().call_later(DELAY_S, self.write)

    def _write(self, note: _Note) -> None:
        route, method, status = route_of(note.scope), note.scope["method"], note.status
        if status != CUT_OFF and not route.endswith("/events"):  # followed for hours: that is no latency
            self._metrics.observe(method if route != UNMATCHED else "any", route, status or 500, note.seconds)
        say = self._log.debug if route in _QUIET else self._log.info
        say(
            "request_cut_off" if status == CUT_OFF else "request",
            time=datetime.fromtimestamp(note.at, UTC).isoformat().replace("+00:00", "Z"),
            request_id=note.request_id,
            method=method,
            route=route,
            stream=note.scope.get("path_params", {}).get("stream", "default"),
            status=status,
            ms=round(1e3 * note.seconds, 3),
        )


def route_of(scope: Scope) -> str:
    """The template of the route that served a request: bounded in number, unlike paths."""
    path = getattr(scope.get("route"), "path", None)
    if path is None:
        return UNMATCHED
    prefixed = "stream" in scope.get("path_params", {}) and "{stream}" not in path
    return f"/streams/{{stream}}{path}" if prefixed else str(path)
