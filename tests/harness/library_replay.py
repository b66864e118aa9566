"""What the library itself makes of a log, without the service's code for it: a second road to a learner's state."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from shoal.errors import AdoptionError
from shoal.mixture import MixtureState, StreamSettings, to_bytes
from shoal.refinement import adopt_inplace, check_adoptable, from_bytes, postponed
from shoal.sequential import apply_settings_inplace, assimilate_inplace, initial_state
from shoal_service.store import Entry, EntryKind
from shoal_service.wire import from_log


def replayed(settings: dict[str, Any], entries: list[Entry], blob_of: Callable[[str], bytes]) -> bytes:
    """The state that the library itself makes of a log, without the service's code."""
    state: MixtureState = initial_state(StreamSettings.from_dict(settings))
    rows: list[np.ndarray] = []
    for entry in entries:
        if entry.kind is EntryKind.BATCH:
            rows.append(from_log(entry.payload))
            state, _ = assimilate_inplace(state, rows[-1])
        elif entry.kind is EntryKind.SETTINGS:
            state, _ = apply_settings_inplace(state, StreamSettings.from_json(entry.payload))
        else:
            assert entry.kind is EntryKind.ADOPTION
            words = json.loads(entry.payload)
            refinement = from_bytes(blob_of(words["blob"]))
            since = np.concatenate([np.zeros((0, state.settings.n_features)), *rows])[words["base_offset"] :]
            try:
                check_adoptable(state, refinement, len(since))
            except AdoptionError:
                continue
            if words["verdict"] == "postpone":
                state = postponed(state, refinement)
            else:
                state, _ = adopt_inplace(state, refinement, since if len(since) else None)
    return to_bytes(state)
