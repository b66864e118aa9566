"""One entry of the log, applied to one state: the only place where the service calls the library's learning.

Every function is a function of its arguments alone (no clock, no store), so a replay of the same entries gives the
same state. Imports of the library's engines are inside the functions: they bring Numba along, which the serving
thread need not wait for.
"""

from typing import TYPE_CHECKING, NamedTuple

from shoal_service.store import Checkpoint, Entry, EntryKind
from shoal_service.streams.published import PublishedView
from shoal_service.wire import from_log

if TYPE_CHECKING:
    from shoal.mixture import MixtureState, StreamSettings
    from shoal.sequential import AssimilateInfo


class Working(NamedTuple):
    """A state and where in the log it stands.

    `log_offset` counts the points of the log; `state.points_seen` counts the points that this state took in. They
    part at a dead letter (counted by the log alone) and at a restore (which brings another state's count, while the
    log goes on).
    """

    state: "MixtureState"
    seq: int
    log_offset: int


def check_room(settings: "StreamSettings") -> None:
    """Raise SettingError when the settings leave no room for a single component: better before they are in the log."""
    from shoal.sequential import initial_state

    initial_state(settings)


def begin(settings: bytes) -> Working:
    """The state of a stream before the first entry of its log, from the canonical JSON of its settings."""
    from shoal.mixture import StreamSettings
    from shoal.sequential import initial_state

    return Working(initial_state(StreamSettings.from_json(settings)), 0, 0)


def resume(checkpoint: Checkpoint) -> Working:
    """The state of a checkpoint. Raises SnapshotError on bytes that are none."""
    from shoal.mixture import from_bytes

    state, _ = from_bytes(checkpoint.blob)
    return Working(state, checkpoint.seq, checkpoint.log_offset)


def apply_inplace(working: Working, entry: Entry) -> "tuple[Working, AssimilateInfo | None]":
    """The next state after `entry`; consumes `working`, which is lost when this raises. None for a restore."""
    state, info = _APPLY[entry.kind](working.state, entry.payload)
    return Working(state, entry.seq, entry.log_offset), info


def passed_over(working: Working, entry: Entry) -> Working:
    """The same state, standing after an entry that changed nothing: a dead letter."""
    return working._replace(seq=entry.seq, log_offset=entry.log_offset)


def checkpoint_of(working: Working) -> Checkpoint:
    """The state as bytes, with its place in the log."""
    from shoal.mixture import to_bytes

    return Checkpoint(working.seq, working.log_offset, to_bytes(working.state))


def view_of(working: Working, stream: str, incarnation: str) -> PublishedView:
    """A read-only copy of the state for readers, with what their first question would make them wait for worked out."""
    from shoal.sequential import publish

    snapshot = publish(working.state)
    if snapshot.n_components:
        snapshot.predict(snapshot.location[None])
    status = snapshot.status if snapshot.points_seen else "empty"
    return PublishedView(stream, incarnation, working.seq, working.log_offset, snapshot.points_seen, status, snapshot)


def _batch(state: "MixtureState", payload: bytes) -> "tuple[MixtureState, AssimilateInfo | None]":
    from shoal.sequential import assimilate_inplace

    return assimilate_inplace(state, from_log(payload))


def _settings(state: "MixtureState", payload: bytes) -> "tuple[MixtureState, AssimilateInfo | None]":
    from shoal.mixture import StreamSettings
    from shoal.sequential import apply_settings_inplace

    return apply_settings_inplace(state, StreamSettings.from_json(payload))


def _restore(state: "MixtureState", payload: bytes) -> "tuple[MixtureState, AssimilateInfo | None]":
    """The snapshot's state. Ids that this stream gave out since are not given out again: new ones continue above
    them.
    """
    from shoal.mixture import from_bytes

    restored, _ = from_bytes(payload)
    return restored._replace(next_id=max(state.next_id, restored.next_id)), None


_APPLY = {EntryKind.BATCH: _batch, EntryKind.SETTINGS: _settings, EntryKind.RESTORE: _restore}
