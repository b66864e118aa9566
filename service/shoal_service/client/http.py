"""Paths, query parameters and JSON answers, for all requests."""

from typing import Any
from urllib.parse import quote

import httpx
import msgspec

from shoal_service.client.errors import InvalidRequestError, ProtocolError
from shoal_service.client.flow import Session

STREAM_NAME_RULE = "1 to 64 of a-z, 0-9, _ and -, first a letter or digit"


def data_path(session: Session, rest: str) -> str:
    """Path of a data endpoint of the stream of the session."""
    return f"/{rest}" if session.stream is None else f"{stream_path(session.stream)}/{rest}"


def stream_path(name: str) -> str:
    """Path of a stream. The server checks the name."""
    return f"/streams/{name_segment('stream', name)}"


def name_segment(kind: str, name: str, rule: str = STREAM_NAME_RULE) -> str:
    """Write a name as one segment of a path. The server checks it, but for one that would be another path.

    Raises InvalidRequestError for an empty name and for one with a slash.
    """
    if not name or "/" in name:
        raise InvalidRequestError(f"{kind} name {name[:80]!r} is not valid; use {rule}")
    return segment(name)


def segment(text: str) -> str:
    """Write any text as one segment of a path. Dots are encoded too: the segment `..` would be another path."""
    return quote(text, safe="").replace(".", "%2E")


def given(**params: Any) -> dict[str, str]:
    """Query parameters without those that are None."""
    return {name: str(value) for name, value in params.items() if value is not None}


def json_of(response: httpx.Response, *fields: str) -> dict[str, Any]:
    """Read a JSON object from an answer. Raises ProtocolError if it is not one, or if one of the fields is missing."""
    try:
        body = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict) or not body.keys() >= set(fields):
        kind = response.headers.get("Content-Type", "nothing")
        raise ProtocolError(
            f"{response.request.method} {response.url} answered {kind}, not JSON of a shoal server; check the address",
            status=response.status_code,
        )
    return body


def json_body(value: Any) -> dict[str, Any]:
    """Headers and content of a request with a JSON body."""
    return {"headers": {"Content-Type": "application/json"}, "content": msgspec.json.encode(value)}
