"""GET /sample and POST /projection: what a picture of a stream is drawn from."""

from typing import Annotated, Any

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from shoal.errors import SettingError, ShapeError
from shoal_service.access import READ
from shoal_service.errors import (
    StoreUnavailableError,
)
from shoal_service.routes import docs
from shoal_service.routes.answers import head_of, json_answer
from shoal_service.routes.compute import ALWAYS_IN_THREAD
from shoal_service.routes.endpoints import Endpoints
from shoal_service.routes.service import MinOffset, Timeout, service_of, stream_of
from shoal_service.streams import (
    MOST_POINTS,
    Labels,
    PlaneChoice,
    Projected,
    PublishedView,
    RecentPoints,
    of_each,
    projected,
    texts_of,
)
from shoal_service.wire import encode, first_points, json_text
from shoal_service.wire.models import ProjectionIn, ProjectionOut, SampleOut, decode_projection

endpoints = Endpoints("pictures")

MAX_BODY_BYTES = 4 << 20
"""Of a plane in some ten thousand features."""


@endpoints.get(
    "/sample",
    READ,
    summary="The newest points, and what the mixture says of them today",
    responses=docs.answers(
        docs.answer(200, SampleOut, "Points, in the order of the log"),
        *docs.STREAM, *docs.READ,
    ),
)  # fmt: skip
async def sample(
    request: Request,
    n: Annotated[int, Query(ge=1, le=MOST_POINTS, description="Largest number of points.")] = 1_000,
    after: Annotated[int, Query(ge=0, le=2**53, description="Only points that come after this log offset.")] = 0,
    min_offset: MinOffset = None,
    timeout: Timeout = None,
) -> Response:
    """The newest points that the stream has learnt and the log still holds: those of the window at least.

    Each comes with its component of today, which may be another one than the one that it was learnt in.
    """
    service = service_of(request)
    wait_s = service.wait_s(timeout)
    view = await service.streams.view(stream_of(request), min_offset=min_offset, timeout_s=wait_s)
    found = await service.recent_points.newest(view, n, after, wait_s)
    labels = await service.streams.shown_labels(stream_of(request))
    texts = texts_of(sorted(set(found.learnt["component"].tolist())), labels) if labels else {}
    named = {"labels": texts} if texts else {}
    points = first_points(found.x, len(found.keys))
    return json_answer(encode({**head_of(view)._asdict(), **named, "points": points, **_said(found)}))


@endpoints.post(
    "/projection",
    READ,
    summary="The mixture and recent points in a plane",
    openapi_extra=docs.json_body(ProjectionIn, required=False),
    responses=docs.answers(
        docs.answer(200, ProjectionOut, "Coordinates"),
        ShapeError, SettingError, StoreUnavailableError,
        *docs.JSON_BODY, *docs.STREAM, *docs.READ,
    ),
)  # fmt: skip
async def projection(request: Request, min_offset: MinOffset = None, timeout: Timeout = None) -> Response:
    """Components as ellipses and points as dots, in two coordinates.

    Without a plane, the answer chooses the one in which the components differ most, and names it. Send it along the
    next time, so that the picture stays where it is.
    """
    service = service_of(request)
    wait_s = service.wait_s(timeout)
    async with service.uploads.read(request, MAX_BODY_BYTES) as upload:
        asked = decode_projection(json_text(*upload, MAX_BODY_BYTES, optional=True))
    view = await service.streams.view(stream_of(request), min_offset=min_offset, timeout_s=wait_s)
    features = None if asked.features is None else (asked.features[0], asked.features[1])
    plane = PlaneChoice(asked.origin, asked.axes, features)
    found = await service.compute(ALWAYS_IN_THREAD, projected, view, plane)
    points = None
    if found is not None and found.plane is not None and asked.n:
        points = await service.recent_points.newest(view, asked.n, asked.after, wait_s)
    labels = await service.streams.labels(stream_of(request))
    return json_answer(await service.compute(ALWAYS_IN_THREAD, _picture, view, found, points, labels))


def _said(points: RecentPoints) -> dict[str, Any]:
    return {
        "components": points.learnt["component"],
        "novelty": points.learnt["novelty"],
        "log_density": points.learnt["log_density"],
        "log_offsets": points.log_offset,
        "keys": points.keys,
    }


def _picture(view: PublishedView, found: Projected | None, points: RecentPoints | None, labels: Labels) -> bytes:
    answer: dict[str, Any] = {
        **head_of(view)._asdict(),
        "points_seen": view.points_seen,
        "status": view.status,
        "new_weight": 1.0 if view.snapshot is None else view.snapshot.new_weight,
    }
    answer |= {"origin": None, "axes": None, "components": None, "points": None}
    if found is None or view.snapshot is None:
        return encode(answer)
    held, rows = view.snapshot, found.rows
    (x, y), covariances = found.means.T, found.covariances
    answer["components"] = {
        "ids": held.ids[rows],
        "label": [one.label for one in of_each(held.ids[rows].tolist(), labels.shown(view))],
        "weight": held.weights[rows],
        "mass": held.masses[rows],
        "born_at": held.born_at[rows],
        "last_seen_at": held.last_seen_at[rows],
        "x": x,
        "y": y,
        "xx": covariances[:, 0, 0],
        "xy": covariances[:, 0, 1],
        "yy": covariances[:, 1, 1],
    }
    if found.plane is not None:
        answer |= found.plane._asdict()
    if found.plane is not None and points is not None:
        px, py = found.plane.coordinates(points.x).T
        answer["points"] = {"x": px, "y": py, **_said(points)}
    return encode(answer)
