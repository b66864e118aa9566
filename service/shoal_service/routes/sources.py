"""/sources: how far the sources of a stream are in its log."""

from typing import Annotated

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from shoal_service.access import ADMIN, READ
from shoal_service.errors import NotReadyError, ParameterError, StoreUnavailableError, UnknownSourceError
from shoal_service.routes import docs
from shoal_service.routes.answers import json_answer
from shoal_service.routes.endpoints import Endpoints
from shoal_service.routes.service import service_of, stream_of
from shoal_service.wire import encode
from shoal_service.wire.models import SourcesOut

endpoints = Endpoints("sources")


@endpoints.get(
    "/sources",
    READ,
    summary="How far the sources of a stream are",
    responses=docs.answers(docs.answer(200, SourcesOut, "By name"), StoreUnavailableError, *docs.STREAM),
)
async def listed(request: Request) -> Response:
    """The stored position of each partition of each source. A connector reads on from there."""
    stream, found = await service_of(request).sources.all(stream_of(request))
    fields = {"stream": stream.name, "incarnation": stream.record.incarnation}
    return json_answer(encode({**fields, "sources": [held._asdict() for held in found]}))


@endpoints.delete(
    "/sources/{source}",
    ADMIN,
    status_code=204,
    summary="Forget the positions of a source",
    responses=docs.answers(
        docs.bare(204, "The positions are forgotten"),
        UnknownSourceError, ParameterError, NotReadyError, StoreUnavailableError, *docs.STREAM,
    ),
)  # fmt: skip
async def delete(
    request: Request,
    source: Annotated[str, Path(description="Name of the source.", examples=["orders"])],
    partition: Annotated[str | None, Query(description="Only this partition.", examples=["3"])] = None,
) -> Response:
    """Forget how far a source is, for example because its topic was deleted and made again. Its points stay.
    A connector that still runs is refused at its next batch, and a later one begins where its options say.
    """
    await service_of(request).sources.forget(stream_of(request), source, partition)
    return Response(status_code=204)
