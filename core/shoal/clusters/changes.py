"""Changes between two clusterings of one stream: which clusters split, merged, appeared or went."""

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

from shoal.clusters.cut import Clustering

ClusterChangeKind: TypeAlias = Literal["born", "gone", "merged", "split", "regrouped", "renamed"]


class ClusterChange(NamedTuple):
    """One change of clusters.

    born: a cluster whose components are all new. gone: one whose components have all gone, without successors. merged:
    several parents, one child. split: one parent, several children. regrouped: several of both. renamed: one of both,
    with another id, because the oldest component has gone.
    """

    kind: ClusterChangeKind
    parents: tuple[int, ...]
    """Ids of clusters before, ascending."""
    children: tuple[int, ...]
    """Ids of clusters after, ascending."""


def changes(
    before: Clustering,
    after: Clustering,
    successors: Callable[[int], tuple[int, ...]] | None = None,
) -> tuple[ClusterChange, ...]:
    """The changes from one clustering to a later one, by first id of parents, then of children.

    A cluster before and one after are related if they have a component in common. `successors` gives the live ids that
    descend from a component that is no longer live, and these count as the component (`mixture.successors_of`).
    Clusters that keep their id and are related to no other are no change, whatever components they gained or lost.
    """
    later = dict(zip(after.component_ids.tolist(), after.cluster_of.tolist(), strict=True))
    children: dict[int, set[int]] = {cluster.id: set() for cluster in before.clusters}
    parents: dict[int, set[int]] = {cluster.id: set() for cluster in after.clusters}
    for component, old in zip(before.component_ids.tolist(), before.cluster_of.tolist(), strict=True):
        lasting = (component,) if component in later or successors is None else successors(component)
        for live in lasting:
            if live in later:
                children[old].add(later[live])
                parents[later[live]].add(old)
    found = [_change(*group) for group in _related(children, parents)]
    return tuple(sorted((one for one in found if one is not None), key=lambda one: (one.parents, one.children)))


def _related(children: dict[int, set[int]], parents: dict[int, set[int]]) -> list[tuple[set[int], set[int]]]:
    """Smallest groups of clusters before and after with no relation out of the group."""
    groups = [(set[int](), {new}) for new, old in parents.items() if not old]
    waiting = set(children)
    while waiting:
        first = waiting.pop()
        old, new, edge = {first}, set[int](), [first]
        while edge:
            fresh = children[edge.pop()] - new
            new |= fresh
            reached = set[int]().union(*(parents[one] for one in fresh)) - old
            old |= reached
            edge.extend(reached)
        waiting -= old
        groups.append((old, new))
    return groups


def _change(old: set[int], new: set[int]) -> ClusterChange | None:
    if old == new and len(old) == 1:
        return None
    kind: ClusterChangeKind
    if not old:
        kind = "born"
    elif not new:
        kind = "gone"
    elif len(old) > 1 and len(new) > 1:
        kind = "regrouped"
    elif len(new) > 1:
        kind = "split"
    else:
        kind = "merged" if len(old) > 1 else "renamed"
    return ClusterChange(kind, tuple(sorted(old)), tuple(sorted(new)))
