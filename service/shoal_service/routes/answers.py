"""Responses: JSON bytes, entity tags, problems."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from shoal_service.problems import Problem
from shoal_service.streams import Label, LearntRows, PublishedView, Stream, texts_of
from shoal_service.wire import Head

JSON = "application/json"
HEADERS_ONLY = "shoal.headers_only"
"""Name in the scope of a request whose answer has no content, a HEAD."""


def json_answer(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Answer with JSON bytes."""
    return Response(body, status, headers=headers or None, media_type=JSON)


def time_text(unix_s: float | None) -> str | None:
    """Write a time as RFC 3339, in UTC, to the millisecond. None where there is none."""
    if unix_s is None:
        return None
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def head_of(view: PublishedView) -> Head:
    """First fields of every answer about a stream."""
    return Head(view.stream, view.incarnation, view.log_offset)


def stream_head(stream: Stream) -> dict[str, Any]:
    """First fields of an answer about a stream that shows no view."""
    return {"stream": stream.name, "incarnation": stream.record.incarnation}


def learnt_columns(rows: LearntRows, labels: Mapping[int, Label]) -> dict[str, Any]:
    """The rows as an answer shows them: one array for each field. With labels of their components, by id, if any."""
    texts = texts_of(sorted(set(rows["component"].tolist())), labels) if labels else {}
    return ({"labels": texts} if texts else {}) | {
        "components": rows["component"],
        "novelty": rows["novelty"],
        "log_density": rows["log_density"],
        "born": rows["born"],
    }


def tagged(body: bytes, etag: str, media_type: str = JSON, headers: Mapping[str, str] | None = None) -> Response:
    """Answer with an entity tag, so that the client can ask whether it has changed."""
    return Response(body, headers={**_tag(etag), **(headers or {})}, media_type=media_type)


def not_modified(etag: str) -> Response:
    """304: the client has the current state."""
    return Response(status_code=304, headers=_tag(etag))


def problem_response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """Answer with an error as problem+json."""
    return Response(problem.body(), problem.status, headers={**problem.headers(), **(headers or {})})


def holds_already(request: Request, etag: str) -> bool:
    """Whether If-None-Match names this tag (weak comparison, RFC 9110, 13.1.2)."""
    return any(tag.removeprefix("W/") in (etag, "*") for tag in _tags(request.headers.getlist("if-none-match")))


def may_change(request: Request, begins: str) -> bool:
    """Whether If-Match is absent or names a tag that begins so (RFC 9110, 13.1.1: a weak tag never does)."""
    wanted = request.headers.getlist("if-match")
    return not wanted or any(tag == "*" or tag.startswith(begins) for tag in _tags(wanted))


def excludes(request: Request, begins: str) -> bool:
    """Whether If-None-Match names a tag that begins so, or any."""
    tags = _tags(request.headers.getlist("if-none-match"))
    return any(tag == "*" or tag.removeprefix("W/").startswith(begins) for tag in tags)


def _tags(lines: list[str]) -> list[str]:
    """All tags of a header, which may have several lines (RFC 9110, 5.3)."""
    return [tag.strip() for tag in ",".join(lines).split(",")]


def _tag(etag: str) -> dict[str, str]:
    return {"ETag": etag, "Cache-Control": "no-cache"}
