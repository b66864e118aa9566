"""Snapshot of a state together with the rows of its window, so that a restored stream can be refined."""

from typing import TYPE_CHECKING, Any

from shoal_service.errors import LogGapError
from shoal_service.store import Checkpoint, Store
from shoal_service.streams.refinement.window_rows import (
    MissingRowsError,
    batches_of,
    entries_between,
    last_rows,
)

if TYPE_CHECKING:
    from shoal.mixture import MixtureState
    from shoal.points.weighted_rows import LearntPoints


def with_window(store: Store, name: str, incarnation: str, base: Checkpoint) -> Checkpoint | None:
    """Return the checkpoint with the rows of its window in its bytes.

    The same checkpoint where the state has no window. None where the log has been trimmed since: take a newer state.
    """
    from shoal.mixture import from_bytes, to_bytes

    state, _ = from_bytes(base.blob)
    n_rows = rows_of_window(state)
    if base.window_seq is None or n_rows == 0:
        return base
    dead = store.dead_letter_reasons(name, incarnation).keys()
    try:
        entries = entries_between(store, (name, incarnation), base.window_seq, base.seq)
        rows = last_rows(batches_of(entries, dead.__contains__), n_rows, state)
    except (LogGapError, MissingRowsError):
        return None
    return base._replace(blob=to_bytes(state, _as_points(rows, state)))


def rows_of_window(state: "MixtureState") -> int:
    """Return the number of rows in the window of a state."""
    from shoal.refinement import window_start

    start = window_start(state)
    return 0 if start is None else state.points_seen - start


def _as_points(rows: Any, state: "MixtureState") -> "LearntPoints":
    from shoal.points.rows import SparseRows
    from shoal.points.weighted_rows import unweighted, weights_of, with_weights

    points = unweighted(rows)
    return with_weights(SparseRows.of(points) if state.settings.domain.sparse else points, weights_of(rows))
