"""/healthz, /readyz and /metrics, for operators and their monitoring."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from shoal_service import __version__
from shoal_service.access import OPEN, READ_SERVICE
from shoal_service.errors import NotReadyError
from shoal_service.metrics import MEDIA_TYPE
from shoal_service.routes import docs
from shoal_service.routes.answers import json_answer
from shoal_service.routes.endpoints import Endpoints
from shoal_service.routes.service import service_of
from shoal_service.wire import encode
from shoal_service.wire.models import HealthOut, ReadyOut

endpoints = Endpoints("operations", any_query=True)

_METRICS_EXAMPLE = '# TYPE shoal_points_ingested_total counter\nshoal_points_ingested_total{stream="default"} 2000.0\n'


@endpoints.get(
    "/healthz",
    OPEN,
    summary="Is the process alive?",
    responses=docs.answers(docs.answer(200, HealthOut, "The process is alive"), *docs.HOST),
)
async def healthz(request: Request) -> Response:
    """Always 200. A process that does not answer should be restarted."""
    return json_answer(encode({"status": "ok", "version": __version__}))


@endpoints.get(
    "/readyz",
    OPEN,
    summary="Does the service accept points?",
    responses=docs.answers(
        docs.answer(200, ReadyOut, "The service is ready"),
        NotReadyError, *docs.STORE,
    ),
)  # fmt: skip
async def readyz(request: Request) -> Response:
    """503 while the service starts or stops, or while the store accepts no writes.

    If the learner of a stream has stopped with an error, /streams shows the status `failed`, and /metrics shows
    `shoal_learner_halted`.
    """
    service = service_of(request)
    service.warmth.check()
    service.runtime.check()
    await asyncio.to_thread(service.store.check)
    streams = len(service.runtime.learners if service.settings.role == "learner" else service.streams.known.loaded)
    return json_answer(encode({"status": "ready", "store": service.settings.store, "streams": streams}))


@endpoints.get(
    "/metrics",
    READ_SERVICE,
    summary="Prometheus metrics",
    response_class=Response,
    responses=docs.answers(docs.text(200, MEDIA_TYPE, _METRICS_EXAMPLE, "Metrics in the text format"), *docs.STORE),
)
async def metrics(request: Request) -> Response:
    """Points accepted and learnt, lag, components, births, merges, prunes, dead letters, latencies, checkpoints."""
    service = service_of(request)
    service.request_log.write()  # so that earlier requests are counted
    return Response(await asyncio.to_thread(service.metrics.render), media_type=MEDIA_TYPE)
