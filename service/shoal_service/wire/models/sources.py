"""Positions of sources: the answer of `GET /sources`."""

from pydantic import Field

from shoal_service.wire.models.base import STREAM, WireModel, example

_POSITION = {
    "source": "orders",
    "partition": "3",
    "position": "1700000000000-4",
    "before": "1700000000000-0",
    "n_points": 500,
    "seq": 17,
    "log_offset": 2000,
}


class SourcePositionRow(WireModel):
    """Position of a partition of a source in the log of the stream."""

    model_config = example(**_POSITION)

    source: str
    partition: str
    position: str
    """Records up to here are stored."""
    before: str | None
    """The position before the last batch. null: it was the first one."""
    n_points: int = Field(ge=0)
    """Points of the last batch."""
    seq: int = Field(ge=1)
    """Number of its entry in the log."""
    log_offset: int = Field(ge=0)
    """Number of points in the log up to and including that entry."""


class SourcesOut(WireModel):
    """The positions of all sources of a stream."""

    model_config = example(**{name: STREAM[name] for name in ("stream", "incarnation")}, sources=[_POSITION])

    stream: str
    incarnation: str
    sources: list[SourcePositionRow]
    """By source and partition."""
