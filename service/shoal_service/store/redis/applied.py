"""The learners' applied marks on their way to Redis: the newest of each stream, sent with the next group of appends.

A mark of its own for each entry applied would cost the server a sync each. The mark is what the byte budget counts
from, so other processes may see it a moment late; who sets it sees it at once, through `of`.
"""

import threading
import time
from typing import NamedTuple

from shoal_service.store.redis.keys import StreamKeys

LATE_S = 0.05
"""A mark travels alone when nothing else was sent for so long."""
RETRY_S = 1.0


class Mark(NamedTuple):
    """How far the learner of one epoch is."""

    epoch: int
    payload_bytes: int


class PendingMarks:
    """At most one mark a stream; any thread may put one, the writer takes them all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[StreamKeys, Mark] = {}
        self._sent: dict[StreamKeys, Mark] = {}
        self._due = float("inf")

    def put(self, keys: StreamKeys, mark: Mark) -> bool:
        """Replace what waits; True when nothing waited, of any stream."""
        with self._lock:
            first = not self._waiting
            self._waiting[keys] = mark
            self._due = min(self._due, time.monotonic() + LATE_S)
            return first

    def of(self, keys: StreamKeys) -> Mark | None:
        """What waits, or is on its way."""
        with self._lock:
            return self._waiting.get(keys) or self._sent.get(keys)

    def seconds_left(self) -> float | None:
        """Until the marks want to travel; None where there are none."""
        with self._lock:
            return max(0.0, self._due - time.monotonic()) if self._waiting else None

    def take(self) -> dict[StreamKeys, Mark]:
        """All that wait; each is to be followed by `arrived` or `put_back`."""
        with self._lock:
            taken, self._waiting, self._due = self._waiting, {}, float("inf")
            self._sent.update(taken)
            return taken

    def arrived(self, keys: StreamKeys) -> None:
        """The mark is in Redis, or was refused."""
        with self._lock:
            self._sent.pop(keys, None)

    def put_back(self, keys: StreamKeys) -> None:
        """The mark did not get there: again in a second, unless there is a newer one by then."""
        with self._lock:
            mark = self._sent.pop(keys, None)
            if mark is not None and keys not in self._waiting:
                self._waiting[keys] = mark
                self._due = min(self._due, time.monotonic() + RETRY_S)
