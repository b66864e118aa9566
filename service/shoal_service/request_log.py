"""Log line and metrics of every request, written a moment later and together with others.

A line written between two requests takes 40 us of the event loop, because its code is no longer in the cache of the
processor. That is a fifth of a one-point prediction. In a sequence of lines each takes 12 us. Sequences are short, so
that no request waits for many lines.
"""

import asyncio
import contextvars
import time
from collections import deque
from datetime import UTC, datetime
from typing import Any, NamedTuple

from starlette.types import Scope

from shoal_service.metrics import Metrics

CUT_OFF = 499
"""Status in the log if the client disconnected before the answer."""
DELAY_S = 0.01
"""Seconds that a line waits for others."""
AT_ONCE = 16
"""Most lines that are written together. So many wait no longer."""
UNMATCHED = "unmatched"
_QUIET = {"/healthz", "/readyz", "/metrics"}
"""Routes that monitoring reads every few seconds: logged at level debug."""


class _ServedRequest(NamedTuple):
    """One served request."""

    scope: Scope
    request_id: str
    status: int
    seconds: float
    at: float
    """Seconds since the epoch."""


class RequestLog:
    """Served requests that are not written yet. Only the thread of the event loop uses it."""

    def __init__(self, metrics: Metrics, log: Any) -> None:
        self._metrics = metrics
        self._log = log
        self._waiting: deque[_ServedRequest] = deque()
        self._due: asyncio.AbstractEventLoop | None = None
        """The loop that will write the waiting lines."""

    def add(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        """Add a served request, to be written after `DELAY_S`. `status`: 0 if no answer was sent."""
        self._waiting.append(_ServedRequest(scope, request_id, status, seconds, time.time()))
        loop = asyncio.get_running_loop()
        if len(self._waiting) % AT_ONCE == 0:
            loop.call_soon(self._write_some, context=contextvars.Context())  # not the context of a request
        if self._due is not loop:
            self._due = loop
            loop.call_later(DELAY_S, self._write_due, loop, context=contextvars.Context())

    def write(self) -> None:
        """Write all waiting lines now."""
        while self._waiting:
            self._write(self._waiting.popleft())

    def _write_some(self) -> None:
        for _ in range(min(len(self._waiting), AT_ONCE)):  # none are left if `write` was called in between
            self._write(self._waiting.popleft())

    def _write_due(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            self._write_some()
        finally:  # also if one line failed
            if self._waiting:
                loop.call_later(DELAY_S, self._write_due, loop)
            else:
                self._due = None

    def _write(self, served: _ServedRequest) -> None:
        route, method, status = route_of(served.scope), served.scope["method"], served.status
        if status != CUT_OFF and not route.endswith("/events"):  # read for hours: that is not a latency
            self._metrics.observe(method if route != UNMATCHED else "any", route, status or 500, served.seconds)
        say = self._log.debug if route in _QUIET else self._log.info
        say(
            "request_cut_off" if status == CUT_OFF else "request",
            time=datetime.fromtimestamp(served.at, UTC).isoformat().replace("+00:00", "Z"),
            request_id=served.request_id,
            method=method,
            route=route,
            stream=served.scope.get("path_params", {}).get("stream", "default"),
            status=status,
            ms=round(1e3 * served.seconds, 3),
        )


def route_of(scope: Scope) -> str:
    """Template of the route that served a request. Unlike paths, there are few of them."""
    return str(getattr(scope.get("route"), "path", UNMATCHED))
