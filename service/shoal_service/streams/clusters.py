"""Clusters of a published view: groups of its components, and the cluster of each point.

The tree of a view's components is made at the first question and kept as long as the view.
"""

from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from shoal.errors import UnknownComponentError
from shoal.points.arrays import IntArray
from shoal_service.errors import NotRefinableError
from shoal_service.streams.view import PublishedView

if TYPE_CHECKING:
    from shoal.clusters import Cluster, Clustering, Hierarchy
    from shoal.mixture import MixtureSnapshot

_trees: "WeakKeyDictionary[MixtureSnapshot, Hierarchy]" = WeakKeyDictionary()


STABILITY_POINTS = 10_000
"""Most points on which stability is measured: two learners learn half of them each."""


class ClusterChoice(NamedTuple):
    """Clusters that a request asks for; by default as many as the data show."""

    n: int | None = None
    resolution: float | None = None


def clusters_of(view: PublishedView, choice: ClusterChoice) -> dict[str, Any]:
    """All clusters, largest first, and the rule that chose their number. Raises SettingError."""
    if view.snapshot is None or view.snapshot.n_components == 0:
        return {"rule": None, "clusters": []}
    found = _clustering(view.snapshot, choice)
    total = _total(view.snapshot)
    return {"rule": found.rule, "clusters": [_row(cluster, total) for cluster in found.clusters]}


def cluster_of(view: PublishedView, cluster: int, choice: ClusterChoice) -> dict[str, Any]:
    """One cluster by its id, with the mean and variance of its points. Raises UnknownComponentError, SettingError."""
    snapshot = view.snapshot
    if snapshot is None or snapshot.n_components == 0:
        raise UnknownComponentError(f"cluster {cluster} is not known; stream {view.stream!r} has no points yet")
    found = _clustering(snapshot, choice)
    for one in found.clusters:
        if one.id == cluster:
            return {**_row(one, _total(snapshot)), "rule": found.rule, **_moments(snapshot, one)}
    if np.any(found.component_ids == cluster):
        owner = int(found.of_components(np.array([cluster]))[0])
        raise UnknownComponentError(f"component {cluster} belongs to cluster {owner}; ask for that one")
    raise UnknownComponentError(f"cluster {cluster} is not live; GET /components/{cluster} says what became of it")


def check_window(view: PublishedView) -> None:
    """Raise NotRefinableError unless the stream keeps a window, on which stability is measured."""
    if view.snapshot is None or view.snapshot.settings.window_rows == 0:
        raise NotRefinableError(
            f"stream {view.stream!r} keeps no window, on which stability is measured; set its window above 0"
        )


def stability_of_points(view: PublishedView, x: Any, choice: ClusterChoice) -> dict[str, Any]:
    """Agreement of two learners, each of every second of the points x (N, D), the newest of the window.

    Raises NoPointsError for fewer than twenty, SettingError. Costs about as much as learning them.
    """
    from shoal.estimators.stability import stability_of

    assert view.snapshot is not None
    settings = view.snapshot.settings
    found = stability_of(settings, x[-settings.window_rows :], choice.n, choice.resolution)
    return {
        "agreement": found.agreement,
        "component_agreement": found.component_agreement,
        "n_clusters": list(found.n_clusters),
        "n_points": found.n_rows,
    }


def cluster_ids_of(view: PublishedView, components: IntArray, choice: ClusterChoice) -> list[int | None]:
    """The cluster's id of each component id (N,), live or retired: that of the oldest successor of a retired one. None
    where nothing of the component is left. Raises SettingError.
    """
    from shoal.mixture import successors_of

    snapshot = view.snapshot
    assert snapshot is not None, "points have components, so the view has a mixture"
    found = _clustering(snapshot, choice)
    cluster: dict[int, int | None] = dict(zip(found.component_ids.tolist(), found.cluster_of.tolist(), strict=True))
    for component in set(components.tolist()) - cluster.keys():
        successors = [live for live in successors_of(snapshot.lineage, component) if live in cluster]
        cluster[component] = cluster[successors[0]] if successors else None
    return [cluster[component] for component in components.tolist()]


def _clustering(snapshot: "MixtureSnapshot", choice: ClusterChoice) -> "Clustering":
    from shoal.clusters import cut, hierarchy_of

    tree = _trees.get(snapshot)
    if tree is None:
        tree = _trees[snapshot] = hierarchy_of(snapshot)
    return cut(tree, choice.n, choice.resolution)


def _row(cluster: "Cluster", total: float) -> dict[str, Any]:
    return {
        "id": cluster.id,
        "weight": cluster.mass / total,
        "mass": cluster.mass,
        "components": list(cluster.components),
    }


def _total(snapshot: "MixtureSnapshot") -> float:
    """Mass of all components and the concentration, as in the weights of components."""
    return float(snapshot.masses.sum()) + float(snapshot.settings.concentration)


def _moments(snapshot: "MixtureSnapshot", cluster: "Cluster") -> dict[str, Any]:
    """Mean and variance (D,) of the points of a cluster: those of its components, and what lies between their means."""
    rows = np.isin(snapshot.ids, cluster.components)
    share = snapshot.masses[rows] / snapshot.masses[rows].sum()
    mean = share @ snapshot.means[rows]
    variance = share @ (snapshot.variances[rows] + (snapshot.means[rows] - mean) ** 2)
    return {"mean": mean, "variance": variance}
