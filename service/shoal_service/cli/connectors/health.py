"""Health port of a connector: /healthz, /readyz and /metrics."""

import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from shoal_service.cli.connectors.progress import Progress
from shoal_service.cli.exits import CommandError


class HealthServer:
    """Small HTTP server in a thread of its own; a context manager."""

    def __init__(self, progress: Progress, host: str, port: int) -> None:
        """CommandError when the port cannot be used. Port 0 is any free one."""

        class Handler(_Handler):
            shown = progress

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise CommandError(f"--health-port {port} on {host} cannot be used: {error.strerror}") from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="shoal-connect-health", daemon=True)

    @property
    def port(self) -> int:
        """The port in use."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    shown: Progress

    def do_GET(self) -> None:
        """Answer a probe, or give the metrics."""
        if self.path == "/metrics":
            self._answer(HTTPStatus.OK, self.shown.text(), "text/plain; version=0.0.4; charset=utf-8")
        elif self.path == "/healthz":
            self._answer(HTTPStatus.OK, b"ok\n")
        elif self.path == "/readyz":
            trouble = self.shown.trouble
            status = HTTPStatus.OK if trouble is None else HTTPStatus.SERVICE_UNAVAILABLE
            self._answer(status, f"{trouble or 'ready'}\n".encode())
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"use /healthz, /readyz or /metrics\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name in the base class
        """Keep probes out of the log."""

    def _answer(self, status: HTTPStatus, body: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
