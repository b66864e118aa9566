"""POST /refine and GET /refinements: batch inference over the window, and its results."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Path
from starlette.requests import Request
from starlette.responses import Response

from shoal_service.access import READ, WRITE
from shoal_service.errors import (
    IdempotencyMismatchError,
    NoPointsYetError,
    NotReadyError,
    NotRefinableError,
    OverloadedError,
    StreamGoneError,
    UnknownRefinementError,
)
from shoal_service.routes import docs
from shoal_service.routes.answers import json_answer, stream_head
from shoal_service.routes.endpoints import Endpoints
from shoal_service.routes.service import IdempotencyKeyHeader, service_of, stream_of
from shoal_service.streams import Refinement, Stream
from shoal_service.wire import check_idempotency_key, encode, json_text
from shoal_service.wire.models import RefineIn, RefinementOut, RefinementsOut, decode_refine

endpoints = Endpoints("refinement")

MAX_BODY_BYTES = 4096
_REPORTED = (
    "window_rows",
    "copies",
    "bound_before",
    "bound_after",
    "components_before",
    "components_after",
    "tail_mass",
    "rounds",
)


@endpoints.post(
    "/refine",
    WRITE,
    status_code=202,
    summary="Request a refinement",
    openapi_extra=docs.json_body(RefineIn, required=False),
    responses=docs.answers(
        docs.answer(202, RefinementOut, "The refinement is queued", ("Location",)),
        NoPointsYetError, NotRefinableError, OverloadedError, NotReadyError, IdempotencyMismatchError,
        StreamGoneError, *docs.JSON_BODY, *docs.STREAM,
    ),
)  # fmt: skip
async def refine(request: Request, idempotency_key: IdempotencyKeyHeader = None) -> Response:
    """Improve the mixture by batch inference over the window. The result is adopted if it raises the bound.

    The refinement runs beside the stream. `GET /refinements/{id}` shows its progress. Refinements also run without a
    request, unless the setting `refinement` of the stream is null.
    """
    service, name = service_of(request), stream_of(request)
    service.streams.known.refuse_when_stopping()
    if idempotency_key is not None:
        check_idempotency_key(idempotency_key)
    async with service.uploads.read(request, MAX_BODY_BYTES) as upload:
        asked = decode_refine(json_text(*upload, MAX_BODY_BYTES, optional=True))
    stream, refinement = await service.refinements.request(
        name, method=asked.method, window=asked.window, key=idempotency_key
    )
    path = request.url.path.removesuffix("refine") + f"refinements/{refinement.id}"
    return json_answer(encode(_out(stream, refinement)), 202, {"Location": path})


@endpoints.get(
    "/refinements",
    READ,
    summary="The newest refinements",
    responses=docs.answers(docs.answer(200, RefinementsOut, "Newest first"), *docs.STREAM),
)
async def recent(request: Request) -> Response:
    """The newest hundred refinements, including running and queued ones."""
    stream, found = await service_of(request).refinements.recent(stream_of(request))
    return json_answer(encode({**stream_head(stream), "refinements": [_row(one) for one in found]}))


@endpoints.get(
    "/refinements/{refinement}",
    READ,
    summary="Progress or result of a refinement",
    responses=docs.answers(docs.answer(200, RefinementOut, "The refinement"), UnknownRefinementError, *docs.STREAM),
)
async def one(
    request: Request,
    refinement: Annotated[str, Path(description="Its id.", examples=["6b1f0a52-53f6-4c06-9ee1-0f1d3c1c8d3a"])],
) -> Response:
    """The states `adopted`, `not-adopted` and `failed` are final. `reason` says why it failed or was not adopted.

    If the answer says `adopted`, the next read of the stream shows the result. The answer waits for that, at most a
    second.
    """
    stream, found = await service_of(request).refinements.find(stream_of(request), refinement)
    return json_answer(encode(_out(stream, found)))


def _out(stream: Stream, refinement: Refinement) -> dict[str, Any]:
    return {**stream_head(stream), **_row(refinement)}


def _row(refinement: Refinement) -> dict[str, Any]:
    created = datetime.fromtimestamp(refinement.created_at, UTC).isoformat().replace("+00:00", "Z")
    plain = {
        name: getattr(refinement, name)
        for name in ("id", "state", "method", "why", "window", "attempts", "progress", "seconds", "reason")
    }
    return {
        **plain,
        "created_at": created,
        "points_seen": refinement.base_offset,
        "adopted": None if refinement.open else refinement.state == "adopted",
        **{name: refinement.report.get(name) for name in _REPORTED},
    }
