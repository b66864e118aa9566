"""What goes over the wire, as documentation that a machine can check: OpenAPI is made from these models.

The service does not build its answers from them (`wire.output` writes them faster); a test holds the two together.
"""

from typing import Any, Literal

from pydantic import Field

from shoal_service.wire.stream_models import (
    STREAM,
    HealthOut,
    ProblemOut,
    ReadyOut,
    RestoreOut,
    StreamAnswer,
    StreamIn,
    StreamOut,
    StreamsOut,
    WireModel,
    example,
)

__all__ = [
    "AncestorRow",
    "AppliedOut",
    "ComponentOut",
    "ComponentRow",
    "ComponentsOut",
    "HealthOut",
    "IngestIn",
    "IngestOut",
    "PredictOut",
    "PredictionRow",
    "ProblemOut",
    "ReadyOut",
    "ResponsibilityRow",
    "RestoreOut",
    "SparseRowIn",
    "StreamIn",
    "StreamOut",
    "StreamsOut",
    "points_body",
]

_COMPONENT = {
    "id": 3,
    "weight": 0.4,
    "mass": 800.4,
    "mean": [1.2, 3.4],
    "variance": [0.9, 1.1],
    "born_at": 12,
    "last_seen_at": 1998,
}
_ANCESTOR = {"id": 9, "born_at": 640, "retired_at": 1024}


class SparseRowIn(WireModel):
    """A point that is mostly zero, such as the counts of a document's words."""

    model_config = example(indices=[0, 7], values=[2, 1])

    indices: list[int]
    """Columns, from 0, of the stream's features; in any order, none twice."""
    values: list[float]
    """The number in each of these columns; in all others it is zero."""


class IngestIn(WireModel):
    """Points to learn from, or to predict for. A batch is taken whole or not at all."""

    model_config = example(points=[[1.2, 3.4], [0.9, 3.1]])

    points: list[list[float]] | list[SparseRowIn] = Field(min_length=1)
    """One array a point, all of equal length; finite numbers of magnitude at most 1e150. Or one sparse row a point, to
    a stream that is there and whose family takes them."""


class IngestOut(StreamAnswer):
    """202: the batch is in the durable log."""

    model_config = example(**STREAM, accepted=2)

    accepted: int = Field(ge=1)
    """Points of this batch; the batch ends at `log_offset`."""


class AppliedOut(IngestOut):
    """200 under `?wait=applied`: the batch is learnt too."""

    model_config = example(**STREAM, accepted=2, components=[3, 0])

    components: list[int]
    """For each point, the id of its component as of this entry of the log."""


class ComponentRow(WireModel):
    """A component. Moments are those of the posterior predictive, null where infinite."""

    model_config = example(**_COMPONENT)

    id: int = Field(ge=0, lt=2**53)
    """Never used again for another component, so that your data can refer to it."""
    weight: float | None
    """The share of the next point that is expected to belong here; all weights and `new_weight` sum to one."""
    mass: float | None
    """Points in it, by responsibility and after forgetting."""
    mean: list[float | None] | None
    variance: list[float | None] | None
    born_at: int
    """Offset of the point that it was made for."""
    last_seen_at: int
    """Offset of the last point that it explained best."""
    covariance: list[list[float | None]] | None = None
    """Under `?fields=covariance`."""


class AncestorRow(WireModel):
    """A component that lives on in another."""

    model_config = example(**_ANCESTOR)

    id: int
    born_at: int
    retired_at: int


class ComponentsOut(StreamAnswer):
    """A page of components, largest first."""

    model_config = example(
        **STREAM,
        points_seen=2000,
        status="live",
        new_weight=0.0005,
        components=[_COMPONENT],
        next="QIkAAAAAAAAAAAAAAAAAAw",
    )

    points_seen: int
    """All points ever applied, forgotten ones too."""
    status: Literal["empty", "warming_up", "live"]
    """`warming_up` while the scale of the data is still being learnt: answers come from a provisional fit."""
    new_weight: float
    """The share of the next point that is expected to belong to no component yet."""
    components: list[ComponentRow]
    next: str | None
    """Cursor of the next page, null on the last."""


class ComponentOut(StreamAnswer):
    """One component, live or not. What a component was is remembered within a bound: the oldest lose their moments."""

    model_config = example(
        **STREAM,
        **_COMPONENT,
        covariance=[[0.9, 0.1], [0.1, 1.1]],
        live=True,
        retired_at=None,
        successors=[],
        lineage=[_ANCESTOR],
    )

    id: int
    live: bool
    weight: float | None
    mass: float | None
    mean: list[float | None] | None
    variance: list[float | None] | None
    covariance: list[list[float | None]] | None
    born_at: int
    last_seen_at: int | None
    retired_at: int | None
    """Offset at which it ceased to be live."""
    successors: list[int]
    """The live components that its points went to; empty while it lives, and where nothing took its place."""
    lineage: list[AncestorRow]
    """The components that live on in this one, earliest retired first; of a long lineage the latest part."""


class ResponsibilityRow(WireModel):
    """A component and the posterior probability that the point belongs to it."""

    id: int
    p: float = Field(ge=0, le=1)


class PredictionRow(WireModel):
    """What the stream makes of one point."""

    component: int
    """The best existing one, even for a point that is new."""
    log_density: float | None
    """Log posterior predictive density, in nats."""
    novelty: float = Field(ge=0, le=1)
    """Posterior probability that the point belongs to no existing component."""
    responsibilities: list[ResponsibilityRow] = Field(max_length=5)
    """The largest, of at least 0.001, descending and not renormalised."""


class PredictOut(StreamAnswer):
    """Predictions, one a point, in the order of the points."""

    model_config = example(
        **STREAM,
        predictions=[
            {
                "component": 3,
                "log_density": -2.9,
                "novelty": 0.0002,
                "responsibilities": [{"id": 3, "p": 0.991}, {"id": 0, "p": 0.008}],
            }
        ],
    )

    predictions: list[PredictionRow]


def points_body(description: str = "Points") -> dict[str, Any]:
    """The OpenAPI `requestBody` of an operation that reads points from the raw body."""
    binary = {"type": "string", "format": "binary"}
    rows = IngestIn.model_json_schema(ref_template="#/components/schemas/{model}")
    rows.pop("$defs")  # the document has SparseRowIn among its own schemas
    return {
        "description": description + ", optionally with Content-Encoding: gzip",
        "required": True,
        "content": {
            "application/json": {"schema": rows},
            "application/x-ndjson": {"schema": {"type": "string", "description": _NDJSON}},
            "application/msgpack": {"schema": binary | {"description": _MSGPACK}},
            "application/x-npy": {
                "schema": binary | {"description": "a .npy file: an array (N, D) of f4, f8 or integers"}
            },
            "application/vnd.apache.arrow.stream": {"schema": binary | {"description": _ARROW}},
        },
    }


_NDJSON = "a row a line: an array of numbers, or a sparse row"
_MSGPACK = (
    'a map {"d": features, "x": little-endian bytes, "t": "f4" | "f8"}; or, sparse, in compressed rows, '
    '{"d": features, "indptr": i8, "indices": i4, "values": f8}, each little-endian bytes'
)
_ARROW = (
    "an Arrow IPC stream, not compressed: one column of fixed-size lists of numbers, or columns that are all numbers; "
    "taken where the service has the extra `shoal[arrow]`"
)
