"""Application: `create_app` builds all parts, `serve` runs them. Importing this module starts nothing."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp

from shoal.errors import SettingError
from shoal_service import __version__
from shoal_service.access import ANYONE, AccessControl, admin_key_of
from shoal_service.blas import pin_blas
from shoal_service.cors import with_cors
from shoal_service.errors import StoreUnavailableError
from shoal_service.logs import bridge, make_log
from shoal_service.metrics import Metrics
from shoal_service.middleware import RequestMiddleware
from shoal_service.request_log import RequestLog
from shoal_service.routes import (
    clusters,
    components,
    dead_letters,
    docs,
    events,
    health,
    ingest,
    keys,
    labels,
    pages,
    pictures,
    predict,
    records,
    refinements,
    snapshot,
    sources,
    streams,
    webhooks,
)
from shoal_service.routes.authorization import AuthorizedRouter
from shoal_service.routes.compute import Compute
from shoal_service.routes.service import Service
from shoal_service.routes.uploads import Uploads
from shoal_service.routes.warming import Warmth
from shoal_service.server import ChildServer, check_exposure, run, warn_if_open
from shoal_service.settings import Settings, is_exposed, unknown_variables
from shoal_service.store import SqliteStore, Store
from shoal_service.streams import Runtime
from shoal_service.tls import tls_options
from shoal_service.wire import Decoder, WireLimits

DRAIN_SHARE = 0.65
"""Share of `shutdown_s` for the learners. The running requests come before (`server.GRACE_SHARE`)."""
UPLOADS_AT_ONCE, LEAST_UPLOADS_BYTES = 4, 64 << 20
"""Budget of large bodies: this many of the largest size, but at least this many bytes."""

_DESCRIPTION = """Send points, and read at any time which components the stream has and which points are new.

A path without a stream name uses the stream `default`, which its first points create. Every data endpoint also exists
under `/streams/{stream}`.
Errors are `application/problem+json` with a stable `type`, and `retryable` says whether a retry can help.
"""


class _Application(FastAPI):
    """FastAPI with one middleware, which also answers errors. Features that need its own middleware are not used."""

    def build_middleware_stack(self) -> ASGIApp:
        """Put the middleware around the router."""
        service: Service = self.state.service
        open_paths = ("/metrics",) if service.settings.open_metrics else ()
        served: ASGIApp = RequestMiddleware(
            AuthorizedRouter(
                self.router, service.access.caller, open_paths=open_paths, origins=service.settings.cors_origins
            ),
            allowed_hosts=service.settings.hosts_allowed,
            metrics=service.metrics,
            request_log=service.request_log,
            log=service.log,
        )
        return with_cors(served, service.settings.cors_origins)


class _ChildApplication(FastAPI):
    """What the children of this process may ask for, without a key: their socket is open to them alone."""

    def build_middleware_stack(self) -> ASGIApp:
        """Put the middleware around the router."""
        service: Service = self.state.service
        return RequestMiddleware(
            AuthorizedRouter(self.router, lambda secret: ANYONE),
            allowed_hosts=("localhost",),
            metrics=service.metrics,
            request_log=service.request_log,
            log=service.log,
        )


def create_app(settings: Settings, *, store: Store | None = None, log: Any = None) -> FastAPI:
    """Build the service and its application. The store is opened unless given, and closed at the end of the lifespan.

    Threads and child processes start with the lifespan. Raises StoreError if the store cannot be opened.
    """
    log = log if log is not None else make_log(settings.log_level, settings.log_format)
    admin_key = admin_key_of(settings)
    children = ChildServer(settings.data_dir if settings.store == "sqlite" else None)
    service = _service(settings, store if store is not None else open_store(settings), log, admin_key, children)
    _read_access_keys(service)
    app = _Application(
        title="shoal",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=_lifespan,
        docs_url=None,
        redoc_url=None,
        telemetry={
            "tracing": False,
            "metrics": False,
            "logs": False,
            "operation_spans": False,
            "auto_configure": False,
        },
    )
    app.state.service = service
    app.state.children = children
    if settings.role in ("learner", "refiner"):
        health.endpoints.add_to(app)
    else:
        _add_routes(app, settings)
    return app


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, then finish running work within `shutdown_s`. Raises StoreError."""
    log = make_log(settings.log_level, settings.log_format)
    for name in ("uvicorn", "uvicorn.error", "asyncio", "shoal_service.store"):
        bridge(name, log)
    tls_options(settings)  # before anything is created
    if _has_no_store_yet(settings) and settings.admin_key is None and settings.admin_key_file is None:
        check_exposure(settings, has_keys=False)
    app = create_app(settings, log=log)
    service: Service = app.state.service
    try:
        check_exposure(settings, service.access.has_keys)
    except SettingError:
        service.store.close()
        raise
    if not service.access.required:
        warn_if_open(settings, service.log)
    for line in unknown_variables(os.environ):
        log.warning("unknown_variable", message=line)
    if settings.store == "redis":
        _look_at_store(service)
    try:
        run(app, settings, service.store.describe(), *_about_keys(service), on_stop=service.stop_accepting)
    finally:
        service.request_log.write()  # of the last requests


def _about_keys(service: Service) -> list[str]:
    """Line for people about access keys, if they are needed."""
    path = service.settings.admin_key_file
    if not service.access.required:
        return []
    return ["access keys are needed" + ("" if path is None else f"; to read the admin key: cat {path.absolute()}")]


def _has_no_store_yet(settings: Settings) -> bool:
    """Whether the store will be a new one, which has no access keys."""
    return settings.store == "memory" or (settings.store == "sqlite" and not settings.data_dir.exists())


def _look_at_store(service: Service) -> None:
    """Log at the start why the store is not ready. It may become ready later; until then /readyz says the same."""
    try:
        service.store.check()
    except StoreUnavailableError as error:
        service.log.warning("store_not_ready", reason=str(error))


def _read_access_keys(service: Service) -> None:
    """Read the access keys. A shared store need not be available yet."""
    try:
        service.access.load()
    except StoreUnavailableError as error:
        if service.settings.store != "redis":
            raise
        service.log.warning("access_keys_not_read", reason=str(error))  # read later; until then requests get 503


def open_store(settings: Settings) -> Store:
    """Open the store that the settings name."""
    keys, seconds = settings.idempotency_keys, 3600.0 * settings.idempotency_hours
    if settings.store == "redis":
        return _open_redis(settings, keys, seconds)
    data_dir = None if settings.store == "memory" else settings.data_dir
    return SqliteStore(data_dir, answers_kept=keys, answers_kept_s=seconds)


def _open_redis(settings: Settings, keys: int, seconds: float) -> Store:
    from shoal_service.store.redis import Durability, RedisStore  # here, since it brings the Redis client along

    return RedisStore(
        settings.redis_url.get_secret_value(),
        prefix=settings.redis_prefix,
        durability=Durability(settings.redis_durability),
        timeout_s=settings.redis_timeout_s,
        marks_folder=settings.data_dir if "data_dir" in settings.model_fields_set else None,
        answers_kept=keys,
        answers_kept_s=seconds,
    )


def _service(settings: Settings, store: Store, log: Any, admin_key: str | None, children: ChildServer) -> Service:
    shared = settings.store == "redis"
    access = AccessControl(store, admin_key=admin_key, closed=is_exposed(settings), shared=shared, log=log)
    runtime = Runtime(store, settings, log, lambda: children.address)
    limits = WireLimits.of(settings)
    decoder = Decoder(
        limits,
        processes=settings.decode_processes,
        inline_bytes=int(settings.decode_inline_bytes),
        max_waiting_bytes=int(settings.decode_waiting_bytes),
    )
    uploads = Uploads(max(UPLOADS_AT_ONCE * limits.max_body_bytes, LEAST_UPLOADS_BYTES))
    metrics = Metrics(store, lambda: runtime.streams.known.loaded, lambda: runtime.learners)
    if runtime.refiner is not None:
        metrics.add_refining(runtime.refiner.counters)
    if runtime.leases is not None:
        metrics.add_leases(runtime.leases.counters, lambda: len(runtime.learners))
    if runtime.pieces is not None:
        metrics.add_pieces(runtime.pieces.counters)
    if runtime.source_runner is not None:
        metrics.add_sources(lambda: [] if runtime.source_runner is None else runtime.source_runner.running)
    metrics.add_store(settings.data_dir if settings.store == "sqlite" else None)
    warmth = Warmth(log)
    metrics.add_counter("shoal_kernels_compiled", "Functions compiled by this process", lambda: warmth.compiled)
    request_log = RequestLog(metrics, log)
    return Service(
        settings, store, access, runtime, decoder, limits, uploads, Compute(), metrics, request_log, warmth, log
    )


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    service: Service = app.state.service
    await asyncio.to_thread(pin_blas)  # before any learner computes: this process may have loaded NumPy already
    answers = service.settings.role in ("all", "api")
    service.warmth.start()
    if answers:
        service.decoder.start()
    children: ChildServer = app.state.children
    if service.runtime.source_runner is not None:
        try:
            await children.start(_for_children(service))
        except OSError as error:
            service.log.error("sources_not_run", reason=f"no Unix socket can be made for them: {error}")
            service.runtime.source_runner = None
    await asyncio.to_thread(service.runtime.start, answers=answers)
    service.access.start()
    service.log.info("service_started", version=__version__, store=service.store.describe())
    try:
        yield
    finally:
        service.stop_accepting()
        drained = await asyncio.to_thread(_close, service)
        await children.close()
        service.request_log.write()
        service.log.info("service_stopped", drained=drained)


def _close(service: Service) -> bool:
    drained = service.runtime.close(DRAIN_SHARE * service.settings.shutdown_s)
    service.decoder.close()
    service.compute.close()
    service.access.close()
    service.store.close()
    return drained


def _for_children(service: Service) -> ASGIApp:
    """Return what the connectors of sources ask for: positions, settings of streams, and to append."""
    app = _ChildApplication(docs_url=None, redoc_url=None, openapi_url=None)
    app.state.service = service
    for module in (ingest, sources):
        module.endpoints.add_to(app, "/streams/{stream}")
    streams.listing.add_to(app)
    return app


def _add_routes(app: FastAPI, settings: Settings) -> None:
    data = (
        predict,
        ingest,
        components,
        labels,
        clusters,
        pictures,
        records,
        events,
        webhooks,
        sources,
        refinements,
        snapshot,
        dead_letters,
    )
    for prefix in ("", "/streams/{stream}"):
        for module in data:
            module.endpoints.add_to(app, prefix)
    streams.listing.add_to(app)
    streams.endpoints.add_to(app, "/streams/{stream}")
    keys.endpoints.add_to(app)
    health.endpoints.add_to(app)
    pages.endpoints.add_to(app)
    app.mount("/static", pages.PageFiles(), name="static")
    described = app.openapi
    app.openapi = cache(lambda: docs.completed(described(), app.routes, settings))  # type: ignore[method-assign]
