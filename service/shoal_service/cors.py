"""CORS: which web pages of other origins may read answers. By default none may."""

from collections.abc import Sequence

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
REQUEST_HEADERS = (
    "Authorization",
    "api-key",
    "Content-Type",
    "Content-Encoding",
    "Idempotency-Key",
    "If-Match",
    "If-None-Match",
    "Last-Event-ID",
    "X-Request-Id",
)
ANSWER_HEADERS = ("ETag", "Idempotency-Replayed", "Location", "Retry-After", "WWW-Authenticate", "X-Request-Id")
PREFLIGHT_S = 600
"""Seconds for which a browser may remember an answer about another origin."""


def with_cors(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """Put CORS around an application, or return it as it is if there are no origins.

    It is outermost, because a browser asks first without a key. A page gets no cookies and no passwords of the browser
    along; it sends its key itself.
    """
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=list(origins),
        allow_methods=METHODS,
        allow_headers=REQUEST_HEADERS,
        expose_headers=ANSWER_HEADERS,
        max_age=PREFLIGHT_S,
    )
