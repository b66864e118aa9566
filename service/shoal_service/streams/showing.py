"""What a leader shows to readers in other processes, and what it hears from them."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from shoal.points.arrays import IntArray
from shoal_service.errors import ServiceError, StoreUnavailableError
from shoal_service.store import ReaderRequest, Sharing, StreamRecord
from shoal_service.streams.events import Feed
from shoal_service.streams.published import LABELS_KEPT, PublishedView
from shoal_service.streams.view_codec import NOTHING, Encoder, Head, head_to_bytes

WANT_KEPT_S = 3.0
"""A wish that is not repeated within this time is forgotten: whoever had it has gone. Readers repeat theirs each
second."""


EVENTS_SHOWN = 500
"""Newest events that are shown with a view: more between two views are a gap for who follows in another process."""


class Showing:
    """The notice of one leader: its views and labels, in the shared store. Any thread may let it hear a wish."""

    def __init__(self, sharing: Sharing, record: StreamRecord, epoch: int, log: Any) -> None:
        self._sharing = sharing
        self._key = (record.name, record.incarnation, epoch)
        self._log = log.bind(stream=record.name)
        self._encoder = Encoder(epoch)
        self.feed: Feed | None = None
        """The learner's events, of which the newest are shown with each view."""
        self._lock = threading.Lock()
        self._wants: dict[tuple[int, int], float] = {}  # entry and offset, to the time when they are forgotten
        self._label_wants: dict[int, float] = {}  # entry, to the same
        self._labels: OrderedDict[int, IntArray] = OrderedDict()
        self._n_labels = 0
        self._head = NOTHING
        self._shown: set[str] = set()  # blobs
        self._lost = True

    @property
    def seq(self) -> int:
        """See `Notice`; -1 also when the view is not there any more."""
        return -1 if self._lost else self._head.seq

    # -- the learner's thread

    def publish(self, view: PublishedView) -> None:
        """See `Notice`."""
        trail = self.feed.trail(EVENTS_SHOWN) if self.feed is not None else None
        head, blobs = self._encoder.encode(view, whole=self._lost, trail=trail)
        if not self._sharing.publish_view(*self._key, head_to_bytes(head), blobs):
            head, blobs = self._encoder.encode(view, whole=True, trail=trail)
            self._sharing.publish_view(*self._key, head_to_bytes(head), blobs)
        self._head, self._shown, self._lost = head, {blob.id for blob in blobs}, False
        with self._lock:
            self._wants = {want: until for want, until in self._wants.items() if not _met(want, view)}

    def wanted(self, seq: int, log_offset: int) -> bool:
        """See `Notice`."""
        if not self._wants:
            return False
        now = time.monotonic()
        with self._lock:
            self._wants = {want: until for want, until in self._wants.items() if until > now}
            return any(want[0] <= seq and want[1] <= log_offset for want in self._wants)

    def keep_labels(self, seq: int, labels: IntArray) -> None:
        """See `Notice`; those that somebody waits for are shown, before the view that holds the entry."""
        with self._lock:
            self._n_labels -= len(self._labels.pop(seq, ()))
            self._labels[seq] = labels
            self._n_labels += len(labels)
            while len(self._labels) > 1 and self._n_labels > LABELS_KEPT:
                self._n_labels -= len(self._labels.popitem(last=False)[1])
            wanted = seq in self._label_wants
        if wanted:
            self._show_labels(seq, labels)

    def fail(self, failure: Callable[[], ServiceError]) -> None:
        """See `Notice`. Nothing: another learner takes over, and readers keep what they have until then."""

    # -- other threads

    def hear(self, want: ReaderRequest, reached: int) -> None:
        """Somebody wants a view, or labels; `reached` is the last entry that was applied."""
        until = time.monotonic() + WANT_KEPT_S
        with self._lock:
            if want.seq > self.seq or want.log_offset > self._head.log_offset:
                self._wants[want.seq, want.log_offset] = until
            if want.what != "labels":
                return
            self._label_wants = {seq: end for seq, end in self._label_wants.items() if end > until - WANT_KEPT_S}
            self._label_wants[want.seq] = until
            labels = self._labels.get(want.seq)
        if labels is not None:
            self._show_labels(want.seq, labels)
        elif want.seq <= reached:  # applied before this learner's time, or long ago
            self._show_labels(want.seq, np.zeros(0, dtype=np.int64))

    def held(self, blobs: Collection[str]) -> bool:
        """Told what the store shows by now; False when it is not this leader's view, which is then to be shown anew."""
        if not self._shown <= set(blobs):
            self._lost = True
        return not self._lost

    def tell_failure(self, reason: str) -> None:
        """Let readers know that the learner has stopped, beside the view that they have."""
        head = self._head if not self._lost else NOTHING
        blobs = self._encoder.sent() if not self._lost else []
        try:
            self._sharing.publish_view(*self._key, head_to_bytes(_failed(head, self._key[2], reason)), blobs)
        except ServiceError as error:
            self._log.warning("failure_not_shown", reason=str(error))

    def _show_labels(self, seq: int, labels: IntArray) -> None:
        try:
            self._sharing.put_labels(*self._key, seq, np.ascontiguousarray(labels, dtype="<i8").tobytes())
        except StoreUnavailableError as error:  # who waits for them will ask again
            self._log.warning("labels_not_shown", seq=seq, reason=str(error))


def _met(want: tuple[int, int], view: PublishedView) -> bool:
    return want[0] <= view.seq and want[1] <= view.log_offset


def _failed(head: Head, epoch: int, reason: str) -> Head:
    return head._replace(epoch=epoch, failure=reason)
