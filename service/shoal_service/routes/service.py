"""What handlers share: the service's parts, the name of the stream, the parameters that many of them take."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Query
from starlette.requests import Request

from shoal_service.errors import ParameterError
from shoal_service.metrics import Metrics
from shoal_service.request_log import RequestNotes
from shoal_service.routes.compute import Compute
from shoal_service.routes.uploads import Uploads
from shoal_service.routes.warming import Warmth
from shoal_service.settings import Settings
from shoal_service.store import Store
from shoal_service.streams import DEFAULT_STREAM, RefinementService, Runtime, StreamRegistry
from shoal_service.wire import Decoder, WireLimits


@dataclass(frozen=True)
class Service:
    """The parts of one running service."""

    settings: Settings
    store: Store
    runtime: Runtime
    decoder: Decoder
    limits: WireLimits
    uploads: Uploads
    compute: Compute
    metrics: Metrics
    notes: RequestNotes
    warmth: Warmth
    log: Any

    @property
    def streams(self) -> StreamRegistry:
        """The streams that are asked about."""
        return self.runtime.streams

    @property
    def refinements(self) -> RefinementService:
        """Their refinements."""
        return self.runtime.refinements

    def stop_accepting(self) -> None:
        """Refuse what is new from here on, and what is only half here. Safe in a signal handler."""
        self.runtime.stop_accepting()
        self.uploads.stop()

    def wait_s(self, asked: float | None) -> float:
        """How long a request waits: what it asks for, or the default. ParameterError past the longest allowed."""
        longest = self.settings.max_wait_s
        if asked is not None and not 0 < asked <= longest:
            raise ParameterError(f"timeout is {asked:g}; give seconds above 0, at most {longest:g}")
        return min(self.settings.default_wait_s, longest) if asked is None else asked


def service_of(request: Request) -> Service:
    """The service that a request came to."""
    service: Service = request.app.state.service
    return service


def stream_of(request: Request) -> str:
    """The stream that a path names; a plain path means `default`."""
    return str(request.path_params.get("stream", DEFAULT_STREAM))


MinOffset = Annotated[
    int | None,
    Query(
        ge=0,
        le=2**53,
        description="Wait until so many points of the log are applied: read your own writes. "
        "504 (retryable) when that takes longer than `timeout`.",
        examples=[2000],
    ),
]
Timeout = Annotated[float | None, Query(gt=0, description="Seconds to wait, at most. [default: 5]", examples=[5.0])]
