"""Connections of the HTTP server: a deadline for headers, a limit on their size, and one on the number of connections.

A client that connects and sends nothing, or half a request, would otherwise hold its connection for ever. Enough of
them would use up all file descriptors of the process. Headers without end would use up its memory.
"""

import asyncio
import resource
from http import HTTPStatus
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from shoal_service.errors import OverloadedError
from shoal_service.problems import Problem, problem_for, problem_for_status

HEADERS_S = 10.0
"""Longest time from the first byte of a request, or from the connection, to the end of its headers."""
MOST_HEADER_BYTES = 131_072
"""Largest size of headers, and of the trailers after a body in chunks. What the first read brings is not counted."""
LONGEST_TARGET_BYTES = 65_535
"""Longest target of a request, its path and query, that the parser reads."""
RESERVED_FILES = 128
"""File descriptors that are kept for the store, child processes and the listening socket."""

_FULL = problem_for(OverloadedError("every connection is in use; send the request again in a moment"))
_TARGET = problem_for_status(
    414, f"the address of the request is longer than {LONGEST_TARGET_BYTES} bytes; send the values in a body, by POST"
)
_HEADERS = problem_for_status(431, f"the headers are larger than {MOST_HEADER_BYTES} bytes; send smaller ones")
_NO_REQUEST = problem_for_status(
    400, "this is no request of HTTP/1.1; look at its method, its headers and the length of its body"
)


class Connection(HttpToolsProtocol):
    """One connection. Subclasses of `connection_class` set the limits; all connections of a class share them."""

    most: ClassVar[int]
    headers_s: ClassVar[float]
    waiting: ClassVar[dict["Connection", None]]
    """Connections without a request, the one that waits longest first."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.url = b""
        self._deadline: asyncio.TimerHandle | None = None
        self._in_headers = False
        self._header_bytes = 0  # received since the last request or part of a body began

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn does
        """Accept a connection. At the limit, close the one that waits longest, or refuse this one."""
        super().connection_made(transport)
        if len(self.connections) > self.most:
            if not self.waiting:
                self._refuse(_FULL)
                return
            next(iter(self.waiting))._give_up()
        self.waiting[self] = None
        self._start_deadline()

    def data_received(self, data: bytes) -> None:
        """Read bytes. Start the deadline if they end within headers, and refuse headers that are too large."""
        self._header_bytes += len(data)
        super().data_received(data)
        if self._header_bytes > MOST_HEADER_BYTES and not self.transport.is_closing():
            self._refuse(_HEADERS)
        if self._in_headers and self._deadline is None and not self.transport.is_closing():
            self._start_deadline()

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser cannot read, as every other error is refused: with a problem."""
        self._refuse(_NO_REQUEST if len(self.url) <= LONGEST_TARGET_BYTES else _TARGET)

    def _refuse(self, problem: Problem) -> None:
        """Answer without a request that the application could answer, and close the connection."""
        body = problem.body()
        headers = {**problem.headers(), "Content-Length": str(len(body)), "Connection": "close"}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        line = f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}\r\n"
        self.transport.write(f"{line}{head}\r\n".encode() + body)
        self.transport.close()

    def on_message_begin(self) -> None:
        """Remember that a request has begun."""
        super().on_message_begin()
        self._in_headers = True
        self._header_bytes = 0

    def on_headers_complete(self) -> None:
        """End the deadline: the request is known."""
        self._in_headers = False
        self._header_bytes = 0
        self._stop_deadline()
        self.waiting.pop(self, None)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Read a part of the body."""
        self._header_bytes = 0
        super().on_body(body)

    def on_response_complete(self) -> None:
        """Count the connection as waiting for its next request."""
        if not self.transport.is_closing():
            self.waiting[self] = None
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_deadline()
        self.waiting.pop(self, None)
        super().connection_lost(exc)

    def _start_deadline(self) -> None:
        self._deadline = self.loop.call_later(self.headers_s, self._give_up)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        """Close a connection that has no complete request."""
        self._stop_deadline()
        self.waiting.pop(self, None)
        self.connections.discard(self)
        self.transport.close()


def connection_class(most: int, headers_s: float = HEADERS_S) -> type[Connection]:
    """Make the class of the connections of one server, of which there may be `most` at once."""
    limits = {"most": most, "headers_s": headers_s, "waiting": {}}
    return type("LimitedConnection", (Connection,), limits)


def most_connections(wanted: int) -> int:
    """Number of connections that the limit on open files allows, at most `wanted`."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, min(wanted, files - RESERVED_FILES))
