"""GET /events: births, merges, splits and other changes of components, as server-sent events."""

import re
import time
from collections.abc import AsyncIterator, Mapping
from typing import Annotated

from fastapi import Header, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from shoal_service.access import READ
from shoal_service.errors import NotReadyError, ParameterError, ServiceError
from shoal_service.routes import docs
from shoal_service.routes.answers import HEADERS_ONLY
from shoal_service.routes.endpoints import Endpoints
from shoal_service.routes.service import Service, service_of, stream_of
from shoal_service.streams import EventPlace, Feed, FeedEvent, Label, Stream, event_fields, event_id, labelled
from shoal_service.wire import encode
from shoal_service.wire.models import EventOut

endpoints = Endpoints("components")

KEEP_ALIVE_S = 15.0
"""Seconds without events after which a comment is sent, so that a dead connection is noticed."""
LOOK_S = 0.5
"""Seconds after which a waiting reader checks whether the service is stopping."""
LOAD_S = 30.0
_ID = re.compile(r"([0-9a-f-]{1,64})\.(\d{1,16})\.(\d{1,16})")
_EXAMPLE = """retry: 1000
id: 7f1b8c6e-3f0e-4d7a-9c55-2b8f6f0f6a11.41.1000000000

id: 7f1b8c6e-3f0e-4d7a-9c55-2b8f6f0f6a11.42.0
event: born
data: {"stream":"default","kind":"born","log_offset":4200,"points_seen":4133,"parents":[],"children":[9]}
"""


@endpoints.get(
    "/events",
    READ,
    summary="Follow the changes of the components",
    response_class=Response,
    responses=docs.answers(
        docs.text(200, "text/event-stream", _EXAMPLE, f"Server-sent events; data: {docs.words_of(EventOut)}"),
        NotReadyError, *docs.STREAM,
    ),
)  # fmt: skip
async def events(
    request: Request,
    after: Annotated[
        str | None,
        Query(
            description="Begin after the event with this id. `0` begins with the oldest stored event.", examples=["0"]
        ),
    ] = None,
    last_event_id: Annotated[str | None, Header(description="The same, as browsers send it.")] = None,
    follow: Annotated[bool, Query(description="false: end the answer after the events of today.")] = True,
) -> Response:
    """Changes of the stream as server-sent events. Without `after` or `Last-Event-ID`, only new events are sent.

    - Components: `born`, `merged`, `pruned`, `split`, `refined`, `returned` (a cluster has its old id again).
    - Stream: `rescaled` (the scale of the points has changed), `restored`, `capacity`, `prior`.
    - Refinements: `adopted` (records may belong elsewhere now), `refused` (it came too late).
    - Points: `drift` (the predictive score has dropped), `novelty-rate` (many of the last 1,000 points were novel).
    - Clusters: `cluster-born`, `cluster-gone`, `cluster-merged`, `cluster-split`, `cluster-regrouped` and
      `cluster-renamed`, with ids of clusters as parents and children.

    Ids are positions in the log and stay the same after a restart. A client first gets an event `gap` if it returns too
    late, reads too slowly, or names another incarnation or an event that is still to come. It should then read
    `/components` again. Otherwise the first block has an `id` and no event, so that a client whose connection is lost
    before the first event misses none.
    """
    service, name = service_of(request), stream_of(request)
    service.streams.known.refuse_when_stopping()
    stream = await service.streams.get(name)
    feed = stream.view_source.feed
    view = await stream.view(None, LOAD_S)  # loaded: the feed knows where it begins
    asked = last_event_id if last_event_id is not None else after
    now = max(feed.end, EventPlace(view.seq + 1, 0))
    place, gap = _begin(stream, feed, now, asked)
    if place > now and place > EventPlace((await stream.tail()).seq + 1, 0):  # the view may be behind another process
        place, gap = feed.begins, "the stream has not come so far; perhaps an older copy of it was put back"
    if follow and not feed.after(place).events:
        await feed.grown(place, 0.0)  # raises the reason where no event can come any more
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    written = (
        _nothing()
        if HEADERS_ONLY in request.scope
        else _written(service, stream, feed, place, gap, None if follow else now)
    )
    return StreamingResponse(written, media_type="text/event-stream; charset=utf-8", headers=headers)


def event_place(stream: Stream, asked: str) -> EventPlace:
    """The place of an event of this life of the stream. Raises ParameterError."""
    found = _ID.fullmatch(asked)
    if found is None or found[1] != stream.record.incarnation:
        raise ParameterError(
            f"event {asked[:80]!r} is not one of stream {stream.name!r} as it is now; use an id that /events has given"
        )
    return EventPlace(int(found[2]), int(found[3]))


def _begin(stream: Stream, feed: Feed, now: EventPlace, asked: str | None) -> tuple[EventPlace, str | None]:
    """Find the first event, and the reason if earlier events are missing. Raises ParameterError."""
    if asked is None or asked == "":
        return now, None
    if asked == "0":
        return feed.begins, None
    found = _ID.fullmatch(asked)
    if found is None:
        raise ParameterError(f"{asked[:80]!r} is not the id of an event; send the id of the last event that you read")
    incarnation, seq, nth = found.groups()
    if incarnation != stream.record.incarnation:
        return feed.begins, "the stream was deleted and created again"
    return EventPlace(int(seq) + 1, 0) if int(nth) >= _LAST else EventPlace(int(seq), int(nth)).next, None


async def _nothing() -> AsyncIterator[bytes]:
    """End at once: an answer without content would otherwise hold its connection for ever."""
    yield b""


async def _written(
    service: Service, stream: Stream, feed: Feed, place: EventPlace, gap: str | None, until: EventPlace | None
) -> AsyncIterator[bytes]:
    """Send the events from `place` on, until the service stops or the stream ends, or up to `until`."""
    begins = "" if gap is not None else f"id: {_before(stream, place)}\n"  # with that id, nobody would hear of the gap
    yield f"retry: 1000\n{begins}\n".encode()
    quiet_since = time.monotonic()
    while not service.streams.known.stopping:
        batch = feed.after(place)
        if batch.missed or gap is not None:
            place = batch.events[0].place if batch.events else feed.begins
            yield _gap(stream, place, gap or "events were deleted before they were read")
            gap = None
        labels = await _labels_of(stream) if batch.events else {}
        for event in batch.events:
            yield _event(stream, event, labels)
            place = event.place.next
        if batch.events:
            quiet_since = time.monotonic()
            continue
        if until is not None and feed.end >= until:
            return
        try:
            await feed.grown(place, LOOK_S)
        except ServiceError:
            return  # the stream was deleted, or its learner has ended: the next request gets the reason, as above
        if time.monotonic() - quiet_since > KEEP_ALIVE_S:
            quiet_since = time.monotonic()
            yield b": keep-alive\n\n"


async def _labels_of(stream: Stream) -> dict[int, Label]:
    """The labels of the components of a stream, as its readers see it."""
    view = stream.view_source.board.view
    try:
        labels = await stream.labels.all()
    except ServiceError:  # the stream was deleted: the next look at the feed ends the answer
        return {}
    return {} if view is None or not labels.given else labels.shown(view)


def _event(stream: Stream, event: FeedEvent, labels: Mapping[int, Label]) -> bytes:
    return _block(stream, event_id(stream.record.incarnation, event.place), labelled(event, labels))


def _gap(stream: Stream, resumes: EventPlace, reason: str) -> bytes:
    """Write the event that stands for missing events. Its id is where a client continues that disconnects here."""
    event = FeedEvent(resumes, "gap", {"reason": f"{reason}; read the components again"})
    return _block(stream, _before(stream, resumes), event)


def _before(stream: Stream, place: EventPlace) -> str:
    """The id of the position before `place`. A client that names it gets the events from `place` on."""
    if place.nth:
        return f"{stream.record.incarnation}.{place.seq}.{place.nth - 1}"
    return f"{stream.record.incarnation}.{max(place.seq - 1, 0)}.{_LAST}"


_LAST = 10**9
"""More than the number of events of any entry."""


def _block(stream: Stream, place: str, event: FeedEvent) -> bytes:
    fields = event_fields(stream.name, stream.record.incarnation, event)
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (place.encode(), event.kind.encode(), encode(fields))
