"""Endpoints of one topic: declared once, added to the application under `/` and under `/streams/{stream}`.

FastAPI routes requests and writes the OpenAPI document from the handlers' signatures. The arguments are read here, from
the same signatures: FastAPI's own reading takes longer than the prediction of a point, and ignores unknown parameters.
"""

import inspect
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

from fastapi import APIRouter, Depends, FastAPI, Path, params
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from shoal.errors import did_you_mean
from shoal_service.access import ADMIN_SERVICE, OPEN, Requirement
from shoal_service.errors import (
    ForbiddenError,
    ParameterError,
    RateLimitedError,
    UnauthenticatedError,
    spelling_advice,
)
from shoal_service.problems import openapi_responses

Handler = Callable[..., Awaitable[Response]]


class _AnyText(PathConvertor):
    """The rest of a path, as `path`, but with line breaks too."""

    regex = "(?s:.*)"


register_url_convertor("text", _AnyText())

SECURITY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "Access key as `Authorization: Bearer KEY`."},
    "api-key": {"type": "apiKey", "in": "header", "name": "api-key", "description": "Access key as `api-key: KEY`."},
}
"""The two ways to send an access key, as OpenAPI describes them."""


class _Endpoint(NamedTuple):
    """One declared endpoint."""

    method: str
    path: str
    handler: Handler
    needs: Requirement
    described: dict[str, Any]


class Endpoints:
    """Handlers by method and path. A handler's first parameter is the request; the others are declared with
    `Query`, `Header` or `Path`.
    """

    def __init__(self, tag: str, *, any_query: bool = False) -> None:
        """`any_query`: ignore unknown query parameters, as probes may send them."""
        self._tag = tag
        self._route = _OpenRoute if any_query else _Route
        self._declared: list[_Endpoint] = []
        self._made: dict[str, list[BaseRoute]] = {}

    def get(self, path: str, needs: Requirement, **described: Any) -> Callable[[Handler], Handler]:
        """Declare a handler for GET. `needs`: what the caller must have. `described`: what OpenAPI says of it, as
        FastAPI names it.
        """
        return self._declaring("GET", path, needs, described)

    def post(self, path: str, needs: Requirement, **described: Any) -> Callable[[Handler], Handler]:
        """Declare a handler for POST."""
        return self._declaring("POST", path, needs, described)

    def put(self, path: str, needs: Requirement, **described: Any) -> Callable[[Handler], Handler]:
        """Declare a handler for PUT."""
        return self._declaring("PUT", path, needs, described)

    def patch(self, path: str, needs: Requirement, **described: Any) -> Callable[[Handler], Handler]:
        """Declare a handler for PATCH."""
        return self._declaring("PATCH", path, needs, described)

    def delete(self, path: str, needs: Requirement, **described: Any) -> Callable[[Handler], Handler]:
        """Declare a handler for DELETE."""
        return self._declaring("DELETE", path, needs, described)

    def add_to(self, app: FastAPI, prefix: str = "") -> None:
        """Add every endpoint to the application, below `prefix`.

        Routes know no application. All applications of a process share them: making them is most of making one.
        """
        if prefix not in self._made:
            self._made[prefix] = self._routes(prefix)
        app.router.routes.extend(self._made[prefix])

    def _routes(self, prefix: str) -> list[BaseRoute]:
        router = APIRouter()
        dependencies = [Depends(_stream_in_path)] if "{stream}" in prefix else []
        for method, path, handler, needs, described in self._declared:
            router.add_api_route(
                prefix + path,
                handler,
                methods=[method],
                tags=[self._tag],
                dependencies=dependencies,
                route_class_override=self._route,
                **_with_refusals(described, needs),
            )
            route = router.routes[-1]
            assert isinstance(route, _Route)
            route.needs = needs
        return router.routes

    def _declaring(
        self, method: str, path: str, needs: Requirement, described: dict[str, Any]
    ) -> Callable[[Handler], Handler]:
        def declare(handler: Handler) -> Handler:
            self._declared.append(_Endpoint(method, path, handler, needs, described))
            return handler

        return declare


def _with_refusals(described: dict[str, Any], needs: Requirement) -> dict[str, Any]:
    """Add to the description of an endpoint that it needs a key, and how it refuses a caller."""
    extra = described.get("openapi_extra", {})
    if needs.scope is None:
        return {**described, "openapi_extra": {**extra, "security": []}}
    secured = {**extra, "security": [{name: []} for name in SECURITY_SCHEMES]}
    refusals = openapi_responses(UnauthenticatedError, ForbiddenError, RateLimitedError)
    return {**described, "openapi_extra": secured, "responses": {**described.get("responses", {}), **refusals}}


async def _stream_in_path(
    stream: Annotated[
        str,
        Path(
            description="Name of the stream: 1 to 64 of a-z, 0-9, _ and -.",
            pattern="^[a-z0-9][a-z0-9_-]{0,63}$",
            examples=["sensors"],
        ),
    ],
) -> None:
    """Document the path parameter `stream`; handlers read it with `stream_of`."""


class _Route(APIRoute):
    """A route whose handler is given what `_Arguments` reads. Errors go to the middleware around the application."""

    any_query = False
    needs: Requirement = ADMIN_SERVICE
    """What the caller must have."""

    def __init__(self, path: str, endpoint: Handler, **described: Any) -> None:
        super().__init__(path, endpoint, **described)
        self._arguments = _Arguments(endpoint, any_query=self.any_query)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; one with another method is refused as any route refuses it."""
        if scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)
            return
        request = Request(scope, receive, send)
        response: Response = await self.endpoint(request, **self._arguments.read(request))
        await response(scope, receive, send)


_OPEN_PATHS = frozenset(("/openapi.json", "/static"))
"""Paths of routes that are not declared here and are open to everybody: the files of the documentation."""


def needs_of(route: BaseRoute) -> Requirement:
    """Rights that the caller of a route must have. A route that declares nothing needs an admin key."""
    if isinstance(route, _Route):
        return route.needs
    return OPEN if getattr(route, "path", None) in _OPEN_PATHS else ADMIN_SERVICE


class _OpenRoute(_Route):
    """The same, with unknown query parameters ignored."""

    any_query = True


class _Declared(NamedTuple):
    """One declared parameter."""

    argument: str
    """Its name in the handler's signature."""
    repeated: bool
    adapter: TypeAdapter[Any]


class _Arguments:
    """The declared parameters of a handler."""

    def __init__(self, handler: Handler, *, any_query: bool) -> None:
        self._any_query = any_query
        self._query: dict[str, _Declared] = {}
        self._required: set[str] = set()
        self._headers: dict[str, _Declared] = {}
        self._path: dict[str, _Declared] = {}
        hints = get_type_hints(handler, include_extras=True)
        for name, parameter in inspect.signature(handler).parameters.items():
            if get_origin(hints[name]) is not Annotated:
                continue  # the request
            kind, declaration, *_ = get_args(hints[name])
            declared = _Declared(name, get_origin(kind) is list, TypeAdapter(hints[name]))
            if isinstance(declaration, params.Header):
                self._headers[name.replace("_", "-")] = declared
            elif isinstance(declaration, params.Path):
                self._path[name] = declared
            else:
                self._query[name] = declared
                if parameter.default is inspect.Parameter.empty:
                    self._required.add(name)

    def read(self, request: Request) -> dict[str, Any]:
        """The handler's arguments. ParameterError for a value that cannot be used, for a parameter that is there twice
        but has one value, and for an unknown one: a misspelt one would be ignored, and `?stream=sensors` would send
        points to the wrong stream.
        """
        given = _query_of(request)
        if not (given.keys() <= self._query.keys() or self._any_query):
            raise self._unknown(request, min(given.keys() - self._query.keys()))
        if not self._required <= given.keys():
            name = min(self._required - given.keys())
            raise ParameterError(f"parameter {name} is missing; add ?{name}=... to the address")
        found: dict[str, Any] = {}
        for name, values in given.items():
            if (declared := self._query.get(name)) is None:
                continue
            if len(values) > 1 and not declared.repeated:
                raise ParameterError(f"parameter {name} is given {len(values)} times; give it once")
            _read_one(found, name, declared, values if declared.repeated else values[0])
        for name, declared in self._headers.items():
            if values := request.headers.getlist(name):
                if len(values) > 1:
                    raise ParameterError(f"header {name} is given {len(values)} times; give it once")
                _read_one(found, name, declared, values[0])
        for name, declared in self._path.items():
            _read_one(found, name, declared, request.path_params[name])
        return found

    def _unknown(self, request: Request, name: str) -> ParameterError:
        accepted = f"it accepts {', '.join(sorted(self._query))}" if self._query else "it accepts none"
        hint = "; name the stream in the path, /streams/{stream}/..." if name == "stream" else ""
        advice = did_you_mean(name, self._query)
        return ParameterError(f"{request.url.path} has no parameter {name[:80]!r}; {advice}{accepted}{hint}")


def _query_of(request: Request) -> dict[str, list[str]]:
    """The values of each query parameter, in order."""
    query: bytes = request.scope["query_string"]
    given: dict[str, list[str]] = {}
    if query:
        for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
            given.setdefault(name, []).append(value)
    return given


def _read_one(found: dict[str, Any], name: str, declared: _Declared, given: object) -> None:
    try:
        found[declared.argument] = declared.adapter.validate_python(given)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        message, advice = fault["msg"], spelling_advice(fault)
        raise ParameterError(f"{name} is {str(given)[:60]!r}: {message[0].lower()}{message[1:]}{advice}") from None
