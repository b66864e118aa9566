"""What became of the splits of a search, so that none is tried in vain again. Components are known by their tags."""

import numpy as np

_SAME_MASS = 0.02
"""A component whose split was refused is tried again once its mass has changed by more than this share."""
_MOST_FAILURES = 2


class SplitHistory:
    """Refused splits, and the parents whose children were joined again or lost."""

    def __init__(self) -> None:
        self._mass_at_refusal: dict[tuple[int, bool], float] = {}
        self._parents: dict[int, int] = {}
        self._failures: dict[int, int] = {}

    def may_split(self, tag: int, mass: float, *, at_end: bool = False) -> bool:
        """Whether a component of that mass is worth a split. Splits tried at the end are refused separately."""
        before = self._mass_at_refusal.get((tag, at_end), np.inf)
        return self._failures.get(tag, 0) < _MOST_FAILURES and abs(before - mass) > _SAME_MASS * mass

    def refuse(self, tag: int, mass: float, *, at_end: bool = False) -> None:
        """Record that the split of a component of that mass gained nothing."""
        self._mass_at_refusal[tag, at_end] = mass

    def children_of(self, tag: int, tags: list[int]) -> tuple[int, int]:
        """Tags of two children of a component, which differ from `tags` and from those of all earlier children."""
        first = max(*tags, *self._parents, 0) + 1
        self._parents[first] = self._parents[first + 1] = tag
        return first, first + 1

    def joined_again(self, first: int, second: int) -> int | None:
        """The parent of two components that were joined, with a failure recorded; None where they are not siblings."""
        parent = self._parents.get(first)
        if parent is None or parent != self._parents.get(second):
            return None
        self._failures[parent] = self._failures.get(parent, 0) + 1
        return parent

    def lost(self, tag: int) -> None:
        """Record that a component was removed. It is a failure of its parent."""
        parent = self._parents.get(tag)
        if parent is not None:
            self._failures[parent] = self._failures.get(parent, 0) + 1
