"""The component that a record belongs to today, by the lineage of the mixture."""

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from shoal.mixture import MixtureSnapshot


class Resolved(NamedTuple):
    """A live component, and how it follows from what is stored."""

    component: int | None
    """None where the component went without an heir."""
    how: Literal["exact", "refined", "inherited"]
    """`exact`: the component that was assigned when the point was learnt lives. `refined`: the one that a refinement
    assigned anew lives. `inherited`: the heir of either."""


class Resolver:
    """Components of one snapshot, each followed once."""

    def __init__(self, snapshot: "MixtureSnapshot | None") -> None:
        self._snapshot = snapshot
        self._mass = {} if snapshot is None else dict(zip(snapshot.ids.tolist(), snapshot.masses.tolist(), strict=True))
        self._heirs: dict[int, int | None] = {}

    def of(self, assigned: int, refined: int) -> Resolved:
        """Of a record that was assigned to a component, and to `refined` by a refinement (-1: by none)."""
        component = assigned if refined < 0 else refined
        live = self.live(component)
        if live != component:
            return Resolved(live, "inherited")
        return Resolved(live, "exact" if refined < 0 else "refined")

    def live(self, component: int) -> int | None:
        """The component itself if it lives, else the heaviest of those that descend from it."""
        if component in self._mass:
            return component
        if component not in self._heirs:
            self._heirs[component] = self._heaviest_heir(component)
        return self._heirs[component]

    def _heaviest_heir(self, component: int) -> int | None:
        if self._snapshot is None:
            return None
        from shoal.mixture import successors_of

        heirs = [heir for heir in successors_of(self._snapshot.lineage, component) if heir in self._mass]
        return max(heirs, key=lambda heir: (self._mass[heir], -heir), default=None)
