"""Clusters of a stream at the last check, and what has become of them.

The clusters are those of the default cut. They are compared after the entry of the log that reaches 1,024, 2,048,
4,096 and so on up to 65,536 points, then every 65,536: the same components may be other clusters once their means and
masses have changed. They are also compared after each adopted refinement, if other components live than before. Offsets
of the log decide, so a replay gives the same events. A stream of more than `MAX_COMPONENTS` is left out: its tree would
hold up the learner.
"""

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shoal.points.arrays import IntArray

if TYPE_CHECKING:
    from shoal.clusters import Clustering
    from shoal.mixture import MixtureState

FIRST_CHECK, LONGEST_STEP = 1_024, 65_536
"""Points seen at the first check, and most points between two checks."""
MAX_COMPONENTS = 1_000


class KnownClusters(NamedTuple):
    """Clusters at the last check."""

    component_ids: IntArray
    """(K,) ascending."""
    cluster_of: IntArray
    """(K,) id of the cluster of each component."""
    due: int
    """Points seen at the next check."""


def no_clusters() -> KnownClusters:
    """Before the first check."""
    none = np.zeros(0, dtype=np.int64)
    return KnownClusters(none, none, FIRST_CHECK)


def check_clusters(
    known: KnownClusters, state: "MixtureState", *, at_once: bool
) -> tuple[KnownClusters, list[tuple[str, dict[str, Any]]]]:
    """Check the clusters of a state if that is due, or `at_once`. Gives kind and data of each event."""
    is_due = state.points_seen >= known.due
    if not state.frozen or not (at_once or is_due):
        return known, []
    due = next_check(state.points_seen)
    live = np.sort(state.live_ids)
    if len(live) > MAX_COMPONENTS or (not is_due and np.array_equal(live, known.component_ids)):
        return known._replace(due=due), []
    from shoal.clusters import changes, cut, hierarchy_of
    from shoal.mixture import snapshot_of, successors_of

    after = cut(hierarchy_of(snapshot_of(state)))
    found = changes(_clustering(known), after, partial(successors_of, state.lineage))
    events = [
        (f"cluster-{one.kind}", {"offset": state.points_seen, "parents": [*one.parents], "children": [*one.children]})
        for one in found
    ]
    return KnownClusters(after.component_ids, after.cluster_of, due), events


def next_check(points_seen: int) -> int:
    """The first offset after `points_seen` at which the clusters are checked."""
    if points_seen < FIRST_CHECK:
        return FIRST_CHECK
    if points_seen < LONGEST_STEP:
        return 1 << points_seen.bit_length()
    return (points_seen // LONGEST_STEP + 1) * LONGEST_STEP


def _clustering(known: KnownClusters) -> "Clustering":
    from shoal.clusters import Cluster, Clustering

    members: dict[int, list[int]] = {}
    for component, cluster in zip(known.component_ids.tolist(), known.cluster_of.tolist(), strict=True):
        members.setdefault(cluster, []).append(component)
    clusters = tuple(Cluster(cluster, tuple(ids), 0.0) for cluster, ids in sorted(members.items()))
    return Clustering(clusters, known.component_ids, known.cluster_of, "components")


def clusters_to_plain(known: KnownClusters) -> list[Any]:
    """Convert to plain values."""
    return [known.component_ids.tolist(), known.cluster_of.tolist(), known.due]


def clusters_from_plain(values: list[Any]) -> KnownClusters:
    """Inverse of `clusters_to_plain`."""
    ids, clusters, due = values
    return KnownClusters(np.array(ids, dtype=np.int64), np.array(clusters, dtype=np.int64), due)
