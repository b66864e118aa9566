"""Records as request handlers use them: what is stored, with the component that it belongs to today."""

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from shoal.errors import UnknownComponentError
from shoal_service.errors import ParameterError, UnknownStreamError
from shoal_service.streams.events import EventPlace
from shoal_service.streams.known_streams import DEFAULT_STREAM, KnownStreams
from shoal_service.streams.record_index import (
    Bounds,
    Order,
    Page,
    Position,
    RecordReader,
    Resolved,
    Resolver,
    Since,
    Stored,
    changed,
    members,
)
from shoal_service.streams.stream import Receipt, Stream
from shoal_service.streams.view import PublishedView

if TYPE_CHECKING:
    from shoal.mixture import StreamSettings


class Record(NamedTuple):
    """A record and its component."""

    stored: Stored
    resolved: Resolved


class RecordService:
    """The records of all streams of a service."""

    def __init__(self, streams: KnownStreams) -> None:
        self._streams = streams

    async def find(
        self, name: str, keys: Sequence[str], *, min_offset: int | None, timeout_s: float
    ) -> list[Record | None]:
        """The record of each key, None where there is none. The stream `default` has none before its first batch.

        Raises as `Stream.view`.
        """

        async def use(stream: Stream) -> list[Record | None]:
            view = await stream.view(min_offset, timeout_s)
            return await asyncio.to_thread(records_of, stream.record_reader, view, stream.settings, keys)

        try:
            return await self._streams.with_stream(name, use)
        except UnknownStreamError:
            if name != DEFAULT_STREAM:
                raise
            return [None] * len(keys)

    async def members(
        self,
        name: str,
        component: int,
        order: Order,
        limit: int,
        after: Position | None,
        *,
        min_offset: int | None,
        timeout_s: float,
    ) -> Page:
        """Records that belong to a component today, as `members_of`. Raises as `Stream.view`, too."""

        async def use(stream: Stream) -> Page:
            view = await stream.view(min_offset, timeout_s)
            asked = (component, order, limit, after)
            return await asyncio.to_thread(members_of, stream.record_reader, view, stream.settings, *asked)

        return await self._streams.with_stream(name, use)

    async def changed_since(
        self,
        name: str,
        event: EventPlace | None,
        limit: int,
        after: Position | None,
        *,
        min_offset: int | None,
        timeout_s: float,
    ) -> tuple[list[Record], Position | None]:
        """Records that may belong elsewhere since an event, all for None; and where others follow.

        Raises as `Stream.view`, and ParameterError for an event that is no longer known.
        """

        async def use(stream: Stream) -> tuple[list[Record], Position | None]:
            view = await stream.view(min_offset, timeout_s)
            if event is not None and event.seq > view.seq:  # another process may have shown it first
                view = await stream.view_of_entry(event.seq, timeout_s)
            since = None if event is None else since_event(stream, event, view)
            return await asyncio.to_thread(
                changed_since, stream.record_reader, view, stream.settings, since, limit, after
            )

        return await self._streams.with_stream(name, use)

    async def forget(self, name: str, key: str, timeout_s: float) -> Receipt | None:
        """Append an entry that forgets the record of a key. None where there is no such record, also in the batches
        that were accepted until now.
        """
        self._streams.refuse_when_stopping()

        async def use(stream: Stream) -> Receipt | None:
            view = await stream.view((await stream.tail()).log_offset, timeout_s)
            (found,) = await asyncio.to_thread(records_of, stream.record_reader, view, stream.settings, [key])
            return None if found is None else await stream.forget(key)

        try:
            return await self._streams.with_stream(name, use)
        except UnknownStreamError:
            if name != DEFAULT_STREAM:
                raise
            return None


def bounds_of(settings: "StreamSettings") -> Bounds:
    """The records that a stream still shows."""
    return Bounds() if settings.record_ttl_s is None else Bounds(time.time() - settings.record_ttl_s)


def records_of(
    reader: RecordReader, view: PublishedView, settings: "StreamSettings", keys: Sequence[str]
) -> list[Record | None]:
    """The record of each key, None where there is none. Blocks: not for an event loop. Raises StoreError."""
    resolver = Resolver(view.snapshot)
    found = reader.find([key.encode("utf-8", "surrogatepass") for key in keys], bounds_of(settings))
    return [None if stored is None else _resolved(stored, resolver, view) for stored in found]


def _resolved(stored: Stored, resolver: Resolver, view: PublishedView) -> Record:
    """A record with its component of today. One whose point came after the view, as in a replay, has the component that
    was assigned, which the view does not know.
    """
    if stored.log_offset < view.log_offset:
        return Record(stored, resolver.of(stored.assigned, stored.refined))
    if stored.refined < 0:
        return Record(stored, Resolved(stored.assigned, "exact"))
    return Record(stored, Resolved(stored.refined, "refined"))


def members_of(
    reader: RecordReader,
    view: PublishedView,
    settings: "StreamSettings",
    component: int,
    order: Order,
    limit: int,
    after: Position | None,
) -> Page:
    """Records that belong to a component today. A component that is retired has none: its successors have them.

    Blocks: not for an event loop. Raises StoreError, and UnknownComponentError for an id that was never assigned.
    """
    if view.snapshot is None:
        raise UnknownComponentError(f"component {component} is not known; stream {view.stream!r} has no points yet")
    if component not in view.snapshot.ids:
        view.snapshot.past(component)
        return Page([], None)
    return members(reader, Resolver(view.snapshot), component, order, limit, after, bounds_of(settings))


def changed_since(
    reader: RecordReader,
    view: PublishedView,
    settings: "StreamSettings",
    since: Since | None,
    limit: int,
    after: Position | None,
) -> tuple[list[Record], Position | None]:
    """Records that may belong to another component than at a moment, all for None; and where others follow.

    Blocks: not for an event loop. Raises StoreError.
    """
    resolver = Resolver(view.snapshot)
    page = changed(reader, resolver, since, limit, after, bounds_of(settings))
    return [_resolved(stored, resolver, view) for stored in page.records], page.last


def since_event(stream: Stream, place: EventPlace, view: PublishedView) -> Since | None:
    """The moment of an event, or of a position between events. None where any record may belong elsewhere since
    then. Raises ParameterError for a place of which the later events are not all known.
    """
    feed = stream.view_source.feed
    events = feed.all()
    if place.next < feed.begins or place >= max(feed.end, EventPlace(view.seq + 1, 0)):
        raise ParameterError(
            f"event {place.seq}.{place.nth} of stream {stream.name!r} is not known any more; read all records once"
        )
    earlier = [event for event in events if event.place <= place]
    later = events[len(earlier) :]
    if any(event.kind == "restored" for event in later):  # another state, with another past
        return None
    refined = any(event.kind == "adopted" for event in later)
    refined_before = feed.begins > EventPlace(0, 0) or any(event.kind == "adopted" for event in earlier)
    returned = frozenset(int(event.data["component"]) for event in later if event.kind == "returned")
    if earlier:
        points_seen = int(earlier[-1].data["offset"])
        if any(event.data.get("offset") == points_seen for event in later):
            points_seen -= 1  # a refinement sees no points: what retired just before the event counts, too
        return Since(points_seen, refined, refined_before, returned)
    return Since(0 if later else view.points_seen, refined, refined_before, returned)
