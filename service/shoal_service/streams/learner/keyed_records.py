"""Records of a stream as its learner keeps them: of each batch with keys, after it was learnt. Used by one thread.

They are written before a view or a checkpoint that includes them. So a reader that sees a view finds its records, and
the log holds what is not written yet.
"""

import time
from typing import TYPE_CHECKING

import numpy as np

from shoal_service.store import Entry, EntryKind, Store, StreamRecord
from shoal_service.streams.learner.apply import WorkingState
from shoal_service.streams.record_index import TEXT_TIME, Limits, RecordRows, RecordWriter, forgotten_keys
from shoal_service.wire import RecordFields, fields_from_log

if TYPE_CHECKING:
    from shoal.mixture import StreamSettings
    from shoal.sequential import AssimilateInfo


class KeyedRecords:
    """The records of one stream."""

    def __init__(self, store: Store, record: StreamRecord) -> None:
        self._store = store
        self._stream = (record.name, record.incarnation)
        self._epoch = 0
        self._writer: RecordWriter | None = None

    def load(self, epoch: int) -> None:
        """Begin where the store's records end. What was added and not written is in the log. Raises StoreError."""
        self._epoch = epoch
        self._writer = RecordWriter(
            lambda places: self._store.read_pages(*self._stream, places),
            lambda pages, dropped: self._store.write_pages(*self._stream, self._epoch, pages, dropped),
        )

    def add(self, entry: Entry, info: "AssimilateInfo | None", settings: "StreamSettings") -> None:
        """Add what an applied entry says of records. An entry that was added before adds nothing."""
        writer = self._of()
        if entry.seq <= writer.seq:
            return
        if entry.kind is EntryKind.FORGET:
            writer.forget(forgotten_keys(entry.payload))
        elif entry.kind is EntryKind.BATCH and info is not None and settings.max_records:
            fields = fields_from_log(entry.payload)
            if fields is not None and fields.keys is not None:
                writer.add(_rows(entry, fields, fields.keys, info))

    def flush(self, working: WorkingState) -> None:
        """Write what was added, as of this state. Raises StoreError; then it is written later."""
        settings = working.state.settings
        limits = Limits(settings.max_records, settings.record_bytes, settings.record_ttl_s)
        self._of().flush(working.seq, limits, time.time())

    def flush_if_full(self, working: WorkingState) -> None:
        """Write what was added if it is much."""
        if self._of().full:
            self.flush(working)

    def _of(self) -> RecordWriter:
        assert self._writer is not None, "records are loaded before entries are applied"
        return self._writer


def _rows(entry: Entry, fields: RecordFields, keys: list[bytes], info: "AssimilateInfo") -> RecordRows:
    n = entry.n_points
    flags = np.zeros(n, dtype=np.uint8)
    if fields.time_is_text is not None:
        flags[fields.time_is_text] |= TEXT_TIME
    rows = RecordRows(
        entry.log_offset - n + 1 + np.arange(n),
        info.labels,
        np.full(n, -1, dtype=np.int64),
        info.met.novelty,
        info.met.log_density,
        np.full(n, np.nan) if fields.times is None else fields.times,
        np.full(n, fields.arrived),
        flags,
        keys,
        [b""] * n if fields.payloads is None else fields.payloads,
    )
    return rows if all(keys) else rows.take(np.flatnonzero(np.fromiter(map(bool, keys), np.bool_, n)))
