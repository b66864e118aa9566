"""Values that the displays read from a fitted estimator."""

from typing import Any, NamedTuple

import numpy as np

from shoal.clusters import Clustering, cut, hierarchy_of
from shoal.errors import SettingError
from shoal.mixture import MixtureSnapshot

COLOURED_BY = ("cluster", "component")


class Grouping(NamedTuple):
    """The ids by which components are coloured."""

    by: str
    """`cluster` or `component`."""
    group_of: dict[int, int]
    """Of each component's id the id of its group."""


def grouping_of(mixture: MixtureSnapshot, by: str, n_clusters: int | None, resolution: float | None) -> Grouping:
    """The clusters of a mixture, or its components one each. Raises SettingError."""
    if by not in COLOURED_BY:
        raise SettingError(f'color_by is {by!r}; give "cluster" or "component"')
    ids = mixture.ids.tolist()
    if by == "component":
        if n_clusters is not None or resolution is not None:
            raise SettingError('n_clusters and resolution choose clusters; give color_by="cluster" with them')
        return Grouping(by, dict(zip(ids, ids, strict=True)))
    return Grouping(by, clusters_by_component(cut(hierarchy_of(mixture), n_clusters, resolution)))


def clusters_by_component(clustering: Clustering) -> dict[int, int]:
    """Of each component's id the id of its cluster."""
    return dict(zip(clustering.component_ids.tolist(), clustering.cluster_of.tolist(), strict=True))


def evenly(n: int, most: int) -> Any:
    """Indices of at most `most` of n rows at equal distances."""
    return np.arange(n) if n <= most else np.linspace(0, n - 1, most).astype(np.int64)
