"""One entry of the log, applied to one state: the only place where the service calls the library's learning.

Every function is a function of its arguments alone (no clock, no store), so a replay of the same entries gives the
same state. Imports of the library's engines are inside the functions: they bring Numba along, which the serving
thread need not wait for.
"""

from typing import TYPE_CHECKING, NamedTuple

from shoal_service.store import Checkpoint, Entry, EntryKind
from shoal_service.streams.board import PublishedView
from shoal_service.streams.engines import load_engines
from shoal_service.streams.learner import window_position as window_place
from shoal_service.streams.learner.window_position import WindowPlace, numbers_of
from shoal_service.streams.refinement.trigger import Gathered, Outcome, adopt_inplace
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
    window: WindowPlace
    """Which entries hold the rows of the state's window."""


class Change(NamedTuple):
    """What an entry did to a state."""

    info: "AssimilateInfo | None"
    """None for a restore, and for a refinement's entry that changed no component."""
    adoption: "Outcome | None" = None
    """What became of a refinement, for its entry."""


def check_room(settings: "StreamSettings") -> None:
    """Raise SettingError when the settings leave no room for a single component: better before they are in the log."""
    load_engines()
    from shoal.sequential import initial_state

    initial_state(settings)


def begin(settings: bytes) -> Working:
    """The state of a stream before the first entry of its log, from the canonical JSON of its settings."""
    from shoal.mixture import StreamSettings
    from shoal.sequential import initial_state

    return Working(initial_state(StreamSettings.from_json(settings)), 0, 0, window_place.at(0))


def resume(checkpoint: Checkpoint) -> Working:
    """The state of a checkpoint. Raises SnapshotError on bytes that are none."""
    from shoal.mixture import from_bytes

    state, _ = from_bytes(checkpoint.blob)
    if checkpoint.window_seq is None and state.settings.window_rows:  # its rows are not known to be held
        from shoal.refinement import forget_window

        return Working(forget_window(state), checkpoint.seq, checkpoint.log_offset, window_place.at(checkpoint.seq))
    begins = checkpoint.seq if checkpoint.window_seq is None else checkpoint.window_seq
    return Working(state, checkpoint.seq, checkpoint.log_offset, window_place.at(begins))


def apply_inplace(working: Working, entry: Entry, gathered: Gathered | None = None) -> tuple[Working, Change]:
    """The next state after `entry`, and what it did; consumes `working`, which is lost when this raises.

    `gathered` is what the entry of a refinement needs beside itself.
    """
    before = numbers_of(working.state)
    state, change = _APPLY[entry.kind](working.state, entry, gathered)
    place = window_place.followed(working.window, before, state, entry.seq)
    return Working(state, entry.seq, entry.log_offset, place), change


def passed_over(working: Working, entry: Entry) -> Working:
    """The same state, standing after an entry that changed nothing: a dead letter."""
    return working._replace(seq=entry.seq, log_offset=entry.log_offset)


def checkpoint_of(working: Working) -> Checkpoint:
    """The state as bytes, with its place in the log."""
    from shoal.mixture import to_bytes

    window_seq = working.window.past if working.state.settings.window_rows else None
    return Checkpoint(working.seq, working.log_offset, to_bytes(working.state), window_seq)


def view_of(working: Working, stream: str, incarnation: str, n_letters: int = 0) -> PublishedView:
    """A read-only copy of the state for readers."""
    from shoal.sequential import publish

    snapshot = publish(working.state)
    status = snapshot.status if snapshot.points_seen else "empty"
    return PublishedView(
        stream, incarnation, working.seq, working.log_offset, snapshot.points_seen, status, snapshot, n_letters
    )


def settings_brought_by(entry: Entry) -> bytes | None:
    """The settings that an entry made the stream's when it was appended; None where it brings none that can be read."""
    from shoal.errors import ShoalError
    from shoal.mixture import from_bytes

    if entry.kind is EntryKind.SETTINGS:
        return entry.payload
    if entry.kind is not EntryKind.RESTORE:
        return None
    try:
        return from_bytes(entry.payload)[0].settings.to_json().encode()
    except ShoalError:
        return None


def _batch(state: "MixtureState", entry: Entry, gathered: Gathered | None) -> "tuple[MixtureState, Change]":
    from shoal.sequential import assimilate_inplace

    state, info = assimilate_inplace(state, from_log(entry.payload))
    return state, Change(info)


def _settings(state: "MixtureState", entry: Entry, gathered: Gathered | None) -> "tuple[MixtureState, Change]":
    from shoal.mixture import StreamSettings
    from shoal.sequential import apply_settings_inplace

    state, info = apply_settings_inplace(state, StreamSettings.from_json(entry.payload))
    return state, Change(info)


def _adoption(state: "MixtureState", entry: Entry, gathered: Gathered | None) -> "tuple[MixtureState, Change]":
    assert gathered is not None, "the learner gathers what a refinement's entry needs"
    outcome = adopt_inplace(state, gathered)
    return outcome.state, Change(outcome.info, outcome)


def _restore(state: "MixtureState", entry: Entry, gathered: Gathered | None) -> "tuple[MixtureState, Change]":
    """The snapshot's state. Ids that this stream gave out since are not given out again: new ones continue above
    them. The window begins anew, for the rows of the snapshot's are not in this log.
    """
    from shoal.mixture import from_bytes
    from shoal.refinement import forget_window, restored

    found, _ = from_bytes(entry.payload)
    found = found._replace(next_id=max(state.next_id, found.next_id))
    return restored(forget_window(found), entry.seq), Change(None)


_APPLY = {
    EntryKind.BATCH: _batch,
    EntryKind.SETTINGS: _settings,
    EntryKind.RESTORE: _restore,
    EntryKind.ADOPTION: _adoption,
}
