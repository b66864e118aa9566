"""When a learner shows its state to readers, and how it is made into a view. Used by the learner's thread alone."""

import time
from collections.abc import Callable
from typing import Any, Protocol

from shoal.points.arrays import IntArray
from shoal_service.errors import ServiceError, StoreError, StoreUnavailableError
from shoal_service.store import StreamRecord
from shoal_service.streams import patience as bearing
from shoal_service.streams.applying import Working, view_of
from shoal_service.streams.published import PublishedView
from shoal_service.streams.tally import Tally

PUBLISH_SHARE = 0.1
"""Share of the thread's time that may go into views that nobody waits for: those of a large state come less often."""


class Notice(Protocol):
    """Where a learner shows its views: a board in this process, or readers in all of them."""

    @property
    def seq(self) -> int:
        """The last entry of the view that is shown; -1 when none is."""

    def publish(self, view: PublishedView) -> None:
        """Show a view. StoreUnavailableError when it cannot be shown now."""

    def wanted(self, seq: int, log_offset: int) -> bool:
        """Whether somebody waits for a view that a publication as of this entry would give."""

    def keep_labels(self, seq: int, labels: IntArray) -> None:
        """Keep the ids (N,) given to an entry's points, for who waits for them."""

    def fail(self, failure: Callable[[], ServiceError]) -> None:
        """No view will follow."""


class Publisher:
    """Publishes at most once an interval, or at once for somebody who waits."""

    def __init__(self, notice: Notice, record: StreamRecord, interval_s: float, tally: Tally, log: Any) -> None:
        self._notice = notice
        self._record = record
        self._interval_s = interval_s
        self._tally = tally
        self._log = log
        self._next = 0.0

    @property
    def wait_s(self) -> float:
        """Seconds until the next view is due."""
        return max(self._next - time.monotonic(), 0.0)

    def pending(self, working: Working) -> bool:
        """Whether readers have yet to see this state. In a replay after a dead letter they have seen later ones."""
        return working.seq > self._notice.seq

    def offer(self, working: Working, n_letters: int) -> None:
        """Show the state if that is due, or wanted."""
        if self.pending(working) and (self.wait_s == 0.0 or self._notice.wanted(working.seq, working.log_offset)):
            self.publish(working, n_letters)

    def publish(self, working: Working, n_letters: int) -> None:
        """Show the state. Where no view can be made of it, readers keep the one they have; the state is unharmed."""
        began = time.monotonic()
        pause_s = self._interval_s
        self._tally.publications += 1
        try:
            self._notice.publish(view_of(working, self._record.name, self._record.incarnation, n_letters))
        except StoreUnavailableError as error:
            self._tally.publications -= 1
            pause_s = bearing.RETRY_S
            self._log.warning("publish_failed", seq=working.seq, reason=str(error))
        except StoreError:  # the stream is no longer this learner's
            raise
        except Exception:  # noqa: BLE001 - learning goes on; the next state may well be shown
            self._log.error("publish_failed", seq=working.seq, exc_info=True)
        cost = time.monotonic() - began
        self._next = began + max(pause_s, cost / PUBLISH_SHARE)
