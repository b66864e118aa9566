"""Where a learner's state becomes durable: the newest good checkpoint is taken up, the next is written when due."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from shoal.errors import SnapshotDamagedError
from shoal_service.errors import StoreFormatError, StoreUnavailableError
from shoal_service.settings import Settings
from shoal_service.store import EntryKind, Store, StreamRecord
from shoal_service.streams.events import TRAIL, Feed, Place, Trail
from shoal_service.streams.learner import retry_policy as bearing
from shoal_service.streams.learner.apply import Working, begin, checkpoint_of, resume
from shoal_service.streams.learner.checkpoint_format import opened, sealed
from shoal_service.streams.learner.counters import Tally

_SCAN_BYTES = 8 << 20


class Sources(NamedTuple):
    """Where a checkpoint takes what is not in the state."""

    feed: Feed
    """The newest events go with it, and come back from it."""
    keep_after: Callable[[], int | None]
    """Entries after this one are being read by somebody else."""


class Checkpoints:
    """The checkpoints of one stream, seen from its one writer. Used by the learner's thread alone."""

    def __init__(
        self, store: Store, record: StreamRecord, settings: Settings, tally: Tally, log: Any, sources: Sources
    ) -> None:
        self._store = store
        self._record = record
        self._settings = settings
        self._tally = tally
        self._log = log
        self._sources = sources
        self._epoch = 0
        self._seq = self._log_offset = 0
        self._last = self._not_before = 0.0
        self.wanted = False
        """Whether the next one is due at once."""

    def load(self, epoch: int) -> Working:
        """The state of the newest good checkpoint. A stream that has none begins, with a checkpoint of its beginning.

        The beginning is kept because a settings entry changes the stream's record: only while there is no checkpoint,
        and therefore no such entry, are the record's settings those that the stream began with.
        """
        self._epoch = epoch
        held = self._store.load_checkpoints(self._record.name, self._record.incarnation)
        for checkpoint in held:
            state, trail = opened(checkpoint.blob)
            try:
                working = resume(checkpoint._replace(blob=state))
            except SnapshotDamagedError as error:
                self._log.error("checkpoint_damaged", seq=checkpoint.seq, reason=str(error))
                continue
            self._seq, self._log_offset, self._last = checkpoint.seq, checkpoint.log_offset, time.monotonic()
            self._sources.feed.begin(checkpoint.seq, trail)
            return working
        if held or not self._only_points():
            raise StoreFormatError(
                f"no checkpoint of stream {self._record.name!r} can be read; delete it and restore a snapshot file"
            )
        working = begin(self._record.settings)
        self._sources.feed.begin(0, Trail(Place(0, 0), []))
        self._write(working)
        return working

    def _only_points(self) -> bool:
        """Whether the log, from its beginning, holds nothing but points. (A gap in it is the learner's to find.)"""
        seq, name, incarnation = 0, self._record.name, self._record.incarnation
        while entries := self._store.read(name, incarnation, seq, max_bytes=_SCAN_BYTES):
            if any(entry.kind is not EntryKind.BATCH for entry in entries):
                return False
            seq = entries[-1].seq
        return True

    def due(self, working: Working) -> bool:
        """Whether points, time or a wish ask for a checkpoint now."""
        now = time.monotonic()
        if working.seq <= self._seq or now < self._not_before:
            return False
        points = working.log_offset - self._log_offset
        waited = now - self._last
        settings = self._settings
        return self.wanted or points >= settings.checkpoint_points or waited >= settings.checkpoint_interval_s

    def save(self, working: Working) -> None:
        """Write a checkpoint if the state has moved on; a store that does not answer is asked again later."""
        if working.seq <= self._seq:
            return
        try:
            self._write(working)
        except StoreUnavailableError as error:
            self._not_before = time.monotonic() + bearing.RETRY_S
            self._log.warning("checkpoint_failed", seq=working.seq, reason=str(error))

    def _write(self, working: Working) -> None:
        began = time.monotonic()
        checkpoint = checkpoint_of(working)
        checkpoint = checkpoint._replace(blob=sealed(checkpoint.blob, self._sources.feed.trail(TRAIL)))
        self._store.save_checkpoint(
            self._record.name,
            self._record.incarnation,
            self._epoch,
            checkpoint,
            keep_after=self._sources.keep_after(),
        )
        self._last = time.monotonic()
        self._seq, self._log_offset = checkpoint.seq, checkpoint.log_offset
        self.wanted = False
        self._tally.checkpoints += 1
        self._tally.checkpoint_seconds += self._last - began
        self._tally.checkpoint_bytes = len(checkpoint.blob)
        self._log.info("checkpoint", seq=checkpoint.seq, log_offset=checkpoint.log_offset, bytes=len(checkpoint.blob))
