"""A stream's window, read back from its log: the batches after some entry, without the dead letters."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from shoal_service.errors import LogGapError
from shoal_service.refining import MissingRowsError, last_rows
from shoal_service.store import Checkpoint, Entry, EntryKind, Store
from shoal_service.wire import Points, RecordFields, to_log

if TYPE_CHECKING:
    from shoal.mixture import MixtureState
    from shoal.points.weighted_rows import LearntPoints

READ_BYTES = 1 << 20
"""Payload bytes of one read. Joining larger payloads would delay requests, which share the interpreter."""


def entries_between(
    store: Store, stream: tuple[str, str], after_seq: int, last_seq: int, *, max_bytes: int = READ_BYTES
) -> Iterator[Entry]:
    """The entries of a stream (name, incarnation) after `after_seq` up to `last_seq`. Raises as `Store.read`."""
    while after_seq < last_seq:
        for entry in store.read(*stream, after_seq, max_bytes=max_bytes):
            if entry.seq > last_seq:
                return
            yield entry
            after_seq = entry.seq


def batches_of(entries: Iterable[Entry], is_dead_letter: Callable[[int], bool]) -> Iterator[bytes]:
    """The payloads of the batches that were learnt. The rows that a restore brought along count as one batch."""
    for entry in entries:
        if is_dead_letter(entry.seq):
            continue
        if entry.kind is EntryKind.BATCH:
            yield entry.payload
        elif entry.kind is EntryKind.RESTORE:
            yield from _restored_rows(entry.payload)


def _restored_rows(snapshot: bytes) -> Iterator[bytes]:
    """The window in a snapshot, in the form of the log. Nothing where it holds none."""
    from shoal.mixture import from_bytes
    from shoal.points.weighted_rows import unweighted, weights_of

    _, window = from_bytes(snapshot)
    if window is not None and window.shape[0]:
        weights = weights_of(window)
        fields = None if weights is None else RecordFields(0.0, None, None, None, None, weights)
        yield to_log(Points(unweighted(window), fields))


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
