"""Receiver of webhooks on loopback: it keeps what it accepts, and fails, stalls, or is away when it is told to."""

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver:
    """An HTTP server on 127.0.0.1. `begin` and `end` it as often as needed; it keeps its port."""

    def __init__(self, secret: bytes) -> None:
        self.accepted: list[dict[str, Any]] = []
        """Bodies that were answered 2xx, in order, each with its `webhook-id`."""
        self.attempts: list[tuple[float, str]] = []
        """Time and id of every request whose signature was right."""
        self.forged = 0
        """Requests whose signature was wrong."""
        self.answer: Callable[[dict[str, Any]], int] = lambda message: 204
        """Status for a message. It may take its time."""
        self.headers: dict[str, str] = {}
        self._secret = secret
        self._port = 0
        self._server: ThreadingHTTPServer | None = None
        self.begin()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/hook"

    @property
    def ids(self) -> list[str]:
        return [message["webhook-id"] for message in self.accepted]

    def begin(self) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                body = self.rfile.read(size)
                if len(body) < size:  # the sender was killed within it
                    self.close_connection = True
                    return
                status = receiver._receive(self, body)
                self.send_response(status)
                for name, value in ({"Content-Length": "0"} | receiver.headers).items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._server.daemon_threads = True
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def end(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _receive(self, request: BaseHTTPRequestHandler, body: bytes) -> int:
        message_id, timestamp = request.headers["webhook-id"], request.headers["webhook-timestamp"]
        digest = hmac.new(self._secret, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
        expected = "v1," + base64.b64encode(digest).decode()
        if request.headers["webhook-signature"] != expected or abs(time.time() - int(timestamp)) > 300:
            self.forged += 1
            return 401
        self.attempts.append((time.monotonic(), message_id))
        message = {**json.loads(body), "webhook-id": message_id, "host": request.headers["Host"]}
        status = self.answer(message)
        if 200 <= status < 300:
            self.accepted.append(message)
        return status
