"""PATCH /components/{id}: a label and a note for a component."""

from typing import Annotated

from fastapi import Path
from starlette.requests import Request
from starlette.responses import Response

from shoal.errors import UnknownComponentError
from shoal_service.access import WRITE_AUDITED
from shoal_service.errors import (
    LimitError,
    StreamGoneError,
)
from shoal_service.routes import docs
from shoal_service.routes.answers import json_answer
from shoal_service.routes.components import component_bytes
from shoal_service.routes.compute import ALWAYS_IN_THREAD
from shoal_service.routes.endpoints import Endpoints
from shoal_service.routes.service import Timeout, service_of, stream_of
from shoal_service.streams import component_of
from shoal_service.wire import json_text
from shoal_service.wire.models import ComponentOut, LabelIn, decode_label

endpoints = Endpoints("components")

MAX_BODY_BYTES = 32_768
"""Largest body: a note may be written with six bytes for each of its bytes."""


@endpoints.patch(
    "/components/{component}",
    WRITE_AUDITED,
    summary="Give a component a label",
    openapi_extra=docs.json_body(LabelIn),
    responses=docs.answers(
        docs.answer(200, ComponentOut, "The component with its label"),
        UnknownComponentError, LimitError, *docs.JSON_BODY,
        StreamGoneError, *docs.STREAM, *docs.READ,
    ),
)  # fmt: skip
async def label(
    request: Request,
    component: Annotated[int, Path(ge=0, lt=2**53, description="Its id.", examples=[3])],
    timeout: Timeout = None,
) -> Response:
    """Say in words what a component is. The label is in every answer and event that shows the component.

    Where the component is merged into another one or replaced by a refinement, its successor gets the label, unless it
    has its own. Every process of a fleet shows it within a second.
    """
    service, name = service_of(request), stream_of(request)
    wait_s = service.wait_s(timeout)
    async with service.uploads.read(request, MAX_BODY_BYTES) as upload:
        changes = decode_label(json_text(*upload, MAX_BODY_BYTES))
    view = await service.streams.view(name, min_offset=None, timeout_s=wait_s)
    await service.compute(ALWAYS_IN_THREAD, component_of, view, component)  # raises for an unknown id
    await service.streams.set_label(name, view, component, changes)
    labels = await service.streams.labels(name)
    return json_answer(await service.compute(ALWAYS_IN_THREAD, component_bytes, view, component, labels))
