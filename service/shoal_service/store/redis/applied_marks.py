"""Applied marks of the learners on their way to Redis: the newest mark of each stream, sent with the next group.

A request for each applied entry would cost the server one sync each. The byte budget counts from the mark, so other
processes may see it a moment later. The process that sets it sees it at once, through `newest`.
"""

import threading
import time
from typing import NamedTuple

from shoal_service.store.redis.keys import StreamKeys

SEND_AFTER_S = 0.05
"""Time after which a mark is sent alone, when no other request was sent."""
RETRY_S = 1.0


class AppliedMark(NamedTuple):
    """Position of the learner of one epoch."""

    epoch: int
    payload_bytes: int


class PendingMarks:
    """At most one mark for each stream. Any thread may put one, and the writer takes all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[StreamKeys, AppliedMark] = {}
        self._sent: dict[StreamKeys, AppliedMark] = {}
        self._due = float("inf")

    def put(self, keys: StreamKeys, mark: AppliedMark) -> bool:
        """Replace the waiting mark of the stream. Returns whether no mark of any stream was waiting."""
        with self._lock:
            first = not self._waiting
            self._waiting[keys] = mark
            self._due = min(self._due, time.monotonic() + SEND_AFTER_S)
            return first

    def newest(self, keys: StreamKeys) -> AppliedMark | None:
        """Return the mark that waits or is on its way."""
        with self._lock:
            return self._waiting.get(keys) or self._sent.get(keys)

    def seconds_left(self) -> float | None:
        """Return the seconds until the marks are due. None when no mark waits."""
        with self._lock:
            return max(0.0, self._due - time.monotonic()) if self._waiting else None

    def take(self) -> dict[StreamKeys, AppliedMark]:
        """Take all waiting marks. For each, `confirm` or `put_back` must follow."""
        with self._lock:
            taken, self._waiting, self._due = self._waiting, {}, float("inf")
            self._sent.update(taken)
            return taken

    def confirm(self, keys: StreamKeys) -> None:
        """Forget a mark that Redis has stored or refused."""
        with self._lock:
            self._sent.pop(keys, None)

    def put_back(self, keys: StreamKeys) -> None:
        """Send a mark that did not arrive again in a second, unless a newer one waits."""
        with self._lock:
            mark = self._sent.pop(keys, None)
            if mark is not None and keys not in self._waiting:
                self._waiting[keys] = mark
                self._due = min(self._due, time.monotonic() + RETRY_S)
