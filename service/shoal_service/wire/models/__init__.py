"""Documented shapes of bodies and answers, one file per topic. OpenAPI is made from them."""

from shoal_service.wire.models.clusters import ClusterOut, ClusterRow, ClustersOut
from shoal_service.wire.models.components import AncestorRow, ComponentOut, ComponentRow, ComponentsOut
from shoal_service.wire.models.dead_letters import DeadLetterOut, DeadLetterRow, DeadLettersOut, RequeueOut
from shoal_service.wire.models.events import EventOut
from shoal_service.wire.models.keys import KeyIn, KeyLimitsIn, KeyOut, KeysOut, NewKeyOut, decode_key
from shoal_service.wire.models.labels import LabelIn, decode_label
from shoal_service.wire.models.pictures import ProjectionIn, ProjectionOut, SampleOut, decode_projection
from shoal_service.wire.models.points import (
    AppliedOut,
    IngestIn,
    IngestOut,
    PredictionRow,
    PredictOut,
    ResponsibilityRow,
    ScoreOut,
    SparseRowIn,
    points_body,
)
from shoal_service.wire.models.records import (
    ForgottenOut,
    LookupIn,
    LookupOut,
    MemberRow,
    MembersOut,
    RecordOut,
    RecordsOut,
)
from shoal_service.wire.models.refinements import RefineIn, RefinementOut, RefinementRow, RefinementsOut, decode_refine
from shoal_service.wire.models.service import HealthOut, ProblemOut, ReadyOut
from shoal_service.wire.models.sources import SourcePositionRow, SourcesOut
from shoal_service.wire.models.stream_settings import StreamIn, decode_stream_settings
from shoal_service.wire.models.streams import RestoreOut, StreamOut, StreamsOut
from shoal_service.wire.models.webhooks import WebhookIn, WebhookOut, WebhooksOut, WebhookStatusOut, decode_webhook

__all__ = [
    "AncestorRow",
    "AppliedOut",
    "ClusterOut",
    "ClusterRow",
    "ClustersOut",
    "ComponentOut",
    "ComponentRow",
    "ComponentsOut",
    "DeadLetterOut",
    "DeadLetterRow",
    "DeadLettersOut",
    "EventOut",
    "ForgottenOut",
    "HealthOut",
    "IngestIn",
    "IngestOut",
    "KeyIn",
    "KeyLimitsIn",
    "KeyOut",
    "KeysOut",
    "LabelIn",
    "LookupIn",
    "LookupOut",
    "MemberRow",
    "MembersOut",
    "NewKeyOut",
    "PredictOut",
    "PredictionRow",
    "ProblemOut",
    "ProjectionIn",
    "ProjectionOut",
    "ReadyOut",
    "RecordOut",
    "RecordsOut",
    "RefineIn",
    "RefinementOut",
    "RefinementRow",
    "RefinementsOut",
    "RequeueOut",
    "ResponsibilityRow",
    "RestoreOut",
    "SampleOut",
    "ScoreOut",
    "SourcePositionRow",
    "SourcesOut",
    "SparseRowIn",
    "StreamIn",
    "StreamOut",
    "StreamsOut",
    "WebhookIn",
    "WebhookOut",
    "WebhookStatusOut",
    "WebhooksOut",
    "decode_key",
    "decode_label",
    "decode_projection",
    "decode_refine",
    "decode_stream_settings",
    "decode_webhook",
    "points_body",
]
