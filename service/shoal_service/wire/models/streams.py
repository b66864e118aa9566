"""Streams, as answers show them."""

from typing import Any, Literal

from shoal_service.wire.models.base import STREAM, StreamAnswer, WireModel, example
from shoal_service.wire.models.stream_settings import EXAMPLE


class StreamOut(StreamAnswer):
    """A stream and its settings."""

    model_config = example(
        **STREAM,
        points_seen=2000,
        status="live",
        n_components=7,
        predictive_score=-3.81,
        predictive_score_points=1000,
        newest_time=None,
        late_points=0,
        snapshot_age_s=0.42,
        created_at="2026-11-20T09:30:00Z",
        settings=EXAMPLE,
    )

    points_seen: int
    """Number of points that the stream has learnt, as readers see it. After a restore, that of the restored state."""
    status: Literal["empty", "loading", "warming_up", "live", "failed"]
    """`loading`: its state is not in memory yet, so `points_seen` and `n_components` are 0. A request for the
    stream, or a batch, loads it. `failed`: learning has stopped; the log of the service says why."""
    n_components: int
    predictive_score: float | None
    """Mean log density (nats) of the newest points, each just before it was learnt. null: not known yet."""
    predictive_score_points: int
    """Number of these points, at most 1,000."""
    newest_time: str | None
    """Where the half-life is a time: newest time of a record, RFC 3339. null: not known."""
    late_points: int
    """Points that were late by more than two half-lives."""
    snapshot_age_s: float | None
    """Seconds since the snapshot that readers see was made. It grows while nothing is learnt. null: there is none."""
    created_at: str
    """RFC 3339."""
    settings: dict[str, Any]


class StreamsOut(WireModel):
    """Streams, by name."""

    streams: list[StreamOut]
    next: str | None
    """Send it as `cursor` for the next page. null: this is the last one."""


class RestoreOut(StreamAnswer):
    """The snapshot is stored in the log, and the stream continues from it. `log_offset` never decreases."""

    model_config = example(**STREAM, restored=True)

    restored: Literal[True]
