"""The refinements of one stream, as the store holds them: whoever changes one says which version it saw.

So that any number of processes may ask for refinements, work on them and settle them: two that want the same one are
told apart by the store. Every verb blocks, and raises what the store raises.
"""

import time
import uuid
from collections.abc import Callable
from typing import NamedTuple

from shoal_service.errors import OverloadedError
from shoal_service.store import Store
from shoal_service.streams.refinement.record import Refinement, from_body, to_body

MOST_OPEN = 8
"""Refinements of a stream that may wait or run at a time."""


class StreamKey(NamedTuple):
    """One incarnation of a stream."""

    name: str
    incarnation: str


class Held(NamedTuple):
    """A refinement and the version of it that was read."""

    refinement: Refinement
    version: int


class RefinementBook:
    """The refinements of one incarnation of a stream."""

    def __init__(self, store: Store, name: str, incarnation: str) -> None:
        self._store = store
        self.name, self.incarnation = name, incarnation

    def all(self) -> list[Held]:
        """Those that are kept, newest first."""
        jobs = self._store.jobs(self.name, self.incarnation)
        return [Held(from_body(job.body), job.version) for job in jobs]

    def find(self, refinement_id: str) -> Held | None:
        """One by its id."""
        return next((held for held in self.all() if held.refinement.id == refinement_id), None)

    def ask(self, *, method: str, why: str, window: int | None = None, key: str | None = None) -> Refinement:
        """Queue a refinement. With a key, asking again gives what was made first.

        OverloadedError when too many wait.
        """
        named = uuid.uuid5(uuid.NAMESPACE_OID, f"{self.incarnation}/{key}") if key is not None else uuid.uuid4()
        held = self.all()
        known = next((h.refinement for h in held if h.refinement.id == str(named)), None)
        if known is not None:
            return known
        if sum(h.refinement.open for h in held) >= MOST_OPEN:
            raise OverloadedError(
                f"stream {self.name!r} has {MOST_OPEN} refinements that wait or run; ask again once some are done"
            )
        refinement = Refinement(
            id=str(named), state="queued", method=method, why=why, created_at=time.time(), window=window
        )
        if self._store.put_job(self.name, self.incarnation, refinement.id, to_body(refinement), version=0):
            return refinement
        found = self.find(refinement.id)  # another process was asked with the same key at the same moment
        return refinement if found is None else found.refinement

    def change(self, held: Held, refinement: Refinement) -> Held | None:
        """Write it; None when it was changed by somebody else since it was read."""
        body = to_body(refinement)
        if self._store.put_job(self.name, self.incarnation, refinement.id, body, version=held.version):
            return Held(refinement, held.version + 1)
        return None

    def settle(self, refinement_id: str, outcome: Callable[[Refinement], Refinement]) -> None:
        """Change it, whoever else does, unless its outcome is known already or it is no longer kept."""
        while (held := self.find(refinement_id)) is not None and held.refinement.open:
            if self.change(held, outcome(held.refinement)) is not None:
                return
