"""Cuts of a tree of components into clusters: a number of them, a resolution, or the default."""

import math
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from shoal.clusters.hierarchy import Hierarchy
from shoal.errors import SettingError, UnknownComponentError, counted
from shoal.families import concatenated, take
from shoal.mixture import MOST_TELLING, MixtureSnapshot, TellingFeature
from shoal.points.arrays import Array, IntArray, read_only

CutRule: TypeAlias = Literal["number", "resolution", "connected", "penalty", "components"]
Level: TypeAlias = Literal["component", "cluster"]

_PENALTY = 3.0
"""A further cluster must improve the fit by so many times what the Bayesian information criterion asks. At 1, groups
that are not normal are divided; at 6, handwritten digits are one. Chosen on the sets of `benchmarks/real.py`."""


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
    rule: CutRule
    """What chose the number of clusters: the caller's number or resolution, or by default connected groups, the
    penalty, or components, one each."""

    @property
    def n_clusters(self) -> int:
        """C."""
        return len(self.clusters)

    def of_components(self, ids: IntArray) -> IntArray:
        """The cluster's id of each id of a component, in the shape of `ids`.

        Raises UnknownComponentError for an id that is not one of `component_ids`.
        """
        asked, known = np.asarray(ids), self.component_ids
        if not (found := np.isin(asked, known)).all():
            raise UnknownComponentError(
                f"component {asked[~found].flat[0]} is in no cluster of these; give ids of component_ids"
            )
        clusters: IntArray = self.cluster_of[np.searchsorted(known, asked)]
        return clusters


def cut(hierarchy: Hierarchy, n_clusters: Any = None, resolution: Any = None) -> Clustering:
    """The clusters of a tree of components.

    n_clusters: the last `n_clusters` - 1 joins are undone, 1 to K. resolution > 0: the number of clusters is that of
    least misfit plus penalty, and the penalty of a cluster is 3 / resolution times that of the Bayesian information
    criterion; a higher resolution gives more clusters. Neither: the connected groups if there are any, or resolution 1.
    If all would be one cluster then, a lower penalty is tried, down to that of the criterion, and after that clusters
    with covariances of their own.
    Only `gaussian`, `student`, `diagonal` and `known_covariance` have a resolution. By default each component of
    another family is a cluster.

    A mixture without components has no clusters, whatever is asked. Raises SettingError for values out of range, if
    both are given, and for the resolution of a family that has none.
    """
    k = len(hierarchy.ids)
    if n_clusters is not None:
        if resolution is not None:
            raise SettingError(f"n_clusters is {n_clusters} and resolution is {resolution}; give one of them")
        return _grouped(hierarchy, _checked_number(n_clusters, k), "number")
    if resolution is not None:
        if k and not len(hierarchy.misfit):
            raise SettingError(
                "resolution needs one of the families gaussian, student, diagonal and known_covariance; give n_clusters"
            )
        return _grouped(hierarchy, _best_number(hierarchy, _checked_resolution(resolution)), "resolution")
    if hierarchy.n_connected:
        return _grouped(hierarchy, hierarchy.n_connected, "connected")
    if k and not len(hierarchy.misfit):
        return _grouped(hierarchy, k, "components")
    return _grouped(hierarchy, _default_number(hierarchy), "penalty")


def check_level(level: Any, n_clusters: Any, resolution: Any) -> None:
    """Raise SettingError for an unknown level, and for a number or a resolution at the level of components."""
    if level not in get_args(Level):
        raise SettingError(f'level is {level!r}; give "component" or "cluster"')
    if level == "component" and (n_clusters is not None or resolution is not None):
        raise SettingError('n_clusters and resolution choose clusters; give level="cluster" with them')


def _checked_number(n_clusters: Any, k: int) -> int:
    if isinstance(n_clusters, bool) or not isinstance(n_clusters, (int, np.integer)) or n_clusters < 1:
        raise SettingError(f"n_clusters is {n_clusters!r}; give a whole number from 1")
    if k and n_clusters > k:
        raise SettingError(
            f"{n_clusters} clusters are asked for, but there are {counted(k, 'component')}; ask for at most {k}"
        )
    return int(n_clusters)


def _checked_resolution(resolution: Any) -> float:
    number = isinstance(resolution, (int, float, np.integer, np.floating)) and not isinstance(resolution, bool)
    if not number or not 0.0 < resolution < math.inf:
        raise SettingError(f"resolution is {resolution!r}; give a number above 0, more than 1 for more clusters")
    return float(resolution)


def _best_number(hierarchy: Hierarchy, resolution: float) -> int:
    return _least(hierarchy.misfit, _PENALTY / resolution * hierarchy.cost, hierarchy.fewest)


def _least(misfit: Array, penalty: float, fewest: int) -> int:
    """The number of clusters, at least `fewest`, of least misfit (K,) plus penalty; 0 without components."""
    number = np.arange(fewest, len(misfit) + 1)
    return fewest + int(np.argmin(misfit[number - 1] + penalty * number)) if len(misfit) else 0


def _default_number(hierarchy: Hierarchy) -> int:
    """The number of resolution 1. Where that is the fewest, mostly one, the number that gains most for each further
    cluster, if that is more than the criterion asks without the factor.

    The factor is for groups that are not normal. In many features and few rows it hid all groups: 3,000 handwritten
    digits were one cluster of 71 components, and are 17.

    Common variances do not describe a narrow group within a wide one. So where they say one cluster, the number is
    that of normal clusters with covariances of their own. They pay for overlap already, and need no factor. For
    example, two such groups of 2,000 points each in 20 features were one cluster of two components. By this measure
    nearly every component of one skewed group would be a cluster. So more than two clusters, and more than half as
    many as components, are not accepted: all stay one.
    """
    found, k, fewest = _best_number(hierarchy, 1.0), len(hierarchy.ids), hierarchy.fewest
    if found != fewest or k == fewest:
        return found
    gain = (hierarchy.misfit[fewest - 1] - hierarchy.misfit[fewest:]) / np.arange(1, k - fewest + 1)
    best = int(np.argmax(gain))
    if gain[best] > hierarchy.cost:
        return fewest + best + 1
    number = _least(hierarchy.own_misfit, hierarchy.own_cost, 1)
    return max(fewest, number) if number <= max(2, k // 2) else fewest


def _members(linkage: Array, n_joins: int) -> IntArray:
    """(K,) a number of each component's group after the first `n_joins` joins of the tree."""
    n = len(linkage) + 1
    group = np.arange(n + n_joins)
    for row in range(n_joins - 1, -1, -1):
        group[linkage[row, :2].astype(np.int64)] = group[n + row]
    return group[:n]


def _grouped(hierarchy: Hierarchy, n_clusters: int, rule: CutRule) -> Clustering:
    """The clusters after all joins but the last `n_clusters` - 1."""
    k = len(hierarchy.ids)
    if k == 0:
        return Clustering((), hierarchy.ids, hierarchy.ids, rule)
    _, group = np.unique(_members(hierarchy.linkage, k - n_clusters), return_inverse=True)
    youngest_first = np.lexsort((hierarchy.ids, hierarchy.born_at))[::-1]
    oldest = np.empty(n_clusters, dtype=np.int64)
    oldest[group[youngest_first]] = youngest_first  # the oldest is written last
    ids = hierarchy.ids[oldest]
    masses = np.bincount(group, weights=hierarchy.masses)
    by_group = np.split(hierarchy.ids[np.argsort(group, kind="stable")], np.cumsum(np.bincount(group))[:-1])
    rows = zip(ids.tolist(), by_group, masses.tolist(), strict=True)
    clusters = [Cluster(one, tuple(components.tolist()), mass) for one, components, mass in rows]
    clusters.sort(key=lambda cluster: (-cluster.mass, cluster.id))
    return Clustering(tuple(clusters), hierarchy.ids, read_only(ids[group]), rule)


def telling_of_clusters(
    snapshot: MixtureSnapshot, clustering: Clustering, n: int = MOST_TELLING
) -> dict[int, list[TellingFeature]]:
    """At most `n` features of each cluster, by its id, most telling first; as `MixtureSnapshot.telling`.

    A cluster has the statistics of its components together. `clustering` is a cut of the snapshot's tree.
    """
    family = snapshot.prior
    if family is None or not clustering.clusters:
        return {}
    row_of = {one: row for row, one in enumerate(snapshot.ids.tolist())}
    merged = []
    for cluster in clustering.clusters:
        first, *others = (row_of[one] for one in cluster.components)
        stats = take(snapshot.stats, [first])
        for row in others:
            stats = family.add(stats, take(snapshot.stats, [row]))
        merged.append(stats)
    stats = concatenated(*merged)
    ids = np.array([cluster.id for cluster in clustering.clusters], dtype=np.int64)
    whole = replace(snapshot, ids=read_only(ids), masses=stats[0], stats=stats, live=None)
    return dict(zip(ids.tolist(), whole.telling(n=n), strict=True))
