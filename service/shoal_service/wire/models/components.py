"""Components of a stream, as answers show them."""

from typing import Literal

from pydantic import Field

from shoal_service.wire.models.base import STREAM, StreamAnswer, WireModel, example

_TELLING = {"feature": "mem", "value": 3.4, "rest": 0.7}
_COMPONENT = {
    "id": 3,
    "weight": 0.4,
    "mass": 800.4,
    "mean": [1.2, 3.4],
    "variance": [0.9, 1.1],
    "born_at": 12,
    "last_seen_at": 1998,
    "telling": [_TELLING],
    "label": "idle hosts",
    "note": None,
}
_ANCESTOR = {"id": 9, "born_at": 640, "retired_at": 1024}


class TellingRow(WireModel):
    """A feature that tells a component from the rest of the mixture."""

    model_config = example(**_TELLING)

    feature: str | int
    """Its name, or its number from 0 where features have no names."""
    value: float
    """Its mean in the component; of a category, the share of a level."""
    rest: float
    """The same of all other components together, weighted by their masses."""
    level: int | str | None = None
    """The level, by its name or else its number; only where the features are categories."""


class ComponentRow(WireModel):
    """A component. Mean, variance and covariance are those of the posterior predictive; null means infinite."""

    model_config = example(**_COMPONENT)

    id: int = Field(ge=0, lt=2**53)
    """Stable id. It is never given to another component, so other data can refer to it."""
    weight: float | None
    """Probability that the next point belongs to this component. All weights and `new_weight` sum to one."""
    mass: float | None
    """Number of points in the component: the sum of their responsibilities, after forgetting."""
    mean: list[float | None] | None
    variance: list[float | None] | None
    born_at: int
    """Number of points seen when the component was born."""
    last_seen_at: int
    """Number of points seen at the last point for which this component was the best one."""
    telling: list[TellingRow] = Field(default_factory=list, max_length=5)
    """The features in which it differs most from the rest of the mixture, most telling first."""
    levels: dict[str, dict[str, float]] | None = None
    """The shares of the five most frequent levels of each category; only where levels have names."""
    label: str | None = None
    """What people call it. null without a label."""
    note: str | None = None
    """What they noted about it."""
    covariance: list[list[float | None]] | None = None
    """Only with `?fields=covariance`."""


class AncestorRow(WireModel):
    """A component that was merged into another one, or replaced by it."""

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
        feature_names=["cpu", "mem"],
        new_weight=0.0005,
        components=[_COMPONENT],
        next="QIkAAAAAAAAAAAAAAAAAAw",
    )

    points_seen: int
    """Number of all points applied so far, including forgotten ones."""
    status: Literal["empty", "warming_up", "live"]
    """`warming_up` while the stream still learns the scale of the data. Answers come from a provisional fit then."""
    feature_names: list[str] | None
    """Names of the features, in the order of the numbers of a mean. null where they have none."""
    new_weight: float
    """Probability that the next point belongs to no existing component."""
    components: list[ComponentRow]
    next: str | None
    """Cursor of the next page; null on the last page."""


class ComponentOut(StreamAnswer):
    """One component, live or retired. Moments of the longest retired components are forgotten when there are many."""

    model_config = example(
        **STREAM,
        feature_names=["cpu", "mem"],
        **_COMPONENT,
        covariance=[[0.9, 0.1], [0.1, 1.1]],
        live=True,
        retired_at=None,
        successors=[],
        lineage=[_ANCESTOR],
    )

    feature_names: list[str] | None
    """Names of the features, in the order of the numbers of a mean. null where they have none."""
    id: int
    live: bool
    weight: float | None
    mass: float | None
    mean: list[float | None] | None
    variance: list[float | None] | None
    covariance: list[list[float | None]] | None
    born_at: int
    last_seen_at: int | None
    telling: list[TellingRow]
    """The features in which it differs most from the rest of the mixture, most telling first."""
    levels: dict[str, dict[str, float]] | None = None
    """The shares of the five most frequent levels of each category; only where levels have names."""
    label: str | None
    """What people call it. null without a label."""
    note: str | None
    """What they noted about it."""
    retired_at: int | None
    """Number of points seen when the component was retired; null for a live one."""
    successors: list[int]
    """Live components that have its points now. Empty for a live component, and if no other took its place."""
    lineage: list[AncestorRow]
    """Retired components that are part of this one, earliest first. A long lineage shows the latest part only."""
