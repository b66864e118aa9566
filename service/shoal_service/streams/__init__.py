"""Streams of the service, from the log to the views that readers get.

Rooms: `learner` is what one process does, and `shared` what several processes share. `refinement` makes refinements,
`record_index` keeps records, `monitor` follows the scores of points before they were learnt, `webhooks` sends events to
addresses, and `sources` runs connectors. Beside them: `runtime` starts the parts of a process by its role, `registry`
and `stream` serve request handlers, `board` and `view` carry the views, `events` the events.

The way of a batch: `registry`, `stream` (the append to the log), `learner` (the next state), `board` (the view), and
back to `stream`, which waits for the view. `refinement` describes the way of a refinement.
"""

from shoal_service.streams.clusters import (
    STABILITY_POINTS,
    ClusterChoice,
    check_window,
    cluster_ids_of,
    cluster_of,
    clusters_of,
    stability_of_points,
)
from shoal_service.streams.dead_letter_service import DeadLetterService, StreamLetter
from shoal_service.streams.engines import load_engines
from shoal_service.streams.events import EventPlace, Feed, FeedEvent, event_fields, event_id
from shoal_service.streams.known_streams import DEFAULT_STREAM
from shoal_service.streams.labels import NO_LABEL, Label, Labels, labelled, of_each, texts_of
from shoal_service.streams.learner import Learner, LearnerCounters
from shoal_service.streams.learnt_rows import LearntRows
from shoal_service.streams.monitor import LOG_DENSITY_EDGES, NOVELTY_EDGES, Buckets
from shoal_service.streams.names import as_learnt
from shoal_service.streams.projection import PlaneChoice, Projected, projected
from shoal_service.streams.recent_points import MOST_POINTS, RecentPoints, RecentPointsService
from shoal_service.streams.record_index import Position, Stored
from shoal_service.streams.record_service import Record, RecordService
from shoal_service.streams.record_times import shown_time
from shoal_service.streams.refinement import Refinement, RefinementCounters, RefinementService
from shoal_service.streams.registry import StreamInfo, StreamRegistry
from shoal_service.streams.runtime import Runtime
from shoal_service.streams.shared import LeaseCounters, PieceCounters
from shoal_service.streams.source_service import SourceService, SourceStatus
from shoal_service.streams.sources import SOURCE_STATUSES, RunningSource, shown_settings
from shoal_service.streams.stream import Receipt, Stream
from shoal_service.streams.view import (
    PublishedView,
    Summary,
    component_of,
    page_of,
    predictions_of,
    scores_of,
)
from shoal_service.streams.webhook_service import WebhookService, WebhookStatus

__all__ = [
    "DEFAULT_STREAM",
    "LOG_DENSITY_EDGES",
    "MOST_POINTS",
    "NOVELTY_EDGES",
    "NO_LABEL",
    "SOURCE_STATUSES",
    "STABILITY_POINTS",
    "Buckets",
    "ClusterChoice",
    "DeadLetterService",
    "EventPlace",
    "Feed",
    "FeedEvent",
    "Label",
    "Labels",
    "Learner",
    "LearnerCounters",
    "LearntRows",
    "LeaseCounters",
    "PieceCounters",
    "PlaneChoice",
    "Position",
    "Projected",
    "PublishedView",
    "Receipt",
    "RecentPoints",
    "RecentPointsService",
    "Record",
    "RecordService",
    "Refinement",
    "RefinementCounters",
    "RefinementService",
    "RunningSource",
    "Runtime",
    "SourceService",
    "SourceStatus",
    "Stored",
    "Stream",
    "StreamInfo",
    "StreamLetter",
    "StreamRegistry",
    "Summary",
    "WebhookService",
    "WebhookStatus",
    "as_learnt",
    "check_window",
    "cluster_ids_of",
    "cluster_of",
    "clusters_of",
    "component_of",
    "event_fields",
    "event_id",
    "labelled",
    "load_engines",
    "of_each",
    "page_of",
    "predictions_of",
    "projected",
    "scores_of",
    "shown_settings",
    "shown_time",
    "stability_of_points",
    "texts_of",
]
