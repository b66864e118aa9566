"""Records as readers see them: what is stored, with the component that it belongs to in a view."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from shoal.errors import UnknownComponentError
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
from shoal_service.streams.view import PublishedView

if TYPE_CHECKING:
    from shoal.mixture import StreamSettings


class Record(NamedTuple):
    """A record and its component."""

    stored: Stored
    resolved: Resolved


def bounds_of(settings: "StreamSettings") -> Bounds:
    """The records that a stream still shows."""
    return Bounds() if settings.record_ttl_s is None else Bounds(time.time() - settings.record_ttl_s)


def records_of(
    reader: RecordReader, view: PublishedView, settings: "StreamSettings", keys: Sequence[str]
) -> list[Record | None]:
    """The record of each key, None where there is none. Blocks: not for an event loop. Raises StoreError."""
    resolver = Resolver(view.snapshot)
    found = reader.find([key.encode("utf-8", "surrogatepass") for key in keys], bounds_of(settings))
    return [None if s is None else Record(s, resolver.of(s.assigned, s.refined)) for s in found]


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
    resolver = Resolver(view.snapshot)
    if resolver.live(component) != component:
        view.snapshot.past(component)
        return Page([], None)
    return members(reader, resolver, component, order, limit, after, bounds_of(settings))


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
    return [Record(stored, resolver.of(stored.assigned, stored.refined)) for stored in page.records], page.last
