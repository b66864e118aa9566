"""State of a stream that another process learns: a checkpoint, which the leader is asked to write."""

import time

from shoal_service.errors import NotReadyError
from shoal_service.store import Checkpoint, ReaderRequest, SharedStore
from shoal_service.streams.learner import state_alone

NEW_CHECKPOINT_S = 10.0
"""Longest wait for a new checkpoint. After that the newest one is used."""
REPEAT_S = 1.0
"""Time after which a request is repeated."""
POLL_S = 0.05


def state_from_leader(store: SharedStore, name: str, incarnation: str) -> Checkpoint:
    """The state with all that the log holds now, or nearly. Blocks.

    Raises as the store does, and NotReadyError when there is no checkpoint.
    """
    least = store.tail(name, incarnation).seq
    until, requested = time.monotonic() + NEW_CHECKPOINT_S, -float("inf")
    while time.monotonic() < until:
        found = store.sharing.newest_checkpoint(name, incarnation, least)
        if found is not None:
            return state_alone(found)
        if time.monotonic() - requested > REPEAT_S:
            requested = time.monotonic()
            store.sharing.send_request(ReaderRequest(name, incarnation, least, 0, "state"))
        time.sleep(POLL_S)
    kept = store.load_checkpoints(name, incarnation)
    if not kept:
        raise NotReadyError(f"stream {name!r} has no checkpoint yet, so nothing to refine")
    return state_alone(kept[0])
