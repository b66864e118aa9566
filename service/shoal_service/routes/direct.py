"""A short way for the requests that come by the thousand: those for the default stream without optional parameters.

The framework matches a request against every router, opens two exit stacks for it, and looks up, converts and validates
each parameter that is declared: longer than a one-point prediction takes. A direct route stands before the declared one
of the same path, and calls the same function where there is nothing to look up; anything else goes on to the declared
one, which is also the one that is documented.
"""

from collections.abc import Awaitable, Callable
from urllib.parse import unquote_plus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send


class DirectRoute(BaseRoute):
    """One method of one path, for requests that are plain. Errors are the application's to answer, as everywhere."""

    def __init__(
        self,
        method: str,
        path: str,
        is_plain: Callable[[Scope], bool],
        answer: Callable[[Request], Awaitable[Response]],
    ) -> None:
        self.path = path
        self._method = method
        self._is_plain = is_plain
        self._answer = answer

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Full or none: what is not plain is another route's."""
        mine = scope["type"] == "http" and scope["path"] == self.path and scope["method"] == self._method
        if not mine or scope.get("root_path") or not self._is_plain(scope):
            return Match.NONE, {}
        return Match.FULL, {"route": self, "path_params": {}}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        response = await self._answer(Request(scope, receive, send))
        await response(scope, receive, send)


def values_alone(query: bytes, name: bytes) -> list[str] | None:
    """The values of a query that holds one parameter, once or more often, and no other; None for any other query."""
    begin = name + b"="
    parts = query.split(b"&")
    if not all(part.startswith(begin) for part in parts):
        return None
    return [unquote_plus(part[len(begin) :].decode("latin-1")) for part in parts]
