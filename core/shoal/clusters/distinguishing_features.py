"""Telling features of clusters: those in which the points of a cluster differ most from all others."""

from dataclasses import replace

import numpy as np

from shoal.clusters.cut import Clustering
from shoal.families import take
from shoal.mixture import MOST_TELLING, MixtureSnapshot, TellingFeature
from shoal.points.arrays import read_only


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
    stats = type(merged[0])(*(np.concatenate(fields) for fields in zip(*merged, strict=True)))
    ids = np.array([cluster.id for cluster in clustering.clusters], dtype=np.int64)
    whole = replace(snapshot, ids=read_only(ids), masses=stats[0], stats=stats, live=None)
    return dict(zip(ids.tolist(), whole.telling(n=n), strict=True))
