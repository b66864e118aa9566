"""/sources: how far the sources of a stream are in its log, and the sources that the service runs itself."""

from typing import Annotated, Any, Literal

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from shoal_service.access import ADMIN, READ
from shoal_service.errors import (
    LimitError,
    ParameterError,
    UnknownSourceError,
)
from shoal_service.routes import docs
from shoal_service.routes.answers import json_answer, stream_head, time_text
from shoal_service.routes.endpoints import Endpoints
from shoal_service.routes.service import service_of, stream_of
from shoal_service.streams import SourceStatus, shown_settings
from shoal_service.wire import encode, json_text
from shoal_service.wire.models import (
    SourceChangeIn,
    SourceIn,
    SourceOut,
    SourcesOut,
    decode_source,
    decode_source_change,
)

endpoints = Endpoints("sources")

MAX_BODY_BYTES = 262_144

Name = Annotated[str, Path(description="Name of the source.", examples=["readings"])]


@endpoints.get(
    "/sources",
    READ,
    summary="The sources of a stream, and how far they are",
    responses=docs.answers(docs.answer(200, SourcesOut, "By name"), *docs.STREAM),
)
async def listed(request: Request) -> Response:
    """`sources`: the stored position of each partition of each source; a connector reads on from there. `configured`:
    the sources that the service runs itself. Secrets are never shown.
    """
    positions, stream, found = await service_of(request).sources.configured(stream_of(request))
    fields = stream_head(stream)
    held = [one._asdict() for one in positions]
    return json_answer(encode({**fields, "sources": held, "configured": [_shown(one) for one in found]}))


@endpoints.get(
    "/sources/{source}",
    READ,
    summary="One configured source",
    responses=docs.answers(docs.answer(200, SourceOut, "The source"), UnknownSourceError, *docs.STREAM),
)
async def one(request: Request, source: Name) -> Response:
    """A source that the service runs itself, whether it works, and how far it is. Secrets are never shown."""
    return json_answer(encode(_shown(await service_of(request).sources.one(stream_of(request), source))))


@endpoints.put(
    "/sources/{source}",
    ADMIN,
    summary="Create a source, or change it",
    openapi_extra=docs.json_body(SourceIn),
    responses=docs.answers(
        docs.answer(200, SourceOut, "The source is changed, and goes on from its position")
        | docs.answer(201, SourceOut, "The source is created"),
        LimitError,
        *docs.JSON_BODY,
        *docs.CHANGE,
    ),
)
async def put(request: Request, source: Name) -> Response:
    """Read a source for as long as it is defined and enabled, and store each record once. The process that learns the
    stream runs it, over restarts. The position is stored under the name of the source, like that of `shoal connect`.

    It needs an admin key, because it makes the server connect to other machines.
    """
    service = service_of(request)
    async with service.uploads.read(request, MAX_BODY_BYTES) as upload:
        kind, enabled, settings = decode_source(json_text(*upload, MAX_BODY_BYTES))
    found, created = await service.sources.put(
        stream_of(request), source, kind=kind, enabled=enabled, settings=settings
    )
    return json_answer(encode(_shown(found)), 201 if created else 200)


@endpoints.patch(
    "/sources/{source}",
    ADMIN,
    summary="Pause or resume a source",
    openapi_extra=docs.json_body(SourceChangeIn),
    responses=docs.answers(
        docs.answer(200, SourceOut, "The source"), UnknownSourceError, *docs.JSON_BODY, *docs.CHANGE
    ),
)
async def patch(request: Request, source: Name) -> Response:
    """Pause a source, or let it go on from its position. Its settings stay, with their secrets."""
    service = service_of(request)
    async with service.uploads.read(request, MAX_BODY_BYTES) as upload:
        enabled = decode_source_change(json_text(*upload, MAX_BODY_BYTES))
    return json_answer(encode(_shown(await service.sources.enable(stream_of(request), source, enabled))))


@endpoints.delete(
    "/sources/{source}",
    ADMIN,
    status_code=204,
    summary="Delete a source, or forget its positions",
    responses=docs.answers(docs.bare(204, "Done"), UnknownSourceError, *docs.CHANGE),
)
async def delete(
    request: Request,
    source: Name,
    partition: Annotated[str | None, Query(description="Forget only the position of this partition.")] = None,
    keep: Annotated[
        Literal["positions", "definition"] | None,
        Query(
            description="`positions`: only end the configured source, so that another connector may go on. "
            "`definition`: only forget the positions, so that it begins again."
        ),
    ] = None,
) -> Response:
    """Delete a configured source and forget how far it is. Its points stay. Without a configured source of this name,
    only its positions are forgotten, for example because its topic was deleted and made again.

    A connector that still runs is refused at its next batch, and a later one begins where its options say.
    """
    sources, stream = service_of(request).sources, stream_of(request)
    if partition is not None or keep == "definition":
        if keep == "positions":
            raise ParameterError("keep=positions forgets no position; leave out partition")
        await sources.forget(stream, source, partition)
    else:
        await sources.delete(stream, source, keep_positions=keep == "positions")
    return Response(status_code=204)


def _shown(found: SourceStatus) -> dict[str, Any]:
    source, state = found.source, found.state
    is_current = source.enabled and state.revision == source.revision
    return {
        "stream": found.stream.name,
        "incarnation": found.stream.record.incarnation,
        "name": source.name,
        "kind": source.kind,
        "enabled": source.enabled,
        "settings": shown_settings(source.kind, source.settings),
        "created_at": time_text(source.created_at),
        "state": {
            "state": "stopped" if not source.enabled else state.status if is_current else "starting",
            "error": state.error if is_current else None,
            "failed_at": time_text(state.failed_at),
            "failures": state.failures,
            "next_attempt_at": time_text(state.next_attempt_at) if is_current else None,
            "records": state.records,
            "skipped": state.skipped,
            "points": state.points,
            "lag_records": state.lag_records,
            "lag_s": state.lag_s,
            "last_stored_at": time_text(state.last_stored_at),
            "reported_at": time_text(state.reported_at),
        },
        "positions": [position._asdict() for position in found.positions],
    }
