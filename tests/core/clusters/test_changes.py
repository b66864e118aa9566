"""Changes between two clusterings, against what was done to the first."""

import numpy as np

from shoal.clusters import Cluster, ClusterChange, Clustering, changes


def clustering(*groups: tuple[int, ...]) -> Clustering:
    """Clusters of these components, each under its first one's id."""
    clusters = tuple(Cluster(group[0], tuple(sorted(group)), float(len(group))) for group in groups)
    pairs = sorted((component, group[0]) for group in groups for component in group)
    ids = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Clustering(clusters, ids[:, 0], ids[:, 1], "number")


def test_no_change() -> None:
    before = clustering((0, 3), (1, 2))
    assert changes(before, before) == ()
    assert changes(before, clustering((0, 3, 9), (1,))) == ()  # one component came, one went: the clusters are the same


def test_merged_and_split() -> None:
    two, one = clustering((0, 3), (1, 2), (7,)), clustering((0, 1, 2, 3), (7,))
    assert changes(two, one) == (ClusterChange("merged", (0, 1), (0,)),)
    assert changes(one, two) == (ClusterChange("split", (0,), (0, 1)),)


def test_born_gone_and_renamed() -> None:
    before, after = clustering((0,), (1, 2)), clustering((2, 5), (6, 7))
    assert changes(before, after) == (
        ClusterChange("born", (), (6,)),
        ClusterChange("gone", (0,), ()),
        ClusterChange("renamed", (1,), (2,)),
    )


def test_a_component_that_moved_relates_both_clusters() -> None:
    before, after = clustering((0, 2, 3), (1, 4), (8,)), clustering((0, 2), (1, 3, 4), (8,))
    assert changes(before, after) == (ClusterChange("regrouped", (0, 1), (0, 1)),)


def test_successors_of_components_that_have_gone_count_as_them() -> None:
    before, after = clustering((0, 1), (4,)), clustering((9,), (10, 11))
    successors = {0: (9,), 1: (9, 10), 4: ()}
    assert changes(before, after, successors.__getitem__) == (
        ClusterChange("split", (0,), (9, 10)),
        ClusterChange("gone", (4,), ()),
    )


def test_nothing_before_and_nothing_after() -> None:
    none = clustering()
    some = clustering((0,), (1,))
    assert [one.kind for one in changes(none, some)] == ["born", "born"]
    assert [one.kind for one in changes(some, none)] == ["gone", "gone"]
    assert changes(none, none) == ()
