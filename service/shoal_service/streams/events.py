"""Feed of the events of one stream: births, merges and prunes of components, in a ring buffer.

The learner writes the feed, and any number of readers follow it. The place of an event is the log entry that caused it
and its number among the events of that entry. Places are therefore a function of the log: a replay gives the same
events the same places, and a reader can continue after a restart. Each reader keeps its own place and copies new events
from the ring. A slow reader finds its place overwritten; it learns that events are missing, and delays no other reader.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice, takewhile
from typing import Any, NamedTuple

import msgspec

from shoal_service.errors import ServiceError


class EventPlace(NamedTuple):
    """Position of an event. Places are ordered as the events are."""

    seq: int
    """The entry of the log."""
    nth: int
    """Number among the events of that entry, from 0."""

    @property
    def next(self) -> "EventPlace":
        """The earliest place of the event after this one."""
        return EventPlace(self.seq, self.nth + 1)


class FeedEvent(NamedTuple):
    """One event."""

    place: EventPlace
    kind: str
    data: dict[str, Any]


def event_id(incarnation: str, place: EventPlace) -> str:
    """Id of an event, as clients see it."""
    return f"{incarnation}.{place.seq}.{place.nth}"


def event_fields(stream: str, incarnation: str, event: FeedEvent) -> dict[str, Any]:
    """Data of an event, as clients see them."""
    data = event.data
    return {
        "stream": stream,
        "incarnation": incarnation,
        "kind": event.kind,
        "log_offset": data.get("log_offset"),
        "points_seen": data.get("offset"),
        "parents": data.get("parents", []),
        "children": data.get("children", []),
        "component": data.get("component"),
        "was": data.get("was"),
        "labels": data.get("labels", {}),
        "refinement": data.get("refinement"),
        "before": data.get("before"),
        "after": data.get("after"),
        "reason": data.get("reason"),
    }


class Trail(NamedTuple):
    """The newest events of a feed."""

    begins: EventPlace
    """The trail holds every event from this place on."""
    events: list[FeedEvent]


def encode_trail(trail: Trail) -> bytes:
    """As JSON."""
    return msgspec.json.encode(trail)


def decode_trail(data: bytes) -> Trail:
    """Inverse of `encode_trail`."""
    begins, events = msgspec.json.decode(data)
    return Trail(EventPlace(*begins), [FeedEvent(EventPlace(*place), kind, data) for place, kind, data in events])


class Batch(NamedTuple):
    """Events that a reader gets in one read."""

    events: list[FeedEvent]
    missed: bool
    """Whether events between the reader's place and these are no longer kept."""


AT_ONCE = 256
"""Most events in one read."""
TRAIL = 1_000
"""Newest events that a checkpoint keeps, for readers that continue after a restart."""


class Feed:
    """The newest events of one stream. One thread adds events; readers follow on event loops."""

    def __init__(self, kept: int) -> None:
        self._lock = threading.Lock()
        self._ring: deque[FeedEvent] = deque(maxlen=kept)
        self._begins = EventPlace(0, 0)  # every event from here on is kept
        self._end = EventPlace(0, 0)  # the earliest place of the next event; (0, 0) while nothing is known
        self._waiting: set[_Waiter] = set()
        self._failure: Callable[[], ServiceError] | None = None
        self.needed: EventPlace | None = None
        """Place from which on a reader needs the events also after a restart. None where there is no such reader."""

    def begin(self, seq: int, trail: Trail | None) -> None:
        """Start with the trail of the entries up to `seq`, None where it is not known. Comes before the first `add`."""
        with self._lock:
            if self._end.seq == 0:
                self._begins, events = trail if trail is not None else (EventPlace(seq + 1, 0), [])
                for event in events:
                    self._push(event)
                self._end = EventPlace(seq + 1, 0)

    def add(self, seq: int, events: Iterable[tuple[str, dict[str, Any]]]) -> None:
        """Add the events of entry `seq`. An entry that was added before, as in a replay, adds nothing."""
        with self._lock:
            if seq < self._end.seq:
                return
            found = [FeedEvent(EventPlace(seq, nth), kind, data) for nth, (kind, data) in enumerate(events)]
            for event in found:
                self._push(event)
            self._end = EventPlace(seq + 1, 0)
            waiting, self._waiting = (self._waiting, set()) if found else (set(), self._waiting)
        for waiter in waiting:
            waiter.wake()

    def _push(self, event: FeedEvent) -> None:
        if len(self._ring) == self._ring.maxlen:
            self._begins = self._ring[0].place.next
        self._ring.append(event)

    @property
    def end(self) -> EventPlace:
        """The earliest place of the next event."""
        return self._end

    @property
    def begins(self) -> EventPlace:
        """Every event from this place on is kept."""
        return self._begins

    def after(self, place: EventPlace) -> Batch:
        """Up to `AT_ONCE` events from `place` on."""
        with self._lock:
            newer = sum(1 for _ in takewhile(lambda event: event.place >= place, reversed(self._ring)))
            first = len(self._ring) - newer
            return Batch(list(islice(self._ring, first, first + AT_ONCE)), place < self._begins)

    def all(self) -> list[FeedEvent]:
        """All events that are kept, in order."""
        with self._lock:
            return list(self._ring)

    def trail(self, most: int, since: EventPlace | None = None) -> Trail:
        """The newest events, at most `most` unless there are more from `since` on: for a checkpoint, or for other
        processes.
        """
        with self._lock:
            held = list(self._ring)
            if since is not None:
                most = max(most, sum(1 for event in held if event.place >= since))
            begins = held[-most - 1].place.next if len(held) > most else self._begins
            return Trail(begins, held[-most:])

    def follow(self, seq: int, trail: Trail, *, lost_end: bool = False) -> None:
        """Take over the new events of another feed of the same stream, which has seen every entry up to `seq`.

        `lost_end`: the events known here are of a log that lost its end, so all are replaced.
        """
        with self._lock:
            if lost_end or trail.begins > self._end:  # events between the two are known to neither feed
                self._ring.clear()
                self._begins = self._end = trail.begins
            new = [event for event in trail.events if event.place >= self._end]
            for event in new:
                self._push(event)
            self._end = max(self._end, EventPlace(seq + 1, 0))
            waiting, self._waiting = (self._waiting, set()) if new else (set(), self._waiting)
        for waiter in waiting:
            waiter.wake()

    async def grown(self, place: EventPlace, timeout_s: float) -> bool:
        """Wait for an event at `place` or later. False when none came in time. Raises the reason when none can come."""
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
        """Announce that no event will follow. Every waiting reader gets a fresh error from `failure`."""
        with self._lock:
            self._failure = self._failure or failure
            waiting, self._waiting = self._waiting, set()
        for waiter in waiting:
            waiter.wake()


class _Waiter:
    """A reader that waits."""

    def __init__(self) -> None:
        self.woken = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def wake(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.woken.set)
