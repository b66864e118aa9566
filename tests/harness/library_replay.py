"""What the library itself makes of a log, without the service's code for it: a second road to a learner's state."""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from shoal.errors import AdoptionError
from shoal.mixture import MixtureState, StreamSettings, to_bytes
from shoal.points.weighted_rows import LearntPoints, stacked_weighted
from shoal.refinement import adopt_inplace, check_adoptable, from_bytes, postponed
from shoal.sequential import AssimilateInfo, apply_settings_inplace, assimilate_inplace, initial_state, timed
from shoal_service.store import Entry, EntryKind
from shoal_service.wire import fields_from_log, from_log


def replayed(settings: dict[str, Any], entries: list[Entry], blob_of: Callable[[str], bytes]) -> bytes:
    """The state that the library itself makes of a log, without the service's code."""
    last = initial_state(StreamSettings.from_dict(settings))
    for _, state, _ in states(settings, entries, blob_of):
        last = state
    return to_bytes(last)


def states(
    settings: dict[str, Any], entries: Iterable[Entry], blob_of: Callable[[str], bytes]
) -> Iterator[tuple[Entry, MixtureState, AssimilateInfo | None]]:
    """The state after each entry, which the next one may overwrite, and what was learnt of the entry's points.

    A batch of another number of features is passed over, as the dead letter that it becomes.
    """
    state: MixtureState = initial_state(StreamSettings.from_dict(settings))
    rows: list[LearntPoints] = []
    for entry in entries:
        info = None
        if entry.kind is EntryKind.BATCH:
            x = from_log(entry.payload)
            if x.shape[1] == state.settings.n_features:
                state, learnt = _timed(state, x, entry.payload)
                rows.append(learnt)  # with the weights that late points have left
                state, info = assimilate_inplace(state, learnt)
        elif entry.kind is EntryKind.SETTINGS:
            state, _ = apply_settings_inplace(state, _settings(entry.payload, state.settings))
        elif entry.kind is EntryKind.ADOPTION:
            state = _adopted(state, entry, rows, blob_of)
        else:
            assert entry.kind is EntryKind.FORGET, "a restore is not replayed here"
        yield entry, state, info


def _settings(payload: bytes, before: StreamSettings) -> StreamSettings:
    """All settings, or those before with further names of levels."""
    added = json.loads(payload).get("added_level_names")
    if added is None:
        return StreamSettings.from_json(payload)
    names = {column: list(known) for column, known in (before.level_names or {}).items()}
    for column, new in added.items():
        assert new["behind"] == len(names.get(int(column), []))
        names.setdefault(int(column), []).extend(new["names"])
    return before.with_changes(level_names=names)


def _timed(state: MixtureState, x: Any, payload: bytes) -> tuple[MixtureState, LearntPoints]:
    """The rows at their times, where the stream forgets by time."""
    fields = fields_from_log(payload)
    if fields is None:
        return timed(state, x, np.full(len(x), np.nan))
    return timed(state, x, np.full(len(x), np.nan) if fields.times is None else fields.times, fields.arrived or None)


def _adopted(
    state: MixtureState, entry: Entry, rows: list[LearntPoints], blob_of: Callable[[str], bytes]
) -> MixtureState:
    words = json.loads(entry.payload)
    refinement = from_bytes(blob_of(words["blob"]))
    since = stacked_weighted([np.zeros((0, state.settings.n_features)), *rows])[words["base_offset"] :]
    try:
        check_adoptable(state, refinement, len(since))
    except AdoptionError:
        return state
    if words["verdict"] == "postpone":
        return postponed(state, refinement)
    return adopt_inplace(state, refinement, since if len(since) else None)[0]
