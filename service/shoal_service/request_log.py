"""The log line and the metrics of every request, written a moment later, together with others.

A line between two requests keeps the event loop for 35 us, a quarter of a one-point prediction, for little of its code
is still in the processor's cache then; of lines that follow each other each takes 8. One is written a round of the
loop, so that no request waits for many.
"""

import asyncio
import contextlib
import contextvars
import time
from collections import deque
from datetime import UTC, datetime
from typing import Any, NamedTuple

from starlette.types import Scope

from shoal_service.metrics import Metrics

CUT_OFF = 499
"""Status in the log of a request whose client went away: no answer was sent."""
DELAY_S = 0.01
"""How long a line waits for others."""
SHARE_AT_ONCE = 1 / 16
"""Of what waits, so much is written in one round of the loop, and a line more: no request waits for many, and what
waits stays bounded however many come in a round."""
UNMATCHED = "unmatched"
_QUIET = {"/healthz", "/readyz", "/metrics"}
"""Asked every few seconds by machines: logged at level debug."""


class _Note(NamedTuple):
    """A request that was served."""

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
        self._due: asyncio.AbstractEventLoop | None = None
        """The loop that is to write what waits."""

    def add(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        """Note a request that took so long, to be written after `DELAY_S`. `status`: 0 where nothing was sent."""
        self._waiting.append(_Note(scope, request_id, status, seconds, time.time()))
        loop = asyncio.get_running_loop()
        if self._due is not loop:
            self._due = loop
            loop.call_later(DELAY_S, self._write_some, context=contextvars.Context())  # of no request

    def write(self) -> None:
        """Write all that waits, now."""
        while self._waiting:
            self._write(self._waiting.popleft())

    def _write_some(self) -> None:
        n = len(self._waiting)  # 0: written on request meanwhile
        try:
            for _ in range(min(n, 1 + int(SHARE_AT_ONCE * (n - 1)))):
                self._write(self._waiting.popleft())
        finally:  # whatever one line came to, the others follow
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._write_some)
            else:
                self._due = None

    def _write(self, note: _Note) -> None:
        route, method, status = route_of(note.scope), note.scope["method"], note.status
        if status != CUT_OFF and not route.endswith("/events"):  # followed for hours: that is no latency
            self._metrics.observe(method if route != UNMATCHED else "any", route, status or 500, note.seconds)
        say = self._log.debug if route in _QUIET else self._log.info
        with contextlib.suppress(OSError):  # standard error is gone: there is nobody to tell
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
