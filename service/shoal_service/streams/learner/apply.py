"""Application of entries of the log to a state: the only place where the service calls the library's learning.

Every function depends on its arguments alone (no clock, no store), so a replay of the same entries gives the same
state. The library's engines are imported inside the functions, because they load Numba, for which the serving thread
need not wait.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shoal.errors import ShapeError
from shoal_service.refining import learnt_times, rows_of
from shoal_service.store import Checkpoint, Entry, EntryKind
from shoal_service.streams.learner.window_position import (
    WindowPosition,
    window_after_entries,
    window_after_entry,
    window_begins_after,
    window_offsets_of,
)
from shoal_service.streams.learnt_rows import LEARNT, LearntRows
from shoal_service.streams.monitor import Monitor, Observed, decode_monitor, new_monitor, observe_inplace
from shoal_service.streams.names import recorded_settings, settings_after
from shoal_service.streams.refinement import (
    AdoptionInputs,
    AdoptionOutcome,
    apply_adoption_inplace,
    rows_of_window,
)
from shoal_service.streams.view import PublishedView, Score

if TYPE_CHECKING:
    from shoal.mixture import MixtureState, StreamSettings
    from shoal.partitions import Batch, PieceRunner
    from shoal.sequential import AssimilateInfo


class WorkingState(NamedTuple):
    """A state and its position in the log.

    `log_offset` counts the points of the log; `state.points_seen` counts the points that this state has learnt. They
    differ after a dead letter (counted by the log only) and after a restore (which brings the count of another state,
    while the log continues).
    """

    state: "MixtureState"
    seq: int
    log_offset: int
    window: WindowPosition
    """The entries that hold the rows of the state's window."""
    monitor: Monitor
    """What is watched beside the state."""


class EntryEffect(NamedTuple):
    """Effect of an entry on a state."""

    points_seen: int
    """Points that the state has learnt after the entry."""

    info: "AssimilateInfo | None" = None
    """None for a restore, and for a refinement's entry that changed no component."""
    adoption: "AdoptionOutcome | None" = None
    """The outcome of a refinement, for its entry."""
    observed: Observed = ()
    """The events that the monitor has found."""


def begin(settings: bytes) -> WorkingState:
    """The state of a stream before the first entry of its log, from the canonical JSON of its settings."""
    from shoal.mixture import StreamSettings
    from shoal.sequential import initial_state

    state = initial_state(StreamSettings.from_json(settings))
    return WorkingState(state, 0, 0, window_begins_after(0), new_monitor())


def resume(checkpoint: Checkpoint, monitor: bytes = b"", *, is_valid: bool = False) -> WorkingState:
    """The state of a checkpoint, whose blob is the state alone, with its monitor. SnapshotError for other bytes.

    `is_valid`: this process has written it, or checked it before.
    """
    from shoal.mixture import from_bytes

    state, _ = from_bytes(checkpoint.blob, is_valid=is_valid)
    if checkpoint.window_seq is None and state.settings.window_rows:  # its rows are not known to be kept
        from shoal.refinement import forget_window

        state = forget_window(state)
    begins = checkpoint.seq if checkpoint.window_seq is None else checkpoint.window_seq
    window = window_begins_after(begins)
    return WorkingState(state, checkpoint.seq, checkpoint.log_offset, window, decode_monitor(monitor))


def apply_inplace(
    working: WorkingState,
    entry: Entry,
    adoption: AdoptionInputs | None = None,
    run: "PieceRunner | None" = None,
) -> tuple[WorkingState, EntryEffect]:
    """The state after `entry`, and the change. Consumes `working`, which is lost when this raises.

    `adoption` is what the entry of a refinement needs beside its payload. `run` computes the pieces of a stream with
    partitions; threads of this process by default. It changes nothing of the result.
    """
    before, live = window_offsets_of(working.state), working.state.frozen
    if entry.kind is EntryKind.BATCH:
        state, change = _batch(working.state, entry, run)
    else:
        state, change = _APPLY[entry.kind](working.state, entry, adoption)
    observed: Observed = ()
    if entry.kind is EntryKind.RESTORE:  # the entry itself holds the rows of the window, if there are any
        window = window_begins_after(entry.seq - (rows_of_window(state) > 0))
        monitor = new_monitor()
    else:
        window = window_after_entry(working.window, before, state, entry.seq)
        info = change.info if entry.kind is EntryKind.BATCH else None
        refined = change.adoption is not None and change.adoption.adopted
        monitor, observed = observe_inplace(working.monitor, state, info, live=live, refined=refined)
    working = WorkingState(state, entry.seq, entry.log_offset, window, monitor)
    return working, change._replace(observed=observed) if observed else change


def apply_batches_inplace(
    working: WorkingState, entries: Iterator[Entry], run: "PieceRunner | None" = None
) -> tuple[WorkingState, list[tuple[Entry, EntryEffect]]]:
    """The state after the first of some batches, at least one, and the change by each of these.

    State and changes are the same as those of `apply_inplace` with one entry after another. As many are learnt as may
    be in one pass, and no more are read of `entries`. Consumes `working`, which is lost when this raises. `run` as in
    `apply_inplace`.
    """
    from shoal.partitions import assimilate_batches_inplace, in_threads

    before, live = window_offsets_of(working.state), working.state.frozen
    learnt: list[Entry] = []
    state, infos = assimilate_batches_inplace(working.state, _batches(working, entries, learnt), run or in_threads)
    monitor, seen = working.monitor, before.points_seen
    changes = []
    for info in infos:
        seen += len(info.labels)
        at = state._replace(points_seen=seen)  # no more of it is read before a check, which comes after the last one
        monitor, observed = observe_inplace(monitor, at, info, live=live, refined=False)
        changes.append(EntryEffect(seen, info, observed=observed))
    last, ends = learnt[-1], [(change.points_seen, entry.seq) for entry, change in zip(learnt, changes, strict=True)]
    window = window_after_entries(working.window, before, state, ends)
    return WorkingState(state, last.seq, last.log_offset, window, monitor), list(zip(learnt, changes, strict=True))


def _batches(working: WorkingState, entries: Iterator[Entry], learnt: list[Entry]) -> "Iterator[Batch]":
    """The points of entries, up to the one after which the monitor checks the clusters. Adds each entry to `learnt`."""
    seen = working.state.points_seen
    for entry in entries:
        batch = _decoded(working.state, entry)
        learnt.append(entry)
        seen += batch.x.shape[0]
        yield batch
        if seen >= working.monitor.check_due:
            return


def bytes_of_two_rounds(state: "MixtureState") -> int:
    """Bytes of the points of two rounds of partitions; 0 where there are no rounds."""
    from shoal.mixture import round_rows

    return 2 * round_rows(state.settings) * state.settings.n_features * 8


def points_together(state: "MixtureState") -> int:
    """Most points of a batch that is learnt in one pass with those before it, whose readers wait for it then."""
    from shoal.mixture import round_rows
    from shoal.partitions import PASS_ROWS

    return max(PASS_ROWS, round_rows(state.settings))


def skip(working: WorkingState, entry: Entry) -> WorkingState:
    """The same state, positioned after an entry that changes nothing: a dead letter."""
    return working._replace(seq=entry.seq, log_offset=entry.log_offset)


def checkpoint_of(working: WorkingState) -> Checkpoint:
    """The state as bytes, with its position in the log."""
    from shoal.mixture import to_bytes

    window_seq = working.window.past if working.state.settings.window_rows else None
    return Checkpoint(working.seq, working.log_offset, to_bytes(working.state), window_seq)


def view_of(working: WorkingState, stream: str, incarnation: str, dead_letters: int = 0) -> PublishedView:
    """A read-only copy of the state for readers."""
    from shoal.mixture import snapshot_of

    snapshot = snapshot_of(working.state)
    status = snapshot.status if snapshot.points_seen else "empty"
    score = Score(*working.monitor.predictive_score)
    at = (working.seq, working.log_offset, snapshot.points_seen)
    clock = working.state.clock
    time = (None, 0) if clock is None else (clock.now, clock.late)
    return PublishedView(stream, incarnation, *at, status, snapshot, dead_letters, score, *time)


def learnt_rows_of(info: "AssimilateInfo") -> LearntRows:
    """Answers for the points of a batch that was learnt."""
    rows = np.empty(len(info.labels), LEARNT)
    rows["component"] = info.labels
    for name in ("novelty", "log_density", "born"):
        rows[name] = getattr(info.scores, name)
    return rows


def settings_in(entry: Entry, in_force: "StreamSettings", record: bytes) -> bytes | None:
    """The settings that an entry gave the stream when it was appended. None where it holds none that can be read, and
    where later entries have given others to the `record`, as far as that can be seen."""
    from shoal.errors import ShoalError
    from shoal.mixture import from_bytes

    if entry.kind is EntryKind.SETTINGS:
        return recorded_settings(entry.payload, in_force, record)
    if entry.kind is not EntryKind.RESTORE:
        return None
    try:
        return from_bytes(entry.payload)[0].settings.to_json().encode()
    except ShoalError:
        return None


def events_of(
    entry: Entry, working: WorkingState, change: EntryEffect, adoption: AdoptionInputs | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Kind and data of each event of an applied entry, in order. A function of the log alone."""
    at = {"log_offset": entry.log_offset, "offset": change.points_seen}
    refinement = {} if adoption is None else {"refinement": adoption.entry.refinement}
    for event in change.info.events if change.info is not None else ():
        kin: dict[str, Any] = {"parents": list(event.parents), "children": list(event.children)}
        if event.kind == "returned":
            kin |= {"component": event.children[0], "was": event.parents[0]}
        reason = {} if event.reason is None else {"reason": event.reason}
        yield event.kind, {**at, "offset": event.offset, **kin, **refinement, **reason}
    for kind, data in change.observed:
        yield kind, {**at, "parents": [], "children": [], **data, **refinement}
    if entry.kind is EntryKind.RESTORE:
        yield "restored", {**at, "parents": [], "children": sorted(working.state.live_ids.tolist())}
    if change.adoption is not None and change.adoption.adopted:  # last: records of the window may belong elsewhere
        yield "adopted", {**at, "parents": [], "children": [], **refinement}
    if change.adoption is not None and change.adoption.refused is not None:
        yield "refused", {**at, "parents": [], "children": [], **refinement, "reason": change.adoption.refused}


def _batch(state: "MixtureState", entry: Entry, run: "PieceRunner | None") -> "tuple[MixtureState, EntryEffect]":
    from shoal.partitions import assimilate_batches_inplace, in_threads

    state, (info,) = assimilate_batches_inplace(state, [_decoded(state, entry)], run or in_threads)
    return state, EntryEffect(state.points_seen, info)


def _decoded(state: "MixtureState", entry: Entry) -> "Batch":
    """The points of an entry, with their times where the stream has a clock."""
    from shoal.partitions import Batch

    points = rows_of(entry.payload)
    if points.shape[1] != state.settings.n_features:  # kernels would read beside the rows
        raise ShapeError(f"the entry has {points.shape[1]} features, the stream has {state.settings.n_features}")
    if state.settings.clock_step_s is None:
        return Batch(points)
    times = learnt_times(entry.payload, points.shape[0])
    return Batch(points, times.own, times.arrived)


def _settings(
    state: "MixtureState", entry: Entry, adoption: AdoptionInputs | None
) -> "tuple[MixtureState, EntryEffect]":
    from shoal.sequential import apply_settings_inplace

    state, info = apply_settings_inplace(state, settings_after(entry.payload, state.settings))
    return state, EntryEffect(state.points_seen, info)


def _adoption(
    state: "MixtureState", entry: Entry, adoption: AdoptionInputs | None
) -> "tuple[MixtureState, EntryEffect]":
    assert adoption is not None, "the learner reads what a refinement's entry needs"
    outcome = apply_adoption_inplace(state, adoption)
    return outcome.state, EntryEffect(outcome.state.points_seen, outcome.info, outcome)


def _restore(
    state: "MixtureState", entry: Entry, adoption: AdoptionInputs | None
) -> "tuple[MixtureState, EntryEffect]":
    """The state of a snapshot. New ids continue above those that this stream has assigned.

    Its window stays if the snapshot holds the rows. Otherwise the window begins empty.
    """
    from shoal.mixture import from_bytes
    from shoal.refinement import forget_window, restored

    found, rows = from_bytes(entry.payload)
    found = found._replace(next_id=max(state.next_id, found.next_id))
    if rows is None or rows.shape[0] < rows_of_window(found):
        found = forget_window(found)
    state = restored(found, entry.seq)
    return state, EntryEffect(state.points_seen)


def _forget(state: "MixtureState", entry: Entry, adoption: AdoptionInputs | None) -> "tuple[MixtureState, EntryEffect]":
    """The same state: what was learnt from a record stays learnt."""
    return state, EntryEffect(state.points_seen)


_APPLY = {
    EntryKind.SETTINGS: _settings,
    EntryKind.RESTORE: _restore,
    EntryKind.ADOPTION: _adoption,
    EntryKind.FORGET: _forget,
}
