"""Clusters of components: a tree over the components of a mixture, its cuts, and changes between cuts.

A component is one distribution of the mixture. A group in the data whose shape is not the family's is covered by
several components. A cluster brings these together.
"""

from shoal.clusters.changes import ClusterChange, ClusterChangeKind, changes
from shoal.clusters.cut import Cluster, Clustering, CutRule, Level, check_level, cut, telling_of_clusters
from shoal.clusters.hierarchy import Hierarchy, hierarchy_of

__all__ = [
    "Cluster",
    "ClusterChange",
    "ClusterChangeKind",
    "Clustering",
    "CutRule",
    "Hierarchy",
    "Level",
    "changes",
    "check_level",
    "cut",
    "hierarchy_of",
    "telling_of_clusters",
]
