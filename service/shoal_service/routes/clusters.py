"""GET /clusters: the components of a stream in groups."""

from typing import Annotated

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from shoal.errors import SettingError, UnknownComponentError
from shoal_service.access import READ
from shoal_service.errors import NotRefinableError
from shoal_service.routes import docs
from shoal_service.routes.answers import head_of, holds_already, not_modified, tagged
from shoal_service.routes.compute import ALWAYS_IN_THREAD
from shoal_service.routes.endpoints import Endpoints
from shoal_service.routes.service import MinOffset, Number, Resolution, Timeout, labelled_view, service_of
from shoal_service.streams import (
    NO_LABEL,
    STABILITY_POINTS,
    ClusterChoice,
    Labels,
    PublishedView,
    RecentPoints,
    check_window,
    cluster_of,
    clusters_of,
    stability_of_points,
)
from shoal_service.wire import encode
from shoal_service.wire.models import ClusterOut, ClustersOut

endpoints = Endpoints("components")


@endpoints.get(
    "/clusters",
    READ,
    summary="The components in groups, largest first",
    openapi_extra=docs.conditions(docs.IF_NONE_MATCH),
    responses=docs.answers(
        docs.answer(200, ClustersOut, "The clusters", ("ETag",))
        | docs.NOT_MODIFIED,
        SettingError, NotRefinableError, *docs.STREAM, *docs.READ,
    ),
)  # fmt: skip
async def clusters(
    request: Request,
    n: Number = None,
    resolution: Resolution = None,
    stability: Annotated[
        bool, Query(description="Also measure whether the clusters would come back, on the window.", examples=[True])
    ] = False,
    min_offset: MinOffset = None,
    timeout: Timeout = None,
) -> Response:
    """Several components may cover one group of the data. Clusters bring them together, in a tree by their places.

    Without `n` and `resolution` the data choose the number; `rule` says how. `stability=true` learns every second of
    the newest points of the window, at most 10,000, twice, and compares the clusters. A stream without a window has
    none (409).
    """
    service, found = service_of(request), await labelled_view(request, min_offset, timeout)
    if holds_already(request, found.etag):
        return not_modified(found.etag)
    choice, rows = ClusterChoice(n, resolution), None
    if stability:
        check_window(found.view)
        rows = await service.recent_points.newest(found.view, STABILITY_POINTS, 0, service.wait_s(timeout))
    body = await service.compute(ALWAYS_IN_THREAD, _all, found.view, choice, found.labels, rows)
    return tagged(body, found.etag)


@endpoints.get(
    "/clusters/{cluster}",
    READ,
    summary="One cluster",
    openapi_extra=docs.conditions(docs.IF_NONE_MATCH),
    responses=docs.answers(
        docs.answer(200, ClusterOut, "The cluster", ("ETag",))
        | docs.NOT_MODIFIED,
        SettingError, UnknownComponentError, *docs.STREAM, *docs.READ,
    ),
)  # fmt: skip
async def one_cluster(
    request: Request,
    cluster: Annotated[int, Path(ge=0, lt=2**53, description="Its id.", examples=[3])],
    n: Number = None,
    resolution: Resolution = None,
    min_offset: MinOffset = None,
    timeout: Timeout = None,
) -> Response:
    """A cluster of the same choice as in `GET /clusters`, with the mean and variance of its points."""
    service, found = service_of(request), await labelled_view(request, min_offset, timeout)
    if holds_already(request, found.etag):
        return not_modified(found.etag)
    choice = ClusterChoice(n, resolution)
    body = await service.compute(ALWAYS_IN_THREAD, _one, found.view, cluster, choice, found.labels)
    return tagged(body, found.etag)


def _all(view: PublishedView, choice: ClusterChoice, labels: Labels, points: RecentPoints | None) -> bytes:
    head = {**head_of(view)._asdict(), "points_seen": view.points_seen, "status": view.status}
    found, shown = clusters_of(view, choice), labels.shown(view)
    rows = [{**row, "label": shown.get(row["id"], NO_LABEL).label} for row in found["clusters"]]
    stable = None if points is None else stability_of_points(view, points.x, choice)
    return encode({**head, **found, "clusters": rows, "stability": stable})


def _one(view: PublishedView, cluster: int, choice: ClusterChoice, labels: Labels) -> bytes:
    head = {**head_of(view)._asdict(), "feature_names": view.feature_names}
    found = cluster_of(view, cluster, choice)
    return encode({**head, **found, "label": labels.shown(view).get(cluster, NO_LABEL).label})
