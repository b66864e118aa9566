"""Encoding of a published view as the head and the blobs that a shared store keeps, and back.

There are three blobs. The components are new with every view. The lineage and the newest events are sent, and read,
again only when they have changed.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from shoal_service.store import Blob
from shoal_service.streams.events import Trail, encode_trail
from shoal_service.streams.view import PublishedView, Score

if TYPE_CHECKING:
    from shoal.mixture import Lineage


class Head(NamedTuple):
    """Everything in a view but the mixture itself. A failure may come without a view; `seq` is -1 then."""

    epoch: int
    seq: int
    log_offset: int
    points_seen: int
    status: str
    dead_letters: int
    failure: str | None
    components: str
    """The blob of the components."""
    lineage: str
    """The blob of the lineage."""
    events: str = ""
    """The blob of the newest events. Empty where none are sent."""
    score: Score = Score()
    newest_time: float | None = None
    late_points: int = 0
    made_at: float | None = None


NO_VIEW = Head(0, -1, 0, 0, "loading", 0, None, "", "")


class LineageBlob(NamedTuple):
    """A lineage that was sent, or read, and its blob."""

    blob: str
    lineage: "Lineage"
    size: int


class ViewEncoder:
    """Encoder of the views of one writer. It names each blob under the writer's epoch, and knows what it has sent."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._n = 0
        self._components: Blob | None = None
        self._lineage: LineageBlob | None = None
        self._events: Blob | None = None
        self._trail: Trail | None = None

    def encode(self, view: PublishedView, *, whole: bool, trail: Trail | None = None) -> tuple[Head, list[Blob]]:
        """The head and the blobs. A blob that was sent already comes without its bytes, unless `whole`."""
        from shoal.mixture import past_to_bytes, view_to_bytes

        assert view.snapshot is not None
        components = view_to_bytes(view.snapshot)
        lineage, data = self._lineage, None
        if whole or lineage is None or lineage.lineage is not view.snapshot.lineage:
            data = past_to_bytes(view.snapshot.lineage)
            lineage = self._lineage = LineageBlob(self._new_name(), view.snapshot.lineage, len(data))
        blobs = [Blob(self._new_name(), len(components), components), Blob(lineage.blob, lineage.size, data)]
        self._components = blobs[0]._replace(data=None)
        numbers = (view.seq, view.log_offset, view.points_seen, view.status, view.dead_letters)
        measured = (view.score, view.newest_time, view.late_points, view.made_at)
        if trail is None:
            return Head(self._epoch, *numbers, None, blobs[0].id, lineage.blob, "", *measured), blobs
        blobs.append(self._event_blob(trail, whole))
        return Head(self._epoch, *numbers, None, blobs[0].id, lineage.blob, blobs[2].id, *measured), blobs

    def _event_blob(self, trail: Trail, whole: bool) -> Blob:
        if not whole and self._events is not None and trail == self._trail:
            return self._events
        data = encode_trail(trail)
        blob = Blob(self._new_name(), len(data), data)
        self._events, self._trail = blob._replace(data=None), trail
        return blob

    def sent(self) -> list[Blob]:
        """The blobs of the last view, without their bytes."""
        if self._components is None or self._lineage is None:
            return []
        events = [] if self._events is None else [self._events]
        return [self._components, Blob(self._lineage.blob, self._lineage.size, None), *events]

    def _new_name(self) -> str:
        self._n += 1
        return f"e{self._epoch}n{self._n}"


def head_to_bytes(head: Head) -> bytes:
    """As JSON."""
    return msgspec.json.encode(head)


def head_from_bytes(data: bytes) -> Head:
    """Inverse of `head_to_bytes`."""
    return msgspec.json.decode(data, type=Head)


def decode(
    head: Head, blobs: Mapping[str, bytes | None], lineage: LineageBlob | None, stream: str, incarnation: str
) -> tuple[PublishedView, LineageBlob]:
    """The view, and its lineage for the next call; `lineage` is that of the last call. Raises SnapshotError."""
    from shoal.mixture import view_from_bytes

    components, own = blobs[head.components], blobs[head.lineage]
    assert components is not None
    known = lineage.lineage if lineage is not None and lineage.blob == head.lineage else own
    assert known is not None
    snapshot = view_from_bytes(components, known)
    at = (head.seq, head.log_offset, head.points_seen)
    view = PublishedView(stream, incarnation, *at, head.status, snapshot, head.dead_letters, head.score)
    view = view._replace(newest_time=head.newest_time, late_points=head.late_points, made_at=head.made_at)
    return view, LineageBlob(head.lineage, snapshot.lineage, 0)
