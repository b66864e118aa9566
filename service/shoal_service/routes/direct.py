"""Routes that leave out the framework's search for parameters where a request brings none of the optional ones.

FastAPI looks up, converts and validates every declared parameter at every request; that takes as long as a one-point
prediction itself. What is declared stays declared: it is documented, and solved as ever where it is given.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

Endpoint = TypeVar("Endpoint", bound=Callable[..., Awaitable[Response]])
Short = Callable[[Request], Awaitable[Response] | None]
"""Calls the endpoint itself, with what the request holds; None where the framework is to read the parameters."""


def direct(short: Short) -> Callable[[Endpoint], Endpoint]:
    """Decorator for an endpoint of a `DirectRoute`: ask `short` first."""

    def mark(endpoint: Endpoint) -> Endpoint:
        vars(endpoint)["direct"] = short
        return endpoint

    return mark


class DirectRoute(APIRoute):
    """A route whose endpoint may be marked `direct`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The framework's handler, or one that asks `short` before."""
        declared = super().get_route_handler()
        short: Short | None = getattr(self.endpoint, "direct", None)
        if short is None:
            return declared

        async def handle(request: Request) -> Response:
            return await (short(request) or declared(request))

        return handle
