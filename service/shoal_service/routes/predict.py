"""GET and POST /predict: component, density and novelty of points, without learning from them."""

from collections.abc import Mapping
from typing import Annotated

import numpy as np
from fastapi import Query
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from shoal.errors import SettingError
from shoal_service.access import READ
from shoal_service.errors import LimitError, NoPointsYetError, OverloadedError
from shoal_service.routes import docs
from shoal_service.routes.answers import head_of, json_answer, learnt_columns
from shoal_service.routes.compute import ALWAYS_IN_THREAD
from shoal_service.routes.endpoints import Endpoints
from shoal_service.routes.key_limits import KeyLimits
from shoal_service.routes.service import (
    Level,
    MinOffset,
    Number,
    Resolution,
    Service,
    Timeout,
    choice_of,
    service_of,
    stream_of,
)
from shoal_service.streams import (
    ClusterChoice,
    Label,
    PublishedView,
    as_learnt,
    cluster_ids_of,
    predictions_of,
    scores_of,
    texts_of,
)
from shoal_service.wire import (
    Points,
    encode,
    encode_predictions,
    errors_naming_features,
    named_components,
    parse_points_query,
)
from shoal_service.wire.models import PredictOut, ScoreOut

endpoints = Endpoints("points")

AskedLevel = Annotated[
    Level, Query(description="`cluster`: also name the cluster of each point; `n` and `resolution` as in /clusters.")
]


@endpoints.get(
    "/predict",
    READ,
    summary="Predict a few points",
    responses=docs.answers(
        docs.answer(200, PredictOut, "One prediction per point"),
        NoPointsYetError, SettingError, *docs.BODY, *docs.STREAM, *docs.READ,
    ),
)  # fmt: skip
async def predict_few(
    request: Request,
    x: Annotated[
        list[str],
        Query(
            description="A point: numbers separated by commas. Repeat `x` for more points. A stream with the setting "
            "`missing: marginal` takes an empty text, `nan` or `null` for a missing value. In a column of categories, "
            "what is no number is a text.",
            examples=[["1.2,3.4"]],
        ),
    ],
    level: AskedLevel = "component",
    n: Number = None,
    resolution: Resolution = None,
    min_offset: MinOffset = None,
    timeout: Timeout = None,
) -> Response:
    """Predict up to 100 points. Each answer has the five largest responsibilities of at least 0.001."""
    service, choice = service_of(request), choice_of(level, n, resolution)
    form = await service.streams.point_form(stream_of(request))
    limits = replace(service.limits, holes=form.holes, texts=form.texts)
    with errors_naming_features(form.names):
        points = parse_points_query(x, limits, max_points=service.settings.max_predict_get)
    KeyLimits(request).count_points(points.n_points)
    return await _predict(service, request, points, choice, min_offset, timeout)


@endpoints.post(
    "/predict",
    READ,
    summary="Predict many points",
    openapi_extra=docs.points("Points to predict"),
    responses=docs.answers(
        docs.answer(200, PredictOut, "One prediction per point, in order"),
        NoPointsYetError, SettingError, OverloadedError, *docs.BODY, *docs.STREAM, *docs.READ,
    ),
)  # fmt: skip
async def predict_many(
    request: Request,
    level: AskedLevel = "component",
    n: Number = None,
    resolution: Resolution = None,
    min_offset: MinOffset = None,
    timeout: Timeout = None,
) -> Response:
    """Predict many points, in any format that /ingest accepts."""
    service, choice = service_of(request), choice_of(level, n, resolution)
    points = await _posted(service, request)
    return await _predict(service, request, points, choice, min_offset, timeout)


@endpoints.post(
    "/score",
    READ,
    summary="Score points without learning them",
    openapi_extra=docs.points("Points to score"),
    responses=docs.answers(
        docs.answer(200, ScoreOut, "One score per point, in order"),
        NoPointsYetError, OverloadedError, *docs.BODY, *docs.STREAM, *docs.READ,
    ),
)  # fmt: skip
async def score(request: Request, min_offset: MinOffset = None, timeout: Timeout = None) -> Response:
    """Answer what `POST /ingest?wait=applied` would answer for points, without learning them.

    That is component, novelty, log density, and whether a point would begin a component. A batch that is learnt changes
    the stream from point to point; here every point meets the same state. A half-life ages the stream before it learns
    a later point, and not here.
    """
    service = service_of(request)
    wait_s = service.wait_s(timeout)
    points = await _posted(service, request)
    view = await service.streams.view(stream_of(request), min_offset=min_offset, timeout_s=wait_s)
    labels = await service.streams.shown_labels(stream_of(request))
    return json_answer(await service.compute(_cost(view, points), _scores, view, points, labels))


def _scores(view: PublishedView, points: Points, labels: Mapping[int, Label]) -> bytes:
    x = as_learnt(points, view.settings, view.stream).x
    return encode({**head_of(view)._asdict(), **learnt_columns(scores_of(view, x), labels)})


async def _posted(service: Service, request: Request) -> Points:
    """The points of a body. Raises as `Decoder.decode`, and LimitError for more than a prediction may have."""
    KeyLimits(request).check_points()
    async with service.uploads.read(request, service.limits.max_body_bytes) as upload:
        body, kind, encoding = upload
        form = await service.streams.point_form(stream_of(request))
        points = await service.decoder.decode(body, kind, content_encoding=encoding, **form._asdict())
    most = service.settings.max_predict_rows
    if points.n_points > most:
        raise LimitError(
            f"the body holds {points.n_points} points, the limit for predictions is {most}; send smaller batches"
        )
    KeyLimits(request).count_points(points.n_points)
    return points


async def _predict(
    service: Service,
    request: Request,
    points: Points,
    choice: ClusterChoice | None,
    min_offset: int | None,
    timeout: float | None,
) -> Response:
    view = await service.streams.view(stream_of(request), min_offset=min_offset, timeout_s=service.wait_s(timeout))
    cost = ALWAYS_IN_THREAD if choice is not None else _cost(view, points)
    labels = await service.streams.shown_labels(stream_of(request))
    return json_answer(await service.compute(cost, _predictions, view, points, choice, labels))


def _predictions(
    view: PublishedView, points: Points, choice: ClusterChoice | None, labels: Mapping[int, Label]
) -> bytes:
    found = predictions_of(view, as_learnt(points, view.settings, view.stream).x)
    if choice is not None:
        found = found._replace(cluster=np.array(cluster_ids_of(view, found.component, choice)))
    return encode_predictions(head_of(view), found, texts_of(named_components(found), labels) if labels else None)


def _cost(view: PublishedView, points: Points) -> int:
    n_components = 0 if view.snapshot is None else view.snapshot.n_components
    return points.n_points * (1_000 + (n_components + 1) * points.n_features**2)
