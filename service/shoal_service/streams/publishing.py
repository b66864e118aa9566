"""When a learner shows its state to readers, and how it is made into a view. Used by the learner's thread alone."""

import time
from typing import Any

from shoal_service.store import StreamRecord
from shoal_service.streams.applying import Working, view_of
from shoal_service.streams.published import Board
from shoal_service.streams.tally import Tally

PUBLISH_SHARE = 0.1
"""Share of the thread's time that may go into views that nobody waits for: those of a large state come less often."""


class Publisher:
    """Publishes at most once an interval, or at once for somebody who waits."""

    def __init__(self, board: Board, record: StreamRecord, interval_s: float, tally: Tally, log: Any) -> None:
        self._board = board
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
        view = self._board.view
        return view is None or working.seq > view.seq

    def offer(self, working: Working) -> None:
        """Show the state if that is due, or wanted."""
        if self.pending(working) and (self.wait_s == 0.0 or self._board.wanted(working.seq, working.log_offset)):
            self.publish(working)

    def publish(self, working: Working) -> None:
        """Show the state. Where no view can be made of it, readers keep the one they have; the state is unharmed."""
        began = time.monotonic()
        try:
            view = view_of(working, self._record.name, self._record.incarnation)
        except Exception:  # noqa: BLE001 - learning goes on; the next state may well be shown
            self._log.error("publish_failed", seq=working.seq, exc_info=True)
        else:
            self._tally.publications += 1
            self._board.publish(view)
        cost = time.monotonic() - began
        self._next = began + max(self._interval_s, cost / PUBLISH_SHARE)
