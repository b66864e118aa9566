"""Changes of identity, as data: a user follows a cluster through its life by these."""

from typing import Literal, NamedTuple, TypeAlias

EventKind: TypeAlias = Literal["born", "merged", "pruned", "split", "refined", "capacity"]


class Event(NamedTuple):
    """One change of identity.

    born: no parents, the newborn as child. merged: all that were joined (heaviest first) as parents, the survivor as
    child, whose id is that of a parent. pruned: the component as parent, no children. split: one parent, its children.
    refined: the old components as parents, the new as children. capacity: neither; births are refused from here on.
    """

    offset: int
    """Points seen when it happened, up to and including the point that caused it."""

    kind: EventKind
    parents: tuple[int, ...]
    children: tuple[int, ...]
