"""The component that a record belongs to today, by the lineage of the mixture."""

from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

from shoal.points.arrays import IntArray

if TYPE_CHECKING:
    from shoal.mixture import Lineage, MixtureSnapshot


class FamilyTree(NamedTuple):
    """Descent of components, as a snapshot knows it."""

    ids: IntArray
    """(K,) the live ones."""
    lineage: "Lineage"


class Resolved(NamedTuple):
    """A live component, and how it follows from what is stored."""

    component: int | None
    """None where the component went without a successor."""
    how: Literal["exact", "refined", "inherited"]
    """`exact`: the component that was assigned when the point was learnt lives. `refined`: the one that a refinement
    assigned again lives. `inherited`: the successor of either."""


class Resolver:
    """Components of one snapshot, each followed once."""

    def __init__(self, snapshot: "MixtureSnapshot | FamilyTree | None") -> None:
        self._snapshot = snapshot
        self._live = set[int]() if snapshot is None else set(snapshot.ids.tolist())
        self._heirs: dict[int, int | None] = {}

    def of(self, assigned: int, refined: int) -> Resolved:
        """Of a record that was assigned to a component, and to `refined` by a refinement (-1: by none)."""
        component = assigned if refined < 0 else refined
        live = self.live(component)
        if live != component:
            return Resolved(live, "inherited")
        return Resolved(live, "exact" if refined < 0 else "refined")

    def live(self, component: int) -> int | None:
        """The component itself if it lives, else the oldest of those that descend from it.

        The oldest, since masses change with every point: so a record moves only when a component retires.
        """
        if component in self._live:
            return component
        if component not in self._heirs:
            self._heirs[component] = self._oldest_heir(component)
        return self._heirs[component]

    def live_at(self, component: int, points_seen: int) -> int:
        """What `live` gave for a component when so many points were seen; -1 where it had gone without a successor."""
        lived, heirs, seen = set[int](), [component], set[int]()
        while heirs:
            heir = heirs.pop()
            if heir in seen:
                continue
            seen.add(heir)
            retired_at, successors = self._retirements.get(heir, (points_seen + 1, []))
            if retired_at > points_seen:
                lived.add(heir)
            else:
                heirs += successors
        return component if component in lived else min(lived, default=-1)

    def retired_after(self, component: int, points_seen: int) -> bool:
        """Whether a component, or a successor of it, retired after so many points were seen."""
        heirs, seen = [component], set[int]()
        while heirs:
            heir = heirs.pop()
            if heir in seen or heir not in self._retirements:
                continue
            seen.add(heir)
            retired_at, successors = self._retirements[heir]
            if retired_at > points_seen:
                return True
            heirs += successors
        return False

    def descends(self, component: int, ancestor: int) -> bool:
        """Whether a component is among those that took the points of a retired one, at any distance."""
        heirs, seen = [ancestor], set[int]()
        while heirs:
            heir = heirs.pop()
            if heir in seen or heir not in self._retirements:
                continue
            seen.add(heir)
            successors = self._retirements[heir][1]
            if component in successors:
                return True
            heirs += successors
        return False

    @cached_property
    def _retirements(self) -> dict[int, tuple[int, list[int]]]:
        """When each retired component did, and what it left its points to."""
        if self._snapshot is None:
            return {}
        lineage = self._snapshot.lineage
        links, successors = lineage.links.tolist(), lineage.successors.tolist()
        return {
            component: (retired_at, successors[links[row] : links[row + 1]])
            for row, (component, retired_at) in enumerate(
                zip(lineage.ids.tolist(), lineage.retired_at.tolist(), strict=True)
            )
        }

    def _oldest_heir(self, component: int) -> int | None:
        if self._snapshot is None:
            return None
        from shoal.mixture import successors_of

        return min(
            (heir for heir in successors_of(self._snapshot.lineage, component) if heir in self._live), default=None
        )
