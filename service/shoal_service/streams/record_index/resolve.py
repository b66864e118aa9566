"""The component that a record belongs to today, by the lineage of the mixture."""

from collections.abc import Iterator
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


class _Retirement(NamedTuple):
    """The end of a component."""

    at: int
    """Points seen."""
    successors: list[int]
    """The components that have its points."""


_NEVER = 1 << 62
_LIVES = _Retirement(_NEVER, [])


class Resolver:
    """Components of one snapshot, each followed once."""

    def __init__(self, snapshot: "MixtureSnapshot | FamilyTree | None") -> None:
        self._snapshot = snapshot
        self._live = set[int]() if snapshot is None else set(snapshot.ids.tolist())
        self._successors: dict[int, int | None] = {}

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
        if component not in self._successors:
            self._successors[component] = self._oldest_successor(component)
        return self._successors[component]

    def live_at(self, component: int, points_seen: int) -> int:
        """What `live` gave for a component when so many points were seen; -1 where it had gone without a successor."""
        lived = {each for each, own in self._descent(component, points_seen) if own.at > points_seen}
        return component if component in lived else min(lived, default=-1)

    def retired_after(self, component: int, points_seen: int) -> bool:
        """Whether a component, or a successor of it, retired after so many points were seen."""
        return any(points_seen < own.at < _NEVER for _, own in self._descent(component))

    def descends(self, component: int, ancestor: int) -> bool:
        """Whether a component is among those that took the points of a retired one, at any distance."""
        return any(component in own.successors for _, own in self._descent(ancestor))

    def _descent(self, component: int, until: int = _NEVER) -> Iterator[tuple[int, _Retirement]]:
        """A component and those that descend from it, each once, with its retirement. Follows only those that had
        retired when `until` points were seen.
        """
        waiting, seen = [component], set[int]()
        while waiting:
            each = waiting.pop()
            if each in seen:
                continue
            seen.add(each)
            own = self._retirements.get(each, _LIVES)
            yield each, own
            if own.at <= until:
                waiting += own.successors

    @cached_property
    def _retirements(self) -> dict[int, _Retirement]:
        """The retirement of each retired component."""
        if self._snapshot is None:
            return {}
        lineage = self._snapshot.lineage
        links, successors = lineage.links.tolist(), lineage.successors.tolist()
        return {
            component: _Retirement(retired_at, successors[links[row] : links[row + 1]])
            for row, (component, retired_at) in enumerate(
                zip(lineage.ids.tolist(), lineage.retired_at.tolist(), strict=True)
            )
        }

    def _oldest_successor(self, component: int) -> int | None:
        if self._snapshot is None:
            return None
        from shoal.mixture import successors_of

        return min(
            (live for live in successors_of(self._snapshot.lineage, component) if live in self._live), default=None
        )
