"""A published view as the head and the blobs that a shared store keeps, and back.

Three blobs: the components, anew with every view; the past and the newest events, which are sent (and read) again only
when they have changed.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from shoal_service.store import Blob
from shoal_service.streams.envelope import trail_to_bytes
from shoal_service.streams.events import Trail
from shoal_service.streams.published import PublishedView

if TYPE_CHECKING:
    from shoal.mixture import Lineage


class Head(NamedTuple):
    """What is shown of a stream, but for the mixture itself. A failure may come without a view: `seq` is -1 then."""

    epoch: int
    seq: int
    log_offset: int
    points_seen: int
    status: str
    letters: int
    failure: str | None
    live: str
    """The blob of the components."""
    past: str
    """The blob of the past."""
    events: str = ""
    """The blob of the newest events; empty where none are shown."""


NOTHING = Head(0, -1, 0, 0, "loading", 0, None, "", "")


class Past(NamedTuple):
    """A past that was sent, or read, and the blob that holds it."""

    blob: str
    lineage: "Lineage"
    size: int


class Encoder:
    """Gives each blob a name of its own under the epoch of one writer, and knows what it has sent."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._n = 0
        self._past: Past | None = None
        self._live: Blob | None = None
        self._told: Blob | None = None
        self._trail: Trail | None = None

    def encode(self, view: PublishedView, *, whole: bool, trail: Trail | None = None) -> tuple[Head, list[Blob]]:
        """The head and the blobs, without the bytes of a past, or of events, that were sent already, unless all is to
        be sent.
        """
        from shoal.mixture import past_to_bytes, view_to_bytes

        assert view.snapshot is not None
        live = view_to_bytes(view.snapshot)
        past, data = self._past, None
        if whole or past is None or past.lineage is not view.snapshot.lineage:
            data = past_to_bytes(view.snapshot.lineage)
            past = self._past = Past(self._name(), view.snapshot.lineage, len(data))
        blobs = [Blob(self._name(), len(live), live), Blob(past.blob, past.size, data)]
        self._live = blobs[0]._replace(data=None)
        numbers = (view.seq, view.log_offset, view.points_seen, view.status, view.letters)
        if trail is None:
            return Head(self._epoch, *numbers, None, blobs[0].id, past.blob), blobs
        blobs.append(self._events(trail, whole))
        return Head(self._epoch, *numbers, None, blobs[0].id, past.blob, blobs[2].id), blobs

    def _events(self, trail: Trail, whole: bool) -> Blob:
        if not whole and self._told is not None and trail == self._trail:
            return self._told
        data = trail_to_bytes(trail)
        blob = Blob(self._name(), len(data), data)
        self._told, self._trail = blob._replace(data=None), trail
        return blob

    def sent(self) -> list[Blob]:
        """What was encoded last, without the bytes."""
        if self._live is None or self._past is None:
            return []
        told = [] if self._told is None else [self._told]
        return [self._live, Blob(self._past.blob, self._past.size, None), *told]

    def _name(self) -> str:
        self._n += 1
        return f"e{self._epoch}n{self._n}"


def head_to_bytes(head: Head) -> bytes:
    """As JSON."""
    return msgspec.json.encode(head)


def head_from_bytes(data: bytes) -> Head:
    """Inverse of `head_to_bytes`."""
    return msgspec.json.decode(data, type=Head)


def decode(
    head: Head, blobs: Mapping[str, bytes | None], past: Past | None, stream: str, incarnation: str
) -> tuple[PublishedView, Past]:
    """The view, and its past for the next time; `past` is that of the last time. Raises SnapshotError."""
    from shoal.mixture import view_from_bytes

    live, own = blobs[head.live], blobs[head.past]
    assert live is not None
    known = past.lineage if past is not None and past.blob == head.past else own
    assert known is not None
    snapshot = view_from_bytes(live, known)
    view = PublishedView(
        stream, incarnation, head.seq, head.log_offset, head.points_seen, head.status, snapshot, head.letters
    )
    return view, Past(head.past, snapshot.lineage, 0)
