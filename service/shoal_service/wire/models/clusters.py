"""Clusters of a stream, as answers show them."""

from typing import Literal

from pydantic import Field

from shoal_service.wire.models.base import STREAM, StreamAnswer, WireModel, example

_CLUSTER = {"id": 3, "label": "idle hosts", "weight": 0.6, "mass": 1200.9, "components": [3, 7, 12]}


class ClusterRow(WireModel):
    """A cluster: a group of components."""

    model_config = example(**_CLUSTER)

    id: int = Field(ge=0, lt=2**53)
    """The id of its oldest component. The cluster keeps it as long as it keeps that component."""
    label: str | None
    """The label of its oldest component."""
    weight: float
    """Probability that the next point belongs to this cluster."""
    mass: float
    """Number of points in the cluster, after forgetting."""
    components: list[int]
    """Ids of its components, ascending."""


_Rule = Literal["number", "resolution", "connected", "penalty", "components"]


class StabilityOut(WireModel):
    """Agreement of two learners, each of every second of the newest points of the window."""

    model_config = example(agreement=0.93, component_agreement=0.77, n_clusters=[9, 10], n_points=10000)

    agreement: float
    """Adjusted Rand index of their clusters on all of these points. 1: equal groups. About 0: groups by chance."""
    component_agreement: float
    """The same of their components."""
    n_clusters: list[int]
    """Number of clusters that each of them has."""
    n_points: int


class ClustersOut(StreamAnswer):
    """All clusters, largest first."""

    model_config = example(
        **STREAM, points_seen=2000, status="live", rule="penalty", clusters=[_CLUSTER], stability=None
    )

    points_seen: int
    """Number of all points applied so far, including forgotten ones."""
    status: Literal["empty", "warming_up", "live"]
    rule: _Rule | None
    """What chose the number of clusters. `number` and `resolution`: the request. `connected`: the components fall into
    groups that touch within and not between. `penalty`: the best fit after a cost for each cluster. `components`: each
    is a cluster, as for counts. null without components."""
    clusters: list[ClusterRow]
    stability: StabilityOut | None
    """Only with `stability=true`."""


class ClusterOut(StreamAnswer):
    """One cluster, with the mean and variance of its points; null means infinite."""

    model_config = example(
        **STREAM, feature_names=["cpu", "mem"], **_CLUSTER, rule="penalty", mean=[1.2, 3.4], variance=[4.1, 2.0]
    )

    feature_names: list[str] | None
    """Names of the features, in the order of the numbers of a mean. null where they have none."""
    id: int
    label: str | None
    weight: float
    mass: float
    components: list[int]
    rule: _Rule
    mean: list[float | None]
    variance: list[float | None]
