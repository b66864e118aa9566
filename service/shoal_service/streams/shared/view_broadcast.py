"""Broadcast of a learner's views and learnt rows to readers in other processes, through the shared store."""

import threading
import time
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from shoal_service.errors import ServiceError, StoreUnavailableError
from shoal_service.store import ReaderRequest, Sharing, StreamRecord
from shoal_service.streams.events import Feed
from shoal_service.streams.learnt_rows import LEARNT, LearntRows, RecentRows
from shoal_service.streams.shared.view_codec import NO_VIEW, Head, ViewEncoder, head_to_bytes
from shoal_service.streams.view import PublishedView

REQUEST_KEPT_S = 3.0
"""Time after which a request is forgotten unless it is repeated. Readers that still wait repeat theirs each second."""
EVENTS_SHOWN = 500
"""Newest events that are sent with a view. More events between two views are a gap for followers elsewhere."""


class ViewBroadcast:
    """The `ViewSink` of one leader. Any thread may pass it a request."""

    def __init__(self, sharing: Sharing, record: StreamRecord, epoch: int, log: Any) -> None:
        self._sharing = sharing
        self._key = (record.name, record.incarnation, epoch)
        self._log = log.bind(stream=record.name)
        self._encoder = ViewEncoder(epoch)
        self.feed: Feed | None = None
        """The learner's events, of which the newest are sent with each view."""
        self._lock = threading.Lock()
        self._view_requests: dict[tuple[int, int], float] = {}  # entry and offset, to the time when it is forgotten
        self._learnt_requests: dict[int, float] = {}  # entry, to the same
        self._learnt = RecentRows()
        self._head = NO_VIEW
        self._sent: set[str] = set()  # blobs
        self._lost = True

    @property
    def seq(self) -> int:
        """As `ViewSink.seq`. -1 also when the store has lost the view."""
        return -1 if self._lost else self._head.seq

    # -- the learner's thread

    def expect(self, seq: int, until: float) -> None:
        """As `ViewSink.expect`. Does nothing: readers elsewhere keep the later view that they have."""

    def publish(self, view: PublishedView) -> None:
        """As `ViewSink.publish`."""
        trail = self.feed.trail(EVENTS_SHOWN) if self.feed is not None else None
        head, blobs = self._encoder.encode(view, whole=self._lost, trail=trail)
        if not self._sharing.publish_view(*self._key, head_to_bytes(head), blobs):
            head, blobs = self._encoder.encode(view, whole=True, trail=trail)
            self._sharing.publish_view(*self._key, head_to_bytes(head), blobs)
        self._head, self._sent, self._lost = head, {blob.id for blob in blobs}, False
        with self._lock:
            self._view_requests = {
                request: until for request, until in self._view_requests.items() if not _met(request, view)
            }

    def wanted(self, seq: int, log_offset: int) -> bool:
        """As `ViewSink.wanted`."""
        if not self._view_requests:
            return False
        now = time.monotonic()
        with self._lock:
            self._view_requests = {request: until for request, until in self._view_requests.items() if until > now}
            return any(request[0] <= seq and request[1] <= log_offset for request in self._view_requests)

    def keep_learnt(self, seq: int, rows: LearntRows) -> None:
        """As `ViewSink.keep_learnt`. Requested rows are sent before the view that includes the entry."""
        with self._lock:
            self._learnt.add(seq, rows)
            requested = seq in self._learnt_requests
        if requested:
            self._send_learnt(seq, rows)

    def fail(self, failure: Callable[[], ServiceError]) -> None:
        """As `ViewSink.fail`. Does nothing: another learner takes over, and readers keep what they have until then."""

    # -- other threads

    def on_request(self, request: ReaderRequest, applied: int) -> None:
        """A reader asks for a view or for learnt rows. `applied` is the last entry that was applied."""
        until = time.monotonic() + REQUEST_KEPT_S
        with self._lock:
            if request.seq > self.seq or request.log_offset > self._head.log_offset:
                self._view_requests[request.seq, request.log_offset] = until
            if request.what != "labels":
                return
            now = until - REQUEST_KEPT_S
            self._learnt_requests = {seq: end for seq, end in self._learnt_requests.items() if end > now}
            self._learnt_requests[request.seq] = until
            rows = self._learnt.get(request.seq)
        if rows is not None:
            self._send_learnt(request.seq, rows)
        elif request.seq <= applied:  # applied by another learner, or long ago
            self._send_learnt(request.seq, np.zeros(0, dtype=LEARNT))

    def still_shown(self, blobs: Collection[str]) -> bool:
        """Compare with the blobs in the store. False when the view is lost and must be published again."""
        if not self._sent <= set(blobs):
            self._lost = True
        return not self._lost

    def report_failure(self, reason: str) -> None:
        """Tell readers that the learner has stopped, beside the view that they have."""
        head = self._head if not self._lost else NO_VIEW
        blobs = self._encoder.sent() if not self._lost else []
        try:
            self._sharing.publish_view(*self._key, head_to_bytes(_failed(head, self._key[2], reason)), blobs)
        except ServiceError as error:
            self._log.warning("failure_not_shown", reason=str(error))

    def _send_learnt(self, seq: int, rows: LearntRows) -> None:
        try:
            self._sharing.put_learnt_rows(*self._key, seq, rows.tobytes())
        except StoreUnavailableError as error:  # a reader that waits for them asks again
            self._log.warning("labels_not_shown", seq=seq, reason=str(error))


def _met(request: tuple[int, int], view: PublishedView) -> bool:
    return request[0] <= view.seq and request[1] <= view.log_offset


def _failed(head: Head, epoch: int, reason: str) -> Head:
    return head._replace(epoch=epoch, failure=reason)
