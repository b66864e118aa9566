"""Spans of requests, appends, applied entries and refinements, for OpenTelemetry.

shoal uses the API of OpenTelemetry alone (extra `otel`) and configures nothing. The program that starts it gives the
tracer provider, for example `opentelemetry-instrument`. Without the API or without a provider no span is made.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

try:
    from opentelemetry import propagate, trace
except ImportError:
    _INSTALLED = False
else:
    _INSTALLED = True

SCOPE = "shoal"
"""Name of the instrumentation scope of all spans."""

_NOTHING: AbstractContextManager[None] = nullcontext()


def tracing() -> bool:
    """Whether spans are made: the API is installed, and the program has set a tracer provider."""
    return _INSTALLED and type(trace.get_tracer_provider()) is not trace.ProxyTracerProvider


def span(name: str, attributes: Mapping[str, Any]) -> AbstractContextManager[Any]:
    """Return the span of a piece of work, as a context. An exception that leaves it is recorded, with status error.

    `attributes` are texts and numbers. The value of the context is the span, or None where no spans are made.
    """
    if not tracing():
        return _NOTHING
    return trace.get_tracer(SCOPE).start_as_current_span(name, attributes=attributes)


@contextmanager
def server_span(method: str, headers: Mapping[str, str]) -> Iterator[Any]:
    """Make the span of a request. It continues the trace of the client where the headers name one (`traceparent`)."""
    parent = propagate.extract(headers)
    kind = trace.SpanKind.SERVER
    attributes = {"http.request.method": method}
    with trace.get_tracer(SCOPE).start_as_current_span(method, parent, kind=kind, attributes=attributes) as made:
        yield made


def end_request(made: Any, method: str, route: str, status: int) -> None:
    """Write the route and the status of the answer into the span of a request. A status over 499 is an error."""
    made.update_name(f"{method} {route}")
    made.set_attribute("http.route", route)
    made.set_attribute("http.response.status_code", status)
    if status >= 500:
        made.set_status(trace.StatusCode.ERROR)
