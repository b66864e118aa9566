"""Router that asks for a key, and the audit line of a request that needed one.

The router finds the route of a request, checks what its caller may do, and hands it over. A route is found once, so
that the check costs a request little. Without a key, an unknown path is answered like a known one.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from starlette.routing import BaseRoute, Match, Route, Router
from starlette.types import Receive, Scope, Send

from shoal_service.access import Caller, Meter, Reach
from shoal_service.access import Scope as KeyScope
from shoal_service.errors import ForbiddenError
from shoal_service.request_log import route_of
from shoal_service.routes.endpoints import needs_of
from shoal_service.streams import DEFAULT_STREAM

CALLER = "shoal.caller"
"""Name of the caller in the scope of a request."""
_SENT_WITHOUT_ASKING = (b"", b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data")
NEEDS = "shoal.needs"
"""Name of what the endpoint needs, if it needs a key."""


class AuthorizedRouter:
    """ASGI application around a router."""

    def __init__(
        self,
        router: Router,
        caller: Callable[[str | None], Caller],
        *,
        open_paths: Collection[str] = (),
        origins: Collection[str] = (),
    ) -> None:
        """`caller` as `AccessControl.caller`. Routes whose path is in `open_paths` need no key. `origins`: of web pages
        that may send requests.
        """
        self._router = router
        self._caller = caller
        self._open_paths = frozenset(open_paths)
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request. Raises UnauthenticatedError, ForbiddenError. Other scopes pass through."""
        if scope["type"] != "http":
            await self._router(scope, receive, send)
            return
        path = None if scope.get("root_path") else scope["path"]
        for route in self._router.routes:
            if path is not None and isinstance(route, Route) and route.path_regex.match(path) is None:
                continue  # as `matches` says, too: a request of a named stream passes 35 routes
            match, found = route.matches(scope)
            if match is Match.FULL:
                scope["route"] = route
                scope.update(found)
                self._authorize(scope, route)
                await route.handle(scope, receive, send)
                return
        self._caller(secret_of(scope["headers"]))  # whoever has no key is not told which paths there are
        await self._router(scope, receive, send)

    def _authorize(self, scope: Scope, route: BaseRoute) -> None:
        """Check that the caller may use a route, and leave what was checked in the scope."""
        needs = needs_of(route)
        if needs.scope is None or getattr(route, "path", None) in self._open_paths:
            return
        scope[NEEDS] = needs
        caller = scope[CALLER] = self._caller(secret_of(scope["headers"]))
        if caller.meter is not None:
            caller.meter.count_request()
        caller.check(needs, scope["path_params"].get("stream", DEFAULT_STREAM))
        if scope["method"] == "POST":
            refuse_forged(scope["headers"], self._origins)


def refuse_forged(headers: Sequence[tuple[bytes, bytes]], origins: Collection[str]) -> None:
    """Raise ForbiddenError for a POST that a web page of another origin can send without asking the service first.

    A browser asks first unless the content type is one of a form. It names the origin of the page in any case.
    """
    given = dict(reversed(headers))  # the first of a name counts
    origin = given.get(b"origin")
    kind = given.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if origin is None or kind not in _SENT_WITHOUT_ASKING:
        return
    name = origin.decode("latin-1").lower()
    if name.partition("://")[2] != given.get(b"host", b"").decode("latin-1").lower() and name not in origins:
        raise ForbiddenError(
            f"a web page of the origin {name[:80]!r} may not send this; if it is yours, name it with --cors-origin"
        )


def caller_of(scope: Scope) -> Caller:
    """The caller of a request that was authorized."""
    caller: Caller = scope[CALLER]
    return caller


def meter_of(scope: Scope) -> Meter | None:
    """The meter of the caller. None if nobody is authorized, or the key has no limits."""
    caller: Caller | None = scope.get(CALLER)
    return None if caller is None else caller.meter


def secret_of(headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    """The key that a request carries: `Authorization: Bearer KEY`, or else `api-key: KEY`. None if it has none."""
    given: str | None = None
    for name, value in headers:
        if name == b"authorization":
            scheme, _, secret = value.decode("latin-1").partition(" ")
            if scheme.lower() == "bearer":
                return secret.strip()
        elif name == b"api-key" and given is None:
            given = value.decode("latin-1").strip()
    return given


SUBJECT = "shoal.subject"
"""Name, in the scope of a request, of the id of the key that it has created."""


def audit_fields(scope: Scope, status: int) -> dict[str, Any] | None:
    """Fields of the audit line of a request that has ended. None for a request that is not audited."""
    needs = scope.get(NEEDS)
    if needs is None or not (needs.audited or needs.scope is KeyScope.ADMIN):
        return None
    caller = scope.get(CALLER)
    given = scope.get("path_params", {})
    return {
        "key_id": None if caller is None else caller.key_id,
        "key_name": None if caller is None else caller.name,
        "action": f"{scope['method']} {route_of(scope)}",
        "stream": given.get("stream", DEFAULT_STREAM) if needs.reach is Reach.STREAM else None,
        "subject": scope.get(SUBJECT)
        or given.get("key", given.get("component", given.get("webhook", given.get("source")))),
        "status": status,
        "outcome": "done" if 200 <= status < 400 else "refused" if 400 <= status < 500 else "failed",
    }
