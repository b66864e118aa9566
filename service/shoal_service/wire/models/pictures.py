"""Data of a picture of a stream: recent points, and the mixture in a plane."""

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from shoal_service.wire.models.base import STREAM, StreamAnswer, WireModel, example, read_json
from shoal_service.wire.points import Body

_SAID = {
    "components": [3, 9],
    "novelty": [0.0003, 0.0101],
    "log_density": [-2.4, -3.9],
    "log_offsets": [1999, 2000],
    "keys": ["host-7/2026-01-31", None],
}
_COMPONENTS = {
    "ids": [3],
    "label": ["idle hosts"],
    "weight": [0.4],
    "mass": [800.4],
    "born_at": [12],
    "last_seen_at": [1998],
    "x": [1.2],
    "y": [3.4],
    "xx": [0.9],
    "xy": [0.1],
    "yy": [1.1],
}
_PLANE = {"origin": [0.0, 0.0], "axes": [[1.0, 0.0], [0.0, 1.0]]}
Pair = Annotated[list[int], Field(min_length=2, max_length=2)]
Axes = Annotated[list[list[float]], Field(min_length=2, max_length=2)]


class SampleOut(StreamAnswer):
    """The newest points, in the order of the log. There are fewer than asked for where the log holds no more of them,
    or where they would take too long to compare with the components."""

    model_config = example(**STREAM, points=[[1.2, 3.4], [0.9, 3.1]], **_SAID)

    labels: dict[str, str] | None = None
    """Labels of components in this answer, by id; only where one of them has a label."""
    points: list[Any]
    """As in the body of `/ingest`: lists of numbers, or sparse rows."""
    components: list[int]
    """Id of the component that each point belongs to today."""
    novelty: list[float]
    """Probability today that each point belongs to no component."""
    log_density: list[float | None]
    """Log predictive density of each point today, in nats."""
    log_offsets: list[int]
    """Points in the log up to and including each point."""
    keys: list[str | None]
    """Key of the record that each point is. null without one, and where the key came again or is forgotten."""


class ProjectionIn(WireModel):
    """A plane, and how many recent points to show. An empty body asks for the principal plane and no points."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        use_attribute_docstrings=True,
        json_schema_extra={"examples": [{"features": [0, 1], "n": 1000}]},
    )

    origin: list[float] | None = None
    """A plane of an earlier answer, with `axes`."""
    axes: Axes | None = None
    """A plane of an earlier answer, with `origin`."""
    features: Pair | None = None
    """Two features, from 0, as the axes of the plane."""
    n: int = Field(default=0, ge=0, le=20_000)
    """Most points."""
    after: int = Field(default=0, ge=0, le=2**53)
    """Only points that come after this log offset."""


class PlaneComponents(WireModel):
    """Components in the plane, largest first: one list for each property. Coordinates are null where a moment is
    infinite, and without a plane."""

    ids: list[int]
    label: list[str | None]
    weight: list[float]
    mass: list[float]
    born_at: list[int]
    last_seen_at: list[int]
    x: list[float | None]
    y: list[float | None]
    """`x`, `y`: means."""
    xx: list[float | None]
    xy: list[float | None]
    yy: list[float | None]
    """`xx`, `xy`, `yy`: covariances of the posterior predictives."""


class PlanePoints(WireModel):
    """Recent points in the plane, in the order of the log: one list for each property, as in `SampleOut`."""

    x: list[float]
    y: list[float]
    components: list[int]
    novelty: list[float]
    log_density: list[float | None]
    log_offsets: list[int]
    keys: list[str | None]


class ProjectionOut(StreamAnswer):
    """The mixture and recent points in a plane: the coordinates of x are `axes` (x - `origin`)."""

    model_config = example(
        **STREAM,
        points_seen=2000,
        status="live",
        new_weight=0.0005,
        **_PLANE,
        components=_COMPONENTS,
        points={"x": [1.2, 0.9], "y": [3.4, 3.1], **_SAID},
    )

    points_seen: int
    status: str
    new_weight: float
    origin: list[float] | None
    """null without components, and for families whose points are no places in space, as counts: there is no plane."""
    axes: list[list[float]] | None
    components: PlaneComponents | None
    points: PlanePoints | None


def decode_projection(text: Body) -> ProjectionIn:
    """Read the plane that is asked for. Raises as `read_json`."""
    return read_json(ProjectionIn, text) if text else ProjectionIn(n=0, after=0)
