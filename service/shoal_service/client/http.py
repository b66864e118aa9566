"""Small pieces that the verbs share: paths, query parameters, JSON answers."""

from typing import Any
from urllib.parse import quote

import httpx

from shoal_service.client.errors import ProtocolError
from shoal_service.client.flow import Session


def data_path(session: Session, rest: str) -> str:
    """Where a data endpoint of the session's stream lives."""
    return f"/{rest}" if session.stream is None else f"{stream_path(session.stream)}/{rest}"


def stream_path(name: str) -> str:
    """Where a stream lives; the server judges the name."""
    return f"/streams/{quote(name, safe='')}"


def given(**params: Any) -> dict[str, str]:
    """Query parameters, without those that are None."""
    return {name: str(value) for name, value in params.items() if value is not None}


def json_of(response: httpx.Response, *fields: str) -> dict[str, Any]:
    """The answer's JSON object; ProtocolError when it is none, or lacks one of the fields."""
    try:
        body = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict) or not body.keys() >= set(fields):
        kind = response.headers.get("Content-Type", "nothing")
        raise ProtocolError(
            f"{response.request.method} {response.url} answered {kind}, not the JSON of a shoal server; is it one?",
            status=response.status_code,
        )
    return body
