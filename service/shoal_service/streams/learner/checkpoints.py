"""Checkpoints of a learner: the newest good one is loaded at the start, the next is written when it is due.

The blob of a checkpoint holds the newest events and the monitor beside the state, so that a restart loses none of them:

    magic 8 | lengths of the events and of the monitor, u32 little-endian | events as JSON | monitor | the state's bytes

Earlier versions wrote no monitor, under another magic, or a state alone, without a magic.
"""

import struct
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from shoal.errors import SnapshotDamagedError
from shoal_service.errors import StoreFormatError, StoreUnavailableError
from shoal_service.settings import Settings
from shoal_service.store import Checkpoint, EntryKind, Store, StreamRecord
from shoal_service.streams.events import TRAIL, EventPlace, Feed, Trail, decode_trail, encode_trail
from shoal_service.streams.learner import retry_policy
from shoal_service.streams.learner.apply import WorkingState, begin, checkpoint_of, resume
from shoal_service.streams.learner.counters import LearnerCounters
from shoal_service.streams.monitor import encode_monitor

_SCAN_BYTES = 8 << 20
REPLAY_S = 1.0
"""A replay that took longer is followed by a checkpoint at once."""
REPLAY_INTERVAL_S = 5.0
"""Longest time between two checkpoints during a replay. A process that soon ends again makes progress so."""
_MAGIC, _MAGIC_WITHOUT_MONITOR = b"\x93SHOALC2", b"\x93SHOALCP"
_LENGTHS, _LENGTH = struct.Struct("<II"), struct.Struct("<I")


class Unpacked(NamedTuple):
    """Parts of the blob of a checkpoint."""

    state: bytes
    trail: Trail | None
    """None where the blob holds no events."""
    monitor: bytes
    """Empty where the blob holds none."""


def pack_checkpoint(state: bytes, trail: Trail, monitor: bytes = b"") -> bytes:
    """The blob of a checkpoint."""
    head = encode_trail(trail)
    return b"".join((_MAGIC, _LENGTHS.pack(len(head), len(monitor)), head, monitor, state))


def unpack_checkpoint(blob: bytes) -> Unpacked:
    """Inverse of `pack_checkpoint`."""
    start = len(_MAGIC)
    if blob.startswith(_MAGIC):
        n_events, n_monitor = _LENGTHS.unpack_from(blob, start)
        start += _LENGTHS.size
    elif blob.startswith(_MAGIC_WITHOUT_MONITOR):
        (n_events,), n_monitor = _LENGTH.unpack_from(blob, start), 0
        start += _LENGTH.size
    else:
        return Unpacked(blob, None, b"")
    events_end = start + n_events
    end = events_end + n_monitor
    return Unpacked(blob[end:], decode_trail(blob[start:events_end]), blob[events_end:end])


def state_alone(checkpoint: Checkpoint) -> Checkpoint:
    """The same checkpoint with the state alone in its blob."""
    return checkpoint._replace(blob=unpack_checkpoint(checkpoint.blob).state)


class Checkpoints:
    """The checkpoints of one stream, as its one writer loads and writes them. Used by the learner's thread alone."""

    def __init__(
        self,
        store: Store,
        record: StreamRecord,
        settings: Settings,
        counters: LearnerCounters,
        log: Any,
        feed: Feed,
        *,
        keep_after: Callable[[], int | None],
        before_write: Callable[[WorkingState], None],
    ) -> None:
        """`feed` gives the newest events to each checkpoint, and gets them back when one is loaded.

        `keep_after` gives the entry after which a refinement reads the log, so that no checkpoint trims it.

        `before_write` is called with each state before its checkpoint is written, since that trims the log.
        """
        self._store = store
        self._record = record
        self._settings = settings
        self._counters = counters
        self._log = log
        self._feed = feed
        self._keep_after = keep_after
        self._before_write = before_write
        self._epoch = 0
        self._seq = self._log_offset = 0
        self._valid = -1  # the entry of the last one that was written here, or loaded and found valid
        self._last = self._not_before = 0.0
        self._replay_end = 0  # the last entry of the log when the checkpoint was loaded
        self.wanted = False
        """Whether the next one is due at once."""

    def load(self, epoch: int) -> WorkingState:
        """The state of the newest good checkpoint. A stream without one begins, and writes one of its beginning.

        The beginning is kept because a settings entry changes the stream's record: the record holds the first
        settings only as long as there is no such entry, and a settings entry needs a checkpoint before it.
        """
        self._epoch = epoch
        self._replay_end = self._store.tail(self._record.name, self._record.incarnation).seq
        found = self._store.load_checkpoints(self._record.name, self._record.incarnation)
        for checkpoint in found:
            parts = unpack_checkpoint(checkpoint.blob)
            try:
                is_valid = checkpoint.seq == self._valid
                working = resume(checkpoint._replace(blob=parts.state), parts.monitor, is_valid=is_valid)
            except SnapshotDamagedError as error:
                self._log.error("checkpoint_damaged", seq=checkpoint.seq, reason=str(error))
                continue
            self._seq, self._log_offset, self._last = checkpoint.seq, checkpoint.log_offset, time.monotonic()
            self._valid = checkpoint.seq
            self._feed.begin(checkpoint.seq, parts.trail)
            return working
        if found or not self._holds_only_batches():
            raise StoreFormatError(
                f"no checkpoint of stream {self._record.name!r} can be read; delete it and restore a snapshot file"
            )
        working = begin(self._record.settings)
        self._feed.begin(0, Trail(EventPlace(0, 0), []))
        self._write(working)
        return working

    def _holds_only_batches(self) -> bool:
        """Whether the log, from its beginning, holds nothing but points. The learner itself finds a gap in it."""
        seq, name, incarnation = 0, self._record.name, self._record.incarnation
        while entries := self._store.read(name, incarnation, seq, max_bytes=_SCAN_BYTES):
            if any(entry.kind is not EntryKind.BATCH for entry in entries):
                return False
            seq = entries[-1].seq
        return True

    def due(self, working: WorkingState) -> bool:
        """Whether the points since the last one, the time, or `wanted` ask for a checkpoint now."""
        return self.due_in_s(working) == 0.0

    def due_in_s(self, working: WorkingState) -> float:
        """Seconds until the next checkpoint is due. Infinite while there is nothing new to write."""
        if working.seq <= self._seq:
            return float("inf")
        at_once = self.wanted or working.log_offset - self._log_offset >= self._settings.checkpoint_points
        due = 0.0 if at_once else self._last + self._interval_s(working.seq)
        return max(due - time.monotonic(), self._not_before - time.monotonic(), 0.0)

    def _interval_s(self, seq: int) -> float:
        """Time between two checkpoints, shorter during a replay and at its end."""
        interval_s = self._settings.checkpoint_interval_s
        if seq > self._replay_end:
            return interval_s
        return min(interval_s, REPLAY_S if seq == self._replay_end else REPLAY_INTERVAL_S)

    def save(self, working: WorkingState) -> None:
        """Write a checkpoint if the state is newer than the last one. A store that does not answer is asked later."""
        if working.seq <= self._seq:
            return
        try:
            self._write(working)
        except StoreUnavailableError as error:
            self._not_before = time.monotonic() + retry_policy.RETRY_S
            self._log.warning("checkpoint_failed", seq=working.seq, reason=str(error))

    def _write(self, working: WorkingState) -> None:
        self._before_write(working)
        began = time.monotonic()
        checkpoint = checkpoint_of(working)
        trail = self._feed.trail(TRAIL, self._feed.needed)
        blob = pack_checkpoint(checkpoint.blob, trail, encode_monitor(working.monitor))
        checkpoint = checkpoint._replace(blob=blob)
        self._store.save_checkpoint(
            self._record.name, self._record.incarnation, self._epoch, checkpoint, keep_after=self._keep_after()
        )
        self._last = time.monotonic()
        self._seq, self._log_offset = checkpoint.seq, checkpoint.log_offset
        self._valid = checkpoint.seq
        self.wanted = False
        self._counters.checkpoints += 1
        self._counters.checkpoint_seconds += self._last - began
        self._counters.checkpoint_bytes = len(checkpoint.blob)
        self._log.info("checkpoint", seq=checkpoint.seq, log_offset=checkpoint.log_offset, bytes=len(checkpoint.blob))
