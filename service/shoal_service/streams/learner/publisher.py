"""Publication of a learner's state: when a view is made, and where it is shown. Used by the learner's thread alone."""

import time
from collections.abc import Callable
from typing import Any, Protocol

from shoal_service.errors import ServiceError, StoreError, StoreUnavailableError
from shoal_service.store import StreamRecord
from shoal_service.streams.learner import retry_policy
from shoal_service.streams.learner.apply import WorkingState, view_of
from shoal_service.streams.learner.counters import LearnerCounters
from shoal_service.streams.learnt_rows import LearntRows
from shoal_service.streams.record_index import FamilyTree
from shoal_service.streams.view import PublishedView

PUBLISH_SHARE = 0.1
"""Largest share of the thread's time for views that nobody waits for. Views of a large state are less frequent."""


class ViewSink(Protocol):
    """Place where a learner shows its views: a board in this process, or a broadcast to several processes."""

    @property
    def seq(self) -> int:
        """The last entry of the view that is shown. -1 when none is."""

    def expect(self, seq: int, until: float) -> None:
        """Announce that the log is replayed up to an entry, which readers may have seen. They should wait for it, but
        not longer than until that time (monotonic clock).
        """

    def publish(self, view: PublishedView) -> None:
        """Show a view. StoreUnavailableError when it cannot be shown now."""

    def wanted(self, seq: int, log_offset: int) -> bool:
        """Whether a reader waits for a view that a publication at this entry would give."""

    def keep_learnt(self, seq: int, rows: LearntRows) -> None:
        """Keep the learnt rows (N,) of an entry, for readers that wait for them."""

    def fail(self, failure: Callable[[], ServiceError]) -> None:
        """Announce that no view will follow."""


class Publisher:
    """Publishes at most once an interval, or at once for a reader that waits."""

    def __init__(
        self,
        sink: ViewSink,
        record: StreamRecord,
        interval_s: float,
        counters: LearnerCounters,
        log: Any,
        before_publish: Callable[[WorkingState], None] = lambda working: None,
    ) -> None:
        """`before_publish` is called with each state before its view is shown. It may raise as `ViewSink.publish`."""
        self._sink = sink
        self._before_publish = before_publish
        self._record = record
        self._interval_s = interval_s
        self._counters = counters
        self._log = log
        self._next = 0.0
        self.family_tree: FamilyTree | None = None
        """That of the newest view."""

    @property
    def wait_s(self) -> float:
        """Seconds until the next view is due."""
        return max(self._next - time.monotonic(), 0.0)

    def pending(self, working: WorkingState) -> bool:
        """Whether readers have not seen this state yet. In a replay after a dead letter they have seen later ones."""
        return working.seq > self._sink.seq

    def offer(self, working: WorkingState, dead_letters: int) -> None:
        """Publish the state if a view is due, or if a reader waits for it."""
        if self.pending(working) and (self.wait_s == 0.0 or self._sink.wanted(working.seq, working.log_offset)):
            self.publish(working, dead_letters)

    def publish(self, working: WorkingState, dead_letters: int) -> None:
        """Publish the state. When no view can be made of it, readers keep the previous one; the state is intact."""
        began = time.monotonic()
        pause_s = self._interval_s
        self._counters.publications += 1
        try:
            self._before_publish(working)
            view = view_of(working, self._record.name, self._record.incarnation, dead_letters)
            view = view._replace(made_at=time.time())
            self._sink.publish(view)
            if view.snapshot is not None:
                self.family_tree = FamilyTree(view.snapshot.ids, view.snapshot.lineage)
        except StoreUnavailableError as error:
            self._counters.publications -= 1
            pause_s = retry_policy.RETRY_S
            self._log.warning("publish_failed", seq=working.seq, reason=str(error))
        except StoreError:  # the stream is no longer this learner's
            raise
        except Exception:  # noqa: BLE001 - learning continues; the next state may give a view
            self._log.error("publish_failed", seq=working.seq, exc_info=True)
        cost = time.monotonic() - began
        self._next = began + max(pause_s, cost / PUBLISH_SHARE)
