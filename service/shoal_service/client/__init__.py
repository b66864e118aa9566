"""Python client: `Client` and `AsyncClient`, with the same methods."""

from shoal_service.client.access_keys import AccessKey, NewAccessKey
from shoal_service.client.clusters import Cluster, Clusters
from shoal_service.client.dead_letters import DeadLetter, Requeued
from shoal_service.client.errors import (
    AccessError,
    BadPointsError,
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    OutcomeUnknownError,
    ProtocolError,
    RefusedError,
    ServerError,
    ShoalClientError,
    UnavailableError,
    UnreachableError,
)
from shoal_service.client.events import StreamEvent
from shoal_service.client.record_points import Records
from shoal_service.client.records import MemberRecord, Record
from shoal_service.client.refinements import Refinement
from shoal_service.client.results import (
    Component,
    Components,
    Health,
    IngestResult,
    Predictions,
    Restored,
    Sample,
    StreamInfo,
)
from shoal_service.client.runners import AsyncClient, Client
from shoal_service.client.sources import ConfiguredSource, SourcePosition, StepResult
from shoal_service.client.webhooks import Webhook

__all__ = [
    "AccessError",
    "AccessKey",
    "AsyncClient",
    "BadPointsError",
    "Client",
    "Cluster",
    "Clusters",
    "Component",
    "Components",
    "ConfiguredSource",
    "ConflictError",
    "DeadLetter",
    "Health",
    "IngestResult",
    "InvalidRequestError",
    "MemberRecord",
    "NewAccessKey",
    "NotFoundError",
    "OutcomeUnknownError",
    "Predictions",
    "ProtocolError",
    "Record",
    "Records",
    "Refinement",
    "RefusedError",
    "Requeued",
    "Restored",
    "Sample",
    "ServerError",
    "ShoalClientError",
    "SourcePosition",
    "StepResult",
    "StreamEvent",
    "StreamInfo",
    "UnavailableError",
    "UnreachableError",
    "Webhook",
]
