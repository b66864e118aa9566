"""The tree of a mixture's components, and its cut into clusters."""

from typing import Any, NamedTuple

import numpy as np

from shoal.clusters.ward import weighted_ward
from shoal.errors import SettingError, counted
from shoal.mixture import MixtureSnapshot
from shoal.points.arrays import Array, BoolArray, IntArray, read_only


class Hierarchy(NamedTuple):
    """A tree over the K live components of a mixture. All arrays are read-only."""

    linkage: Array
    """(K - 1, 4) as SciPy has it: two nodes, the height of their join, the number of components below. Nodes below K
    are components by ascending id, and node K + r is the join of row r. Heights never fall."""
    ids: IntArray
    """(K,) of the components, ascending."""
    masses: Array
    """(K,) number of points of each component."""
    born_at: IntArray
    """(K,) points seen at the birth of each component."""


class Cluster(NamedTuple):
    """A group of components."""

    id: int
    """The id of its oldest component."""
    components: tuple[int, ...]
    """Ids, ascending."""
    mass: float
    """Number of points of its components."""


class Clustering(NamedTuple):
    """A division of the K live components into C clusters. All arrays are read-only."""

    clusters: tuple[Cluster, ...]
    """By descending mass, equals by ascending id."""
    component_ids: IntArray
    """(K,) ascending."""
    cluster_of: IntArray
    """(K,) id of the cluster of each component."""

    @property
    def n_clusters(self) -> int:
        """C."""
        return len(self.clusters)

    def of_components(self, ids: IntArray) -> IntArray:
        """The cluster's id of each id of a live component, in the shape of `ids`."""
        found: IntArray = self.cluster_of[np.searchsorted(self.component_ids, ids)]
        return found


def hierarchy_of(snapshot: MixtureSnapshot) -> Hierarchy:
    """The tree of a snapshot's components: Ward's, over their `places`, weighted by their masses.

    It is a function of the snapshot alone. Cost K^2 (D + 10) operations, memory 8 K^2 bytes.
    """
    linkage = weighted_ward(places(snapshot), snapshot.masses)
    return Hierarchy(read_only(linkage), snapshot.ids, snapshot.masses, snapshot.born_at)


def places(snapshot: MixtureSnapshot) -> Array:
    """(K, E): where components lie, in units in which distances of different features can be compared.

    Means in the standardised units that `prior="auto"` chose. Where nothing was standardised, the family's own
    `positions`: means in units of the deviation within components, or square roots of frequencies and the like.
    """
    if snapshot.prior is None or snapshot.n_components == 0:
        return np.zeros((0, 1))
    if not snapshot.prior.domain.located or snapshot.settings.prior != "auto":
        return snapshot.prior.positions(snapshot.stats)
    means = snapshot.prior.predictive_mean(snapshot.prior.posterior(snapshot.stats))
    known: BoolArray = np.asarray(np.isfinite(means).all(axis=1))
    middle = means[known].mean(axis=0) if known.any() else np.zeros(means.shape[1])
    return np.where(known[:, None], means, middle)


def cut(hierarchy: Hierarchy, n_clusters: Any) -> Clustering:
    """The clusters that are left when the last `n_clusters` - 1 joins of the tree are undone.

    Raises SettingError unless 1 <= n_clusters <= K; a mixture without components has no clusters, whatever is asked.
    """
    k = len(hierarchy.ids)
    if isinstance(n_clusters, bool) or not isinstance(n_clusters, (int, np.integer)) or n_clusters < 1:
        raise SettingError(f"n_clusters is {n_clusters!r}; give a whole number from 1")
    if k and n_clusters > k:
        raise SettingError(f"n_clusters is {n_clusters}, but there are {counted(k, 'component')}; give at most {k}")
    return grouped(hierarchy, members(hierarchy.linkage, k - int(n_clusters)))


def members(linkage: Array, n_joins: int) -> IntArray:
    """(K,) a number of each component's group after the first `n_joins` joins of the tree."""
    n = len(linkage) + 1
    group = np.arange(n + max(n_joins, 0))
    for row in range(n_joins - 1, -1, -1):
        group[linkage[row, :2].astype(np.int64)] = group[n + row]
    return group[:n]


def grouped(hierarchy: Hierarchy, group: IntArray) -> Clustering:
    """The clustering whose clusters are the components of equal number in `group` (K,), in any numbers."""
    k = len(hierarchy.ids)
    _, group = np.unique(group[:k], return_inverse=True)
    oldest = np.lexsort((hierarchy.ids, hierarchy.born_at))[::-1]
    first = np.zeros(k, dtype=np.int64)
    first[group[oldest]] = oldest  # the oldest is written last
    cluster_of = hierarchy.ids[first[group]]
    mass = np.bincount(group, weights=hierarchy.masses, minlength=1)
    rows = [
        Cluster(int(hierarchy.ids[first[g]]), tuple(hierarchy.ids[group == g].tolist()), float(mass[g]))
        for g in range(int(group.max(initial=-1)) + 1)
    ]
    rows.sort(key=lambda cluster: (-cluster.mass, cluster.id))
    return Clustering(tuple(rows), hierarchy.ids, read_only(cluster_of))
