"""Epochs of writers that this process acquired, so that it can give them up at its end."""

import threading

from shoal_service.errors import StoreUnavailableError
from shoal_service.store.redis.connection import Connections
from shoal_service.store.redis.keys import stream_keys

LEAST_LOOKED_AT = 64
"""Number of epochs from which on those that are over are looked for. Then the number must double before the next look,
so that a look costs one field of the store for each acquired epoch."""


class AcquiredEpochs:
    """The newest epoch that this process acquired of each stream. Any thread may use it.

    Epochs that are over, because their stream was deleted or another writer has come, are forgotten after a while.
    """

    def __init__(self, connections: Connections, prefix: str) -> None:
        self._connections = connections
        self._prefix = prefix
        self._epochs: dict[tuple[str, str], int] = {}
        self._look_at = LEAST_LOOKED_AT
        self._lock = threading.Lock()

    def add(self, name: str, incarnation: str, epoch: int) -> None:
        """Keep an epoch that was acquired."""
        with self._lock:
            self._epochs[name, incarnation] = epoch
            if len(self._epochs) < self._look_at:
                return
            self._look_at = 2 * len(self._epochs)  # the next look, unless this one finds something
            known = list(self._epochs.items())
        asked = [("HGET", stream_keys(self._prefix, *stream).meta, "epoch") for stream, _ in known]
        try:
            found = self._connections.ask(*asked)
        except StoreUnavailableError:
            return
        with self._lock:
            for (stream, acquired), current in zip(known, found, strict=True):
                if (current is None or int(current) != acquired) and self._epochs.get(stream) == acquired:
                    del self._epochs[stream]
            self._look_at = max(LEAST_LOOKED_AT, 2 * len(self._epochs))

    def all(self) -> list[tuple[str, str, int]]:
        """Name, incarnation and epoch of each stream, without those that were found to be over."""
        with self._lock:
            return [(*stream, epoch) for stream, epoch in self._epochs.items()]
