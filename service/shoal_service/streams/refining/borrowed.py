"""The state of a stream that another process learns: a checkpoint that its leader is asked to write."""

import time
from collections.abc import Callable

from shoal_service.errors import NotReadyError
from shoal_service.store import Checkpoint, ReaderRequest, SharedStore
from shoal_service.streams.envelope import opened

PATIENCE_S = 10.0
"""How long a new checkpoint is waited for, before the newest that there is has to do."""
ASK_AGAIN_S = 1.0
LOOK_S = 0.05


class Borrowed:
    """States of streams, by way of the shared store."""

    def __init__(self, store: SharedStore, ask: Callable[[ReaderRequest], None]) -> None:
        """`ask` tells whoever leads a stream."""
        self._store = store
        self._ask = ask

    def state_of(self, name: str, incarnation: str) -> Checkpoint:
        """A state as of now, or nearly. Blocks. Raises what the store raises, and NotReadyError when there is none."""
        least = self._store.tail(name, incarnation).seq
        until, asked = time.monotonic() + PATIENCE_S, -float("inf")
        while time.monotonic() < until:
            found = self._store.sharing.newest_checkpoint(name, incarnation, least)
            if found is not None:
                return _plain(found)
            if time.monotonic() - asked > ASK_AGAIN_S:
                asked = time.monotonic()
                self._ask(ReaderRequest(name, incarnation, least, 0, "state"))
            time.sleep(LOOK_S)
        held = self._store.load_checkpoints(name, incarnation)
        if not held:
            raise NotReadyError(f"stream {name!r} has no checkpoint yet, so nothing to refine")
        return _plain(held[0])


def _plain(checkpoint: Checkpoint) -> Checkpoint:
    return checkpoint._replace(blob=opened(checkpoint.blob)[0])
