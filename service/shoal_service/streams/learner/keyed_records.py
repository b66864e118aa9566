"""Records of a stream as its learner keeps them: of each batch with keys, after it was learnt. Used by one thread.

They are written before a view or a checkpoint that includes them. So a reader that sees a view finds its records, and
the log holds what is not written yet.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal_service.store import Entry, EntryKind, Store, StreamRecord
from shoal_service.streams.learner.apply import WorkingState
from shoal_service.streams.record_index import (
    REASSIGNED,
    TEXT_TIME,
    Limits,
    RecordRows,
    RecordWriter,
    forgotten_keys,
)
from shoal_service.streams.refinement import entries_between
from shoal_service.wire import RecordFields, Texts, fields_from_log, from_log

if TYPE_CHECKING:
    from shoal.mixture import MixtureSnapshot, StreamSettings
    from shoal.sequential import AssimilateInfo


READ_BYTES = 1 << 20
"""Payload bytes of one read of the window."""


class KeyedRecords:
    """The records of one stream."""

    def __init__(self, store: Store, record: StreamRecord) -> None:
        self._store = store
        self._stream = (record.name, record.incarnation)
        self._epoch = 0
        self._writer: RecordWriter | None = None

    def load(self, epoch: int) -> None:
        """Begin where the store's records end. What was added and not written is in the log. Raises StoreError."""
        if self._writer is not None:
            self._writer.wait()
        self._epoch = epoch
        self._writer = RecordWriter(
            lambda places: self._store.read_pages(*self._stream, places),
            lambda pages, dropped: self._store.write_pages(*self._stream, self._epoch, pages, dropped),
        )

    def unload(self) -> None:
        """Forget where the store's records end. Nothing may be unwritten."""
        self._writer = None

    def add(self, entry: Entry, info: "AssimilateInfo | None", settings: "StreamSettings") -> None:
        """Add what an applied entry says of records. An entry that was added before adds nothing."""
        writer = self._open_writer()
        if entry.seq <= writer.seq:
            return
        if entry.kind is EntryKind.FORGET:
            writer.forget(forgotten_keys(entry.payload))
        elif entry.kind in (EntryKind.SETTINGS, EntryKind.RESTORE):
            writer.limits_changed()
        elif entry.kind is EntryKind.BATCH and info is not None and settings.max_records:
            fields = fields_from_log(entry.payload)
            if fields is not None and fields.keys is not None:
                writer.add(_rows(entry, fields, fields.keys, info), len(entry.payload))

    def reassign(self, entry: Entry, working: WorkingState, is_dead_letter: Callable[[int], bool]) -> None:
        """Assign the records of the window again, after a refinement was adopted by `entry`. Raises StoreError."""
        writer = self._open_writer()
        if entry.seq <= writer.seq or writer.empty:
            return
        entries = entries_between(self._store, self._stream, working.window.past, entry.seq - 1, max_bytes=READ_BYTES)
        writer.add(_reassigned(working, (e for e in entries if not is_dead_letter(e.seq))))

    def flush(self, working: WorkingState) -> None:
        """Write what was added, as of this state. Raises StoreError; then it is written later."""
        self._open_writer().flush(working.seq, _limits(working), time.time())

    @property
    def full(self) -> bool:
        """Whether so much was added that it is to be written now."""
        return self._open_writer().full

    def flush_if_full(self, working: WorkingState) -> None:
        """Begin to write what was added if it is much. Raises StoreError, as `flush`."""
        if self.full:
            self._open_writer().begin_flush(working.seq, _limits(working), time.time())

    def join_runs(self) -> bool:
        """Join some of what was written, so that readers look in few places. For a quiet moment. Whether it did.

        Raises StoreError.
        """
        return self._open_writer().join_runs()

    def _open_writer(self) -> RecordWriter:
        assert self._writer is not None, "records are loaded before entries are applied"
        return self._writer


def _limits(working: WorkingState) -> Limits:
    settings = working.state.settings
    return Limits(settings.max_records, settings.record_bytes, settings.record_ttl_s)


class _Assigned(NamedTuple):
    """Where the newest point of a record is, and to which component it belongs."""

    offset: int
    component: int
    arrived: float


def _assigned_in(batch: Entry, snapshot: "MixtureSnapshot") -> Iterator[tuple[bytes, _Assigned]]:
    """The key of each record in a batch, with its place and the component of its point in a snapshot."""
    fields = fields_from_log(batch.payload)
    if fields is None or not fields.keys:
        return
    components = snapshot.predict(from_log(batch.payload), with_resp=False).component.tolist()
    offsets = range(batch.log_offset - batch.n_points + 1, batch.log_offset + 1)
    for key, offset, component in zip(fields.keys, offsets, components, strict=True):
        if key:
            yield key, _Assigned(offset, component, fields.arrived)


def _reassigned(working: WorkingState, entries: Iterable[Entry]) -> RecordRows:
    """The component of each record among the entries, by the state after a refinement."""
    from shoal.mixture import snapshot_of

    snapshot = snapshot_of(working.state)
    assigned: dict[bytes, _Assigned] = {}
    for entry in entries:
        if entry.kind is EntryKind.RESTORE:
            assigned.clear()
        elif entry.kind is EntryKind.FORGET:
            for key in forgotten_keys(entry.payload):
                assigned.pop(key, None)
        elif entry.kind is EntryKind.BATCH:
            assigned.update(_assigned_in(entry, snapshot))
    n, none = len(assigned), np.full(len(assigned), np.nan)
    columns = np.array(list(assigned.values())).reshape(n, 3)
    return RecordRows(
        columns[:, 0].astype(np.int64),
        np.full(n, -1, dtype=np.int64),
        columns[:, 1].astype(np.int64),
        np.zeros(n),
        none,
        none,
        columns[:, 2].copy(),
        np.full(n, REASSIGNED, dtype=np.uint8),
        Texts.of(assigned),
        Texts.empty(n),
    )


def _rows(entry: Entry, fields: RecordFields, keys: Texts, info: "AssimilateInfo") -> RecordRows:
    n = entry.n_points

    def same(value: "np.generic | float") -> npt.NDArray[Any]:
        return np.broadcast_to(value, n)  # a column of one value is not stored

    is_text = fields.time_is_text
    rows = RecordRows(
        entry.log_offset - n + 1 + np.arange(n),
        info.labels,
        same(np.int64(-1)),
        info.scores.novelty,
        info.scores.log_density,
        same(np.nan) if fields.times is None else fields.times,
        same(fields.arrived),
        same(np.uint8(0)) if is_text is None else np.where(is_text, TEXT_TIME, 0).astype(np.uint8),
        keys,
        Texts.empty(n) if fields.payloads is None else fields.payloads,
    )
    return rows if keys.lengths.all() else rows.take(np.flatnonzero(keys.lengths))
