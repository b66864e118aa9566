"""A short way for the requests that come by the thousand: those for the default stream without optional parameters.

The framework matches a request against every router, opens two exit stacks for it, and looks up, converts and validates
each parameter that is declared: longer than a one-point prediction takes. A direct route stands before the declared one
of the same path, and calls the same function where there is nothing to look up; anything else goes on to the declared
one, which is also the one that is documented.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote_plus

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send


class DirectRoute(NamedTuple):
    """One method of one path, for requests that are plain."""

    method: str
    path: str
    arguments: Callable[[Scope], tuple[Any, ...] | None]
    """What `answer` takes beside the request; None for a request that is not plain."""
    answer: Callable[..., Awaitable[Response]]


class DirectRoutes:
    """ASGI middleware within the gate, which answers errors, and outside the framework's routing."""

    def __init__(self, app: ASGIApp, *, routes: Sequence[DirectRoute]) -> None:
        self._app = app
        self._routes = {(route.method, route.path): route for route in routes}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a plain request; hand on any other."""
        route = self._routes.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        arguments = None if route is None or scope.get("root_path") else route.arguments(scope)
        if route is None or arguments is None:
            await self._app(scope, receive, send)
            return
        scope["route"], scope["path_params"] = route, {}
        response = await route.answer(Request(scope, receive, send), *arguments)
        await response(scope, receive, send)


def values_alone(query: bytes, name: bytes) -> list[str] | None:
    """The values of a query that holds one parameter, once or more often, and no other; None for any other query."""
    begin = name + b"="
    parts = query.split(b"&")
    if not all(part.startswith(begin) for part in parts):
        return None
    return [unquote_plus(part[len(begin) :].decode("latin-1")) for part in parts]
