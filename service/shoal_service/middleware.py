"""Middleware for every HTTP request: request id, Host check, timing, log line, and problem+json for every error.

It is plain ASGI. The middleware class of the framework would start a task per request and hide disconnects.
"""

import asyncio
import itertools
import re
import time
import uuid
from collections.abc import Collection
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bind_contextvars

from shoal.errors import ShoalError, did_you_mean
from shoal_service.errors import NotReadyError, ParameterError
from shoal_service.metrics import Metrics
from shoal_service.problems import problem_for, problem_for_status
from shoal_service.request_log import CUT_OFF, RequestLog, route_of
from shoal_service.routes.answers import HEADERS_ONLY, problem_response
from shoal_service.routes.authorization import audit_fields
from shoal_service.tracing import end_request, server_span, tracing
from shoal_service.wire import check_host

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


class RequestMiddleware:
    """ASGI middleware around the whole application."""

    def __init__(
        self, app: ASGIApp, *, allowed_hosts: Collection[str], metrics: Metrics, request_log: RequestLog, log: Any
    ) -> None:
        self._app = app
        self._allowed_hosts = allowed_hosts
        self._metrics = metrics
        self._request_log = request_log
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request. Other scopes pass through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer_only = scope["method"] == "HEAD"
        if answer_only:  # RFC 9110, 9.3.2: like GET, without the content
            scope = {**scope, "method": "GET", HEADERS_ONLY: True}
        headers = dict(reversed(scope["headers"]))  # the first of a name counts
        request_id = _request_id(headers.get(b"x-request-id"))
        bind_contextvars(request_id=request_id)  # not reset: each request runs in a task of its own
        answer = _Answer(send, request_id, headers_only=answer_only)
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if not tracing():
            await self._serve(scope, receive, answer, hosts)
            return
        texts = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
        with server_span(scope["method"], texts) as made:
            await self._serve(scope, receive, answer, hosts)
            end_request(made, scope["method"], route_of(scope), answer.status or 500)

    async def _serve(self, scope: Scope, receive: Receive, answer: "_Answer", hosts: list[bytes]) -> None:
        began = time.perf_counter()
        try:
            if len(hosts) > 1:  # RFC 9112, 3.2
                raise ParameterError(f"the request has {len(hosts)} Host headers; send one")
            if not hosts and scope.get("http_version") == "1.1":
                raise ParameterError("the request has no Host header; send one with the name of this server")
            check_host(hosts[0].decode("latin-1") if hosts else None, self._allowed_hosts)
            await self._app(scope, receive, answer)
        except ClientDisconnect:
            answer.status = CUT_OFF
            self._metrics.count_cut_off()
        except asyncio.CancelledError:  # the time to stop is over, and this request still waits
            if not answer.status:
                await problem_response(
                    problem_for(NotReadyError("the service is stopping; send the request again when it has restarted"))
                )(scope, receive, answer)
            raise
        except HTTPException as error:
            await _unrouted(scope, error)(scope, receive, answer)
        except ShoalError as error:
            problem = problem_for(error)
            if answer.status or (problem.status >= 500 and not problem.retryable):
                self._log.error("request_failed", path=scope["path"], reason=f"{type(error).__name__}: {error}")
            if not answer.status:
                await problem_response(problem)(scope, receive, answer)
        except Exception as error:  # noqa: BLE001 - logged with its traceback; the answer does not show it
            self._log.error("request_failed", path=scope["path"], exc_info=True)
            if not answer.status:
                await problem_response(problem_for(error))(scope, receive, answer)
        finally:
            self._request_log.add(scope, answer.request_id, answer.status, time.perf_counter() - began)
            if (audited := audit_fields(scope, answer.status)) is not None:
                self._log.info("audit", request_id=answer.request_id, **audited)


def _unrouted(scope: Scope, error: HTTPException) -> Response:
    """Answer a request that no route serves."""
    paths = {getattr(route, "path", "") for route in scope["app"].router.routes} if error.status_code == 404 else ()
    advice, headers = did_you_mean(scope["path"], paths), error.headers
    if error.status_code == 405:
        methods = _methods_of(scope)
        headers = {"Allow": ", ".join(methods)}
        advice = f"send {' or '.join(m for m in methods if m != 'HEAD')}; "
    detail = f"{scope['method']} {scope['path']}: {error.detail}; {advice}/docs lists all paths and methods"
    return problem_response(problem_for_status(error.status_code, detail), headers)


def _methods_of(scope: Scope) -> list[str]:
    """All methods of a path. The router itself would name those of the first route only."""
    routes = scope["app"].router.routes
    scopes = {method: {**scope, "method": method} for method in ("GET", "POST", "PUT", "PATCH", "DELETE")}
    found = [m for m, scope in scopes.items() if any(route.matches(scope)[0] is Match.FULL for route in routes)]
    return [*found, "HEAD"] if "GET" in found else found


_NO_SNIFF = (b"x-content-type-options", b"nosniff")
"""Header against browsers that guess another content type than the one that is sent."""


class _Answer:
    """`send` that adds the request id, remembers the status, and drops the content for HEAD."""

    def __init__(self, send: Send, request_id: str, *, headers_only: bool) -> None:
        self._send = send
        self.request_id = request_id
        self._headers_only = headers_only
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message["headers"], (b"x-request-id", self.request_id.encode())]
            if _NO_SNIFF not in message["headers"]:
                message["headers"].append(_NO_SNIFF)
        elif self._headers_only and message["type"] == "http.response.body":
            message["body"] = b""
        await self._send(message)


_PROCESS, _REQUESTS = uuid.uuid4().hex[:16], itertools.count(1)


def _request_id(given: bytes | None) -> str:
    """The id that the client sent, or a new one that no other request has.

    A UUID per request would need a system call, and then wait for the lock of the interpreter if a learner is busy.
    """
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given.decode("ascii")
    return f"{_PROCESS}{next(_REQUESTS):016x}"
