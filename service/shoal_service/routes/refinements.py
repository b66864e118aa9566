"""POST /refine, GET /refinements: batch inference over the window, and how it went."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Path
from starlette.requests import Request
from starlette.responses import Response

from shoal_service.errors import (
    BodyTooLargeError,
    MalformedBodyError,
    NoPointsYetError,
    NotReadyError,
    NotRefinableError,
    OverloadedError,
    StoreUnavailableError,
    StreamGoneError,
    UnknownRefinementError,
    UnsupportedMediaTypeError,
)
from shoal_service.routes import docs
from shoal_service.routes.answers import json_answer
from shoal_service.routes.endpoints import Endpoints
from shoal_service.routes.idempotency import IdempotencyKeyHeader
from shoal_service.routes.service import service_of, stream_of
from shoal_service.streams import Refinement, Stream
from shoal_service.wire import check_idempotency_key, encode
from shoal_service.wire.models import RefineIn, RefinementOut, RefinementsOut, decode_refine

endpoints = Endpoints("refinement")

MAX_BODY_BYTES = 4096
_REPORTED = (
    "window_rows",
    "bound_before",
    "bound_after",
    "components_before",
    "components_after",
    "tail_mass",
    "rounds",
)


@endpoints.post(
    "/refine",
    status_code=202,
    summary="Ask for a refinement",
    openapi_extra=docs.json_body(RefineIn, required=False),
    responses=docs.answers(
        docs.answer(202, RefinementOut, "It waits its turn", ("Location",)),
        NoPointsYetError, NotRefinableError, OverloadedError, NotReadyError, StoreUnavailableError, StreamGoneError,
        MalformedBodyError, BodyTooLargeError, UnsupportedMediaTypeError, *docs.STREAM,
    ),
)  # fmt: skip
async def refine(request: Request, idempotency_key: IdempotencyKeyHeader = None) -> Response:
    """Batch inference over the points of the window puts the live mixture right, if that raises the bound.

    It runs beside the stream; the answer names it, and `GET /refinements/{id}` tells how it goes. Refinements are made
    without being asked for too, unless the stream's setting `refine` is null.
    """
    service, name = service_of(request), stream_of(request)
    service.streams.check()
    if idempotency_key is not None:
        check_idempotency_key(idempotency_key)
    async with service.uploads.read(request, MAX_BODY_BYTES) as upload:
        asked = decode_refine(upload.body, upload.content_type)
    stream, refinement = await service.refinements.ask(
        name, method=asked.method, window=asked.window, key=idempotency_key
    )
    path = request.url.path.removesuffix("refine") + f"refinements/{refinement.id}"
    return json_answer(encode(_out(stream, refinement)), 202, {"Location": path})


@endpoints.get(
    "/refinements",
    summary="The newest refinements",
    responses=docs.answers(docs.answer(200, RefinementsOut, "Newest first"), *docs.STREAM),
)
async def recent(request: Request) -> Response:
    """Up to a hundred of them, those that run or wait included."""
    stream, found = await service_of(request).refinements.recent(stream_of(request))
    return json_answer(encode({**_head(stream), "refinements": [_row(one) for one in found]}))


@endpoints.get(
    "/refinements/{refinement}",
    summary="How a refinement goes, or went",
    responses=docs.answers(docs.answer(200, RefinementOut, "The refinement"), UnknownRefinementError, *docs.STREAM),
)
async def one(
    request: Request,
    refinement: Annotated[str, Path(description="Its id.", examples=["6b1f0a52-53f6-4c06-9ee1-0f1d3c1c8d3a"])],
) -> Response:
    """`adopted`, `not-adopted` and `failed` are final; `reason` says why it was not adopted, or failed.

    Who is told of an adoption is shown it by the next read here: the answer waits for that, a second at most.
    """
    stream, found = await service_of(request).refinements.find(stream_of(request), refinement)
    return json_answer(encode(_out(stream, found)))


def _head(stream: Stream) -> dict[str, Any]:
    return {"stream": stream.name, "incarnation": stream.record.incarnation}


def _out(stream: Stream, refinement: Refinement) -> dict[str, Any]:
    return {**_head(stream), **_row(refinement)}


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
