"""Points on their way in, and the answers about them: OpenAPI is made from these models.

The service does not build its answers from the models, because `wire.output` writes them faster. A test compares both.
"""

from typing import Any

from pydantic import Field

from shoal_service.wire.models.base import STREAM, StreamAnswer, WireModel, example


class SparseRowIn(WireModel):
    """A point with many zeros, such as the word counts of a document."""

    model_config = example(indices=[0, 7], values=[2, 1])

    indices: list[int]
    """Numbers of the features that are not zero, counted from 0, in any order. Each may appear once."""
    values: list[float]
    """Values of these features. All other features are zero."""


class IngestIn(WireModel):
    """Points to learn from, or to predict for. A batch is accepted as a whole or refused as a whole."""

    model_config = example(points=[[1.2, 3.4], [0.9, 3.1]])

    points: list[list[float]] | list[SparseRowIn] | list[dict[str, float]] = Field(min_length=1)
    """One array per point, all of the same length, with finite numbers of magnitude at most 1e150. Or one sparse row
    per point, for a stream that exists and whose family accepts sparse rows. Or one object per point, with a number for
    each name of a feature."""
    keys: list[str | None] | None = None
    """A key for each point, 1 to 256 bytes, under which its record is kept. null for a point without one."""
    times: list[str | float | None] | None = None
    """A time for each point: RFC 3339, or seconds since 1970."""
    payloads: list[dict[str, Any] | None] | None = None
    """A JSON object for each point, which its record carries."""
    feature_names: list[str] | None = None
    """The name of each column. Their order may differ from the stream's: the columns are put right."""
    weights: list[float | None] | None = None
    """How often each point counts, from 1e-9 to 1e9; null for once. For families with a conjugate prior."""


class IngestOut(StreamAnswer):
    """202: the batch is stored in the durable log."""

    model_config = example(**STREAM, accepted=2)

    accepted: int = Field(ge=1)
    """Number of points in this batch. Its last point is at `log_offset`."""


class AppliedOut(IngestOut):
    """200, with `?wait=applied`: the stream has also learnt from the batch."""

    model_config = example(
        **STREAM, accepted=2, components=[3, 9], novelty=[0.0002, 0.97], log_density=[-2.9, -21.4], born=[False, True]
    )

    labels: dict[str, str] | None = None
    """Labels of components in this answer, by id; only where one of them has a label."""
    components: list[int]
    """Component id of each point, right after this batch."""
    novelty: list[float]
    """Posterior probability that the point belonged to no component, just before it was learnt."""
    log_density: list[float | None]
    """Log predictive density of the point in nats, just before it was learnt. null for the first point of a stream."""
    born: list[bool]
    """Whether the point founded a component."""
    clusters: list[int | None] | None = None
    """Cluster id of each point; only with `?level=cluster`. null for a component that is no longer live and left no
    other in its place."""


class ScoreOut(StreamAnswer):
    """Answers for points as if they were learnt now, in the order of the points."""

    model_config = example(
        **STREAM, components=[3, 0], novelty=[0.0002, 0.97], log_density=[-2.9, -21.4], born=[False, True]
    )

    labels: dict[str, str] | None = None
    """Labels of components in this answer, by id; only where one of them has a label."""
    components: list[int]
    """Id of the best existing component, even for a point that would begin one."""
    novelty: list[float]
    """Posterior probability that the point belongs to no component."""
    log_density: list[float | None]
    """Log predictive density of the point in nats."""
    born: list[bool]
    """Whether the point would begin a component."""


class ResponsibilityRow(WireModel):
    """A component, and the posterior probability that the point belongs to it."""

    id: int
    p: float = Field(ge=0, le=1)


class PredictionRow(WireModel):
    """Prediction for one point."""

    cluster: int | None = None
    """Id of the cluster that holds this component; only with `?level=cluster`."""
    component: int
    """Id of the best existing component, even if the point is probably new."""
    log_density: float | None
    """Log posterior predictive density, in nats."""
    novelty: float = Field(ge=0, le=1)
    """Posterior probability that the point belongs to no existing component."""
    responsibilities: list[ResponsibilityRow] = Field(max_length=5)
    """The largest ones of at least 0.001, in descending order, not renormalised."""


class PredictOut(StreamAnswer):
    """Predictions, one per point, in the order of the points."""

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

    labels: dict[str, str] | None = None
    """Labels of components in this answer, by id; only where one of them has a label."""
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


_NDJSON = (
    "one row per line: an array of numbers, a sparse row, or a record, "
    '{"point": [1.0, 2.0], "key": "a", "time": "2026-01-31T12:00:00Z", "payload": {}}; '
    'its point may have names, {"cpu": 0.3, "mem": 0.7}'
)
_MSGPACK = (
    'a map {"d": features, "x": little-endian bytes, "t": "f4" | "f8"}; or, for sparse rows, a compressed matrix '
    '{"d": features, "indptr": i8, "indices": i4, "values": f8}, each little-endian bytes; beside either, lists of the '
    "fields of records: k (keys), tm (times), p (payloads), w (weights), and the names of the columns, f"
)
_ARROW = (
    "an uncompressed Arrow IPC stream: one column of fixed-size lists of numbers, or only columns of numbers, "
    "whose names are those of the features; "
    "accepted if the service was installed with `shoal[arrow]`"
)
