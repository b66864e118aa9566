"""Rows of a stream's window, read back from its log: the batches after some entry, without the dead letters."""

import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal_service.errors import LogGapError
from shoal_service.store import Checkpoint, Entry, EntryKind, Store
from shoal_service.streams.record_times import LearntTimes, learnt_times
from shoal_service.wire import Points, RecordFields, from_log, to_log, weights_from_log

if TYPE_CHECKING:
    from shoal.mixture import MixtureState
    from shoal.points.weighted_rows import LearntPoints
    from shoal.refinement import Rows


READ_BYTES = 1 << 20
"""Payload bytes of one read. Joining larger payloads would delay requests, which share the interpreter."""
_LENGTH = struct.Struct("<Q")


class MissingRowsError(Exception):
    """The log holds fewer rows of a window than its state counts. Another attempt would find the same."""


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


def last_rows(batches: Iterable[bytes], n: int, state: "MixtureState") -> "Rows | None":
    """The last n rows of the batches, oldest first, with the weights under which `state` has learnt them.

    None for n = 0. MissingRowsError where there are fewer.
    """
    if n == 0:
        return None
    parts: list[Any] = []
    times: list[LearntTimes] = []
    n_rows = 0
    for payload in batches:
        parts.append(rows_of(payload))
        n_rows += parts[-1].shape[0]
        if state.clock is not None:
            times.append(learnt_times(payload, parts[-1].shape[0]))
        while n_rows - parts[0].shape[0] >= n:
            n_rows -= parts.pop(0).shape[0]
            del times[:1]
    if n_rows < n:
        raise MissingRowsError(f"the window has {n:,} rows, but the log holds only {n_rows:,} of them")
    parts[0] = parts[0][n_rows - n :]
    return _stacked(parts) if state.clock is None else _with_age(_stacked(parts), times, state)


def _with_age(rows: Any, times: list[LearntTimes], state: "MixtureState") -> Any:
    import numpy as np

    from shoal.sequential import weighted_as_learnt

    arrived = [np.full(len(batch.own), np.inf if batch.arrived is None else batch.arrived) for batch in times]
    last = slice(-rows.shape[0], None)
    return weighted_as_learnt(
        state, rows, np.concatenate([batch.own for batch in times])[last], np.concatenate(arrived)[last]
    )


def rows_of(payload: bytes) -> Any:
    """The rows of a batch of the log, with their weights."""
    from shoal.points.weighted_rows import with_weights

    return with_weights(from_log(payload), weights_from_log(payload))  # type: ignore[arg-type]


def _stacked(parts: list[Any]) -> Any:
    import numpy as np

    from shoal.points.weighted_rows import joined_weights, unweighted, with_weights

    rows, weights = [unweighted(part) for part in parts], joined_weights(parts)
    if all(isinstance(part, np.ndarray) for part in rows):
        return with_weights(np.concatenate(rows), weights)
    import scipy.sparse

    from shoal.points.rows import SparseRows

    stacked = scipy.sparse.vstack([scipy.sparse.csr_array(part) for part in rows], format="csr")
    return with_weights(SparseRows.of(stacked), weights)


def write_window(path: Path, batches: Iterable[bytes]) -> None:
    """Write the payloads one after another, each after its length in eight bytes."""
    with path.open("xb") as file:
        for payload in batches:
            file.write(_LENGTH.pack(len(payload)))
            file.write(payload)


def read_window(path: Path) -> Iterator[bytes]:
    """Inverse of `write_window`."""
    with path.open("rb") as file:
        while head := file.read(_LENGTH.size):
            yield file.read(_LENGTH.unpack(head)[0])


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
