"""Parts that all handlers share: the service, the name of the stream, and common parameters."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

from fastapi import Header, Query
from starlette.requests import Request

from shoal_service.access import AccessControl
from shoal_service.errors import ParameterError
from shoal_service.metrics import Metrics
from shoal_service.request_log import RequestLog
from shoal_service.routes.compute import Compute
from shoal_service.routes.uploads import Upload, Uploads
from shoal_service.routes.warming import Warmth
from shoal_service.settings import Settings
from shoal_service.store import IdempotencyKey, SourceStep, Store
from shoal_service.streams import (
    DEFAULT_STREAM,
    ClusterChoice,
    DeadLetterService,
    Labels,
    PublishedView,
    RecentPointsService,
    RecordService,
    RefinementService,
    Runtime,
    SourceService,
    StreamRegistry,
    WebhookService,
)
from shoal_service.wire import Decoder, RecordColumns, WireLimits, check_idempotency_key, request_digest

LEAST_WAIT_S = 0.001
"""Shortest `timeout` of a request."""


@dataclass(frozen=True)
class Service:
    """Parts of one running service."""

    settings: Settings
    store: Store
    access: AccessControl
    runtime: Runtime
    decoder: Decoder
    limits: WireLimits
    uploads: Uploads
    compute: Compute
    metrics: Metrics
    request_log: RequestLog
    warmth: Warmth
    log: Any

    @property
    def streams(self) -> StreamRegistry:
        """Streams of this process."""
        return self.runtime.streams

    @property
    def refinements(self) -> RefinementService:
        """Refinements of these streams."""
        return self.runtime.refinements

    @property
    def records(self) -> RecordService:
        """Records of these streams."""
        return self.runtime.records

    @property
    def dead_letters(self) -> DeadLetterService:
        """Dead letters of these streams."""
        return self.runtime.dead_letters

    @property
    def sources(self) -> SourceService:
        """Positions of the sources of these streams."""
        return self.runtime.sources

    @property
    def webhooks(self) -> WebhookService:
        """Webhooks of these streams."""
        return self.runtime.webhooks

    @property
    def recent_points(self) -> RecentPointsService:
        """Samples of these streams."""
        return self.runtime.recent_points

    def stop_accepting(self) -> None:
        """Refuse new requests, and bodies that are not complete yet. Safe in a signal handler."""
        self.runtime.stop_accepting()
        self.uploads.stop()

    def wait_s(self, asked: float | None) -> float:
        """Seconds that a request waits: its `timeout`, or the default. Raises ParameterError above the limit."""
        longest = self.settings.max_wait_s
        if asked is not None and not LEAST_WAIT_S <= asked <= longest:
            raise ParameterError(f"timeout is {asked:g}; use {LEAST_WAIT_S:g} to {longest:g} seconds")
        return min(self.settings.default_wait_s, longest) if asked is None else asked


def service_of(request: Request) -> Service:
    """The service that received a request."""
    service: Service = request.app.state.service
    return service


def stream_of(request: Request) -> str:
    """The stream that a path names; `default` if it names none."""
    return str(request.path_params.get("stream", DEFAULT_STREAM))


class LabelledView(NamedTuple):
    """A view of a stream, and the labels that answers about it show."""

    view: PublishedView
    labels: Labels

    @property
    def etag(self) -> str:
        """Entity tag of an answer that depends on both."""
        return self.view.etag_with(self.labels.version)


async def labelled_view(request: Request, min_offset: int | None, timeout: float | None) -> LabelledView:
    """The view of the stream of a request, as `StreamRegistry.view`, with the labels of its components."""
    service, name = service_of(request), stream_of(request)
    view = await service.streams.view(name, min_offset=min_offset, timeout_s=service.wait_s(timeout))
    return LabelledView(view, await service.streams.labels(name))


MinOffset = Annotated[
    int | None,
    Query(
        ge=0,
        le=2**53,
        description="Wait until this many points of the log are learnt, to read your own writes. "
        "504 (retryable) if that takes longer than `timeout`.",
        examples=[2000],
    ),
]
Timeout = Annotated[
    float | None,
    Query(
        description="Largest number of seconds to wait. [default: 5]",
        examples=[5.0],
        json_schema_extra={"minimum": LEAST_WAIT_S},
    ),
]
Number = Annotated[
    int | None,
    Query(ge=1, le=2**31, description="Number of clusters, at most that of the components.", examples=[10]),
]
Resolution = Annotated[
    float | None,
    Query(
        gt=0,
        le=1e12,
        allow_inf_nan=False,
        description="More clusters for a higher value. 1 is the default without `n`, unless the components fall into "
        "connected groups.",
        examples=[2.0],
    ),
]
Level: TypeAlias = Literal["component", "cluster"]


IdempotencyKeyHeader = Annotated[
    str | None,
    Header(
        description="1 to 128 printable ASCII characters that name this request. Repeating it has no second effect.",
        examples=["1f0c6f3a-batch-7"],
        json_schema_extra={"minLength": 1, "maxLength": 128, "pattern": "^[!-~]([ -~]*[!-~])?$"},
    ),
]


def choice_of(level: Level, n: int | None, resolution: float | None) -> ClusterChoice | None:
    """The clusters that a request about points asks for; None at the level of components. Raises ParameterError."""
    if level == "cluster":
        return ClusterChoice(n, resolution)
    if n is not None or resolution is not None:
        raise ParameterError("n and resolution choose clusters; send level=cluster with them")
    return None


async def key_of(
    service: Service,
    key: str | None,
    upload: Upload,
    columns: RecordColumns | None = None,
    source: SourceStep | None = None,
) -> IdempotencyKey | None:
    """The key of a request, or None if it has none. Raises ParameterError for a bad key."""
    if key is None:
        return None
    check_idempotency_key(key)
    digest = await service.compute(len(upload.body), request_digest, *upload, columns, source)
    return IdempotencyKey(key, digest)
