"""Clusters: the components of a stream in groups."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shoal.points.arrays import Array
from shoal_service.client.flow import Flow, Request, Session, exchange
from shoal_service.client.http import data_path, given, json_of


@dataclass(frozen=True)
class Cluster:
    """One cluster: a group of components."""

    id: int
    """The id of its oldest component."""
    weight: float
    """Probability that the next point belongs here."""
    mass: float
    """Number of points, after forgetting."""
    components: tuple[int, ...]
    """Ids, ascending."""
    mean: Array | None = field(default=None, repr=False)
    """(D,) of its points; only from `cluster(id)`."""
    variance: Array | None = field(default=None, repr=False)
    """(D,) of its points; NaN where it is infinite. Only from `cluster(id)`."""
    label: str | None = None
    """The label of its oldest component."""
    raw: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The whole answer of the server."""

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> "Cluster":
        """Read one cluster of an answer."""
        mean, variance = (
            None if body.get(name) is None else np.array(body[name], dtype=np.float64) for name in ("mean", "variance")
        )
        components = tuple(int(one) for one in body["components"])
        numbers = int(body["id"]), float(body["weight"]), float(body["mass"])
        return cls(*numbers, components, mean, variance, body.get("label"), body)


@dataclass(frozen=True)
class Clusters:
    """All clusters of a stream, largest first: a sequence of `Cluster`."""

    stream: str
    incarnation: str | None
    log_offset: int
    points_seen: int
    status: str
    """`live`, `warming_up` while the stream learns the scale of the data, or `empty`."""
    rule: str | None
    """What chose the number: `number`, `resolution`, `connected`, `penalty` or `components`. None without clusters."""
    clusters: tuple[Cluster, ...] = field(repr=False)

    def __len__(self) -> int:
        return len(self.clusters)

    def __iter__(self) -> Iterator[Cluster]:
        return iter(self.clusters)

    def __getitem__(self, index: int) -> Cluster:
        return self.clusters[index]


def clusters(
    session: Session,
    /,
    n_clusters: int | None = None,
    *,
    resolution: float | None = None,
    min_offset: int | None = None,
) -> Flow[Clusters]:
    """Read the clusters of the stream, largest first: as many as the data show, or `n_clusters`, or more for a higher
    `resolution`. `min_offset`: as for `components`.

    Raises InvalidRequestError for more clusters than components, and if both are given.
    """
    params = given(n=n_clusters, resolution=resolution, min_offset=min_offset)
    body = json_of((yield from exchange(session, Request("GET", data_path(session, "clusters"), params))), "clusters")
    return Clusters(
        stream=body["stream"],
        incarnation=body.get("incarnation"),
        log_offset=body["log_offset"],
        points_seen=body["points_seen"],
        status=body["status"],
        rule=body["rule"],
        clusters=tuple(Cluster.from_json(entry) for entry in body["clusters"]),
    )


def cluster(
    session: Session,
    /,
    cluster_id: int,
    *,
    n_clusters: int | None = None,
    resolution: float | None = None,
    min_offset: int | None = None,
) -> Flow[Cluster]:
    """Read one cluster, with the mean and variance of its points. The choice of clusters is that of `clusters`.

    Raises NotFoundError for an id that no cluster has.
    """
    params = given(n=n_clusters, resolution=resolution, min_offset=min_offset)
    path = data_path(session, f"clusters/{int(cluster_id)}")
    return Cluster.from_json(json_of((yield from exchange(session, Request("GET", path, params))), "id", "components"))
