"""GET /components: the components of a stream."""

from typing import Annotated, Literal

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from shoal.errors import UnknownComponentError
from shoal_service.access import READ
from shoal_service.routes import docs
from shoal_service.routes.answers import head_of, holds_already, not_modified, tagged
from shoal_service.routes.compute import ALWAYS_IN_THREAD
from shoal_service.routes.endpoints import Endpoints
from shoal_service.routes.service import MinOffset, Timeout, labelled_view, service_of
from shoal_service.streams import NO_LABEL, Labels, PublishedView, component_of, of_each, page_of
from shoal_service.wire import decode_cursor, encode, encode_components
from shoal_service.wire.models import ComponentOut, ComponentsOut

endpoints = Endpoints("components")

MAX_LIMIT = 10_000


@endpoints.get(
    "/components",
    READ,
    summary="The components of the stream, largest first",
    openapi_extra=docs.conditions(docs.IF_NONE_MATCH),
    responses=docs.answers(
        docs.answer(200, ComponentsOut, "A page of components", ("ETag",))
        | docs.NOT_MODIFIED,
        *docs.STREAM, *docs.READ,
    ),
)  # fmt: skip
async def components(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Largest number of components on a page.")] = 100,
    cursor: Annotated[str | None, Query(description="`next` of the previous page.")] = None,
    fields: Annotated[
        Literal["covariance"] | None, Query(description="`covariance`: also return the whole covariance matrices.")
    ] = None,
    min_offset: MinOffset = None,
    timeout: Timeout = None,
) -> Response:
    """Weights, masses, means and variances of the components. Ids are stable and never used again.

    A page with large matrices may have fewer than `limit` components. The last page is the one whose `next` is null.
    """
    service = service_of(request)
    after = None if cursor is None else decode_cursor(cursor)
    found = await labelled_view(request, min_offset, timeout)
    if holds_already(request, found.etag):
        return not_modified(found.etag)
    cost = _page_cost(found.view, limit, fields)
    body = await service.compute(cost, _page, found.view, limit, after, found.labels, covariance=fields is not None)
    return tagged(body, found.etag)


@endpoints.get(
    "/components/{component}",
    READ,
    summary="One component, live or retired",
    openapi_extra=docs.conditions(docs.IF_NONE_MATCH),
    responses=docs.answers(
        docs.answer(200, ComponentOut, "The component", ("ETag",))
        | docs.NOT_MODIFIED,
        UnknownComponentError, *docs.STREAM, *docs.READ,
    ),
)  # fmt: skip
async def one_component(
    request: Request,
    component: Annotated[int, Path(ge=0, lt=2**53, description="Its id.", examples=[3])],
    min_offset: MinOffset = None,
    timeout: Timeout = None,
) -> Response:
    """A component with its covariance, the retired components that are part of it (`lineage`), and the live components
    that have its points now (`successors`).

    A retired component keeps its last state. If there are very many, the longest retired ones lose their moments.
    """
    service, found = service_of(request), await labelled_view(request, min_offset, timeout)
    if holds_already(request, found.etag):
        return not_modified(found.etag)
    body = await service.compute(ALWAYS_IN_THREAD, component_bytes, found.view, component, found.labels)
    return tagged(body, found.etag)


def _page(
    view: PublishedView, limit: int, after: tuple[float, int] | None, labels: Labels, *, covariance: bool
) -> bytes:
    page, next_cursor = page_of(view, limit, after, covariance=covariance)
    shown = of_each(page.ids.tolist(), labels.shown(view))
    page = page._replace(label=[one.label for one in shown], note=[one.note for one in shown])
    return encode_components(
        head_of(view),
        points_seen=view.points_seen,
        status=view.status,
        feature_names=view.feature_names,
        new_weight=1.0 if view.snapshot is None else view.snapshot.new_weight,
        page=page,
        next_cursor=next_cursor,
    )


def _page_cost(view: PublishedView, limit: int, fields: str | None) -> int:
    if view.snapshot is None:
        return 0
    d = view.snapshot.location.size
    return 100 * min(limit, view.snapshot.n_components) * (d * d if fields else d)


def component_bytes(view: PublishedView, component: int, labels: Labels) -> bytes:
    """Write the answer of GET /components/{id}. Raises UnknownComponentError."""
    found = component_of(view, component)
    label = labels.shown(view).get(component, NO_LABEL)
    head = {**head_of(view)._asdict(), "feature_names": view.feature_names}
    return encode({**head, **found, **label._asdict()})
