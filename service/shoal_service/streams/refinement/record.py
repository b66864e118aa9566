"""A refinement as people and processes see it: one record, kept in the store as a job, changed by compare-and-set."""

from typing import Any, Final, Literal, TypeAlias

import msgspec

State: TypeAlias = Literal["queued", "running", "adopted", "not-adopted", "failed"]

OPEN: Final = ("queued", "running")
"""States that another one will follow."""


class Refinement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One refinement, from the wish to the outcome."""

    id: str
    state: State
    method: str
    why: str
    """`asked`, or what made it due: `warm-up`, `doubled`, `period`, `misfit`."""
    created_at: float
    """Unix time, for people."""
    window: int | None = None
    """Newest rows to divide anew, at most, where that was asked for."""
    reason: str | None = None
    """Why it was not adopted, or why it failed."""
    attempts: int = 0
    """Times that it was begun."""
    owner: str = ""
    """Which worker runs it."""
    progress: dict[str, Any] | None = None
    seconds: float | None = None
    """Wall time of the attempt that gave the result."""
    base_offset: int | None = None
    """Points seen by the state that it is made of."""
    base_seq: int | None = None
    window_seq: int | None = None
    """Entries after this one are kept for it while it is open."""
    entry_seq: int | None = None
    """The entry of the log that holds the outcome, once there is one."""
    report: dict[str, Any] = {}
    """What the search says: bounds, components before and after, rows, rounds."""

    @property
    def open(self) -> bool:
        """Whether its outcome is still to come."""
        return self.state in OPEN

    def but(self, **changes: Any) -> "Refinement":
        """The same with some fields changed."""
        return msgspec.structs.replace(self, **changes)


def to_body(refinement: Refinement) -> bytes:
    """As JSON, for the store."""
    return msgspec.json.encode(refinement)


def from_body(body: bytes) -> Refinement:
    """Inverse of `to_body`."""
    return msgspec.json.decode(body, type=Refinement)
