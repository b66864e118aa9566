"""The feed of a stream's changes of identity: a ring that the learner writes, and any number of readers follow.

An event's place is the log's entry that caused it and its number among that entry's events: a function of the log,
so that a replay gives the same events the same places, and a reader may go on after a restart. Each reader keeps its
own place and copies what is new from the ring: one that is slow, or comes back late, finds its place overwritten, is
told of the gap, and holds nobody up.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice, takewhile
from typing import Any, NamedTuple

from shoal_service.errors import ServiceError


class Place(NamedTuple):
    """Where an event stands; places are in the order of events."""

    seq: int
    """The log's entry."""
    nth: int
    """Counts that entry's events, from 0."""

    @property
    def next(self) -> "Place":
        """Where the event after this one stands, at the earliest."""
        return Place(self.seq, self.nth + 1)


class FeedEvent(NamedTuple):
    """One event."""

    place: Place
    kind: str
    data: dict[str, Any]


class Trail(NamedTuple):
    """The newest events of a feed."""

    begins: Place
    """From here on there are no others."""
    events: list[FeedEvent]


class Batch(NamedTuple):
    """What a reader gets."""

    events: list[FeedEvent]
    missed: bool
    """Whether events before these, after the reader's place, are no longer held."""


AT_ONCE = 256
"""Most events that a reader is given at once."""
TRAIL = 1_000
"""Newest events that a checkpoint keeps: what readers can go back over after a restart."""


class Feed:
    """The events of one stream. One thread adds; readers follow on event loops."""

    def __init__(self, kept: int) -> None:
        self._lock = threading.Lock()
        self._ring: deque[FeedEvent] = deque(maxlen=kept)
        self._begins = Place(0, 0)  # events from here on are held
        self._end = Place(0, 0)  # the place that follows the last one; (0, 0) while nothing is known
        self._waiting: set[_Waiter] = set()
        self._failure: Callable[[], ServiceError] | None = None

    def begin(self, seq: int, trail: Trail | None) -> None:
        """What entries up to `seq` have caused is the trail, as far as it is known here. Before the first `add`."""
        with self._lock:
            if self._end.seq == 0:
                self._begins, events = trail if trail is not None else (Place(seq + 1, 0), [])
                for event in events:
                    self._push(event)
                self._end = Place(seq + 1, 0)

    def add(self, seq: int, events: Iterable[tuple[str, dict[str, Any]]]) -> None:
        """The events of entry `seq`; entries that were told of before, as in a replay, add nothing."""
        with self._lock:
            if seq < self._end.seq:
                return
            found = [FeedEvent(Place(seq, nth), kind, data) for nth, (kind, data) in enumerate(events)]
            for event in found:
                self._push(event)
            self._end = Place(seq + 1, 0)
            waiting, self._waiting = (self._waiting, set()) if found else (set(), self._waiting)
        for waiter in waiting:
            waiter.wake()

    def _push(self, event: FeedEvent) -> None:
        if len(self._ring) == self._ring.maxlen:
            self._begins = self._ring[0].place.next
        self._ring.append(event)

    @property
    def end(self) -> Place:
        """The place of the event that comes next, at the earliest."""
        return self._end

    @property
    def begins(self) -> Place:
        """From here on events are held."""
        return self._begins

    def after(self, place: Place) -> Batch:
        """Up to `AT_ONCE` events from `place` on."""
        with self._lock:
            newer = sum(1 for _ in takewhile(lambda event: event.place >= place, reversed(self._ring)))
            first = len(self._ring) - newer
            return Batch(list(islice(self._ring, first, first + AT_ONCE)), place < self._begins)

    def trail(self, most: int) -> Trail:
        """The newest events: to be kept with a checkpoint, or shown to other processes."""
        with self._lock:
            held = list(self._ring)
            begins = held[-most - 1].place.next if len(held) > most else self._begins
            return Trail(begins, held[-most:])

    def follow(self, seq: int, trail: Trail, *, anew: bool = False) -> None:
        """Another feed of the same stream, which knows of all entries up to `seq`, has this trail: take over what is
        new. `anew`: what was known is of a log that lost its end.
        """
        with self._lock:
            if anew or trail.begins > self._end:  # what lies between the two is known to neither
                self._ring.clear()
                self._begins = self._end = trail.begins
            new = [event for event in trail.events if event.place >= self._end]
            for event in new:
                self._push(event)
            self._end = max(self._end, Place(seq + 1, 0))
            waiting, self._waiting = (self._waiting, set()) if new else (set(), self._waiting)
        for waiter in waiting:
            waiter.wake()

    async def grown(self, place: Place, timeout_s: float) -> bool:
        """Wait for an event at `place` or later; False when none came in time. Raises why none will come any more."""
        with self._lock:
            if self._failure is not None:
                raise self._failure()
            if self._ring and self._ring[-1].place >= place:
                return True
            waiter = _Waiter()
            self._waiting.add(waiter)
        try:
            await asyncio.wait_for(waiter.woken.wait(), timeout_s)
        except TimeoutError:
            return False
        finally:
            with self._lock:
                self._waiting.discard(waiter)
        return True

    def fail(self, failure: Callable[[], ServiceError]) -> None:
        """No event will follow; who waits is told why."""
        with self._lock:
            self._failure = self._failure or failure
            waiting, self._waiting = self._waiting, set()
        for waiter in waiting:
            waiter.wake()


class _Waiter:
    """One reader that waits."""

    def __init__(self) -> None:
        self.woken = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def wake(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.woken.set)
