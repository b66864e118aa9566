"""What a store adds to `Store` where several processes share it: leases, views shown across processes, wishes, news.

A lease elects: it makes one process at a time try to be a stream's writer. What keeps another out is the epoch.
Views are bytes in two layers: a head, small and opaque, and blobs under names of the publisher's choice; a blob that is
there already is not sent again, nor read again by who has it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from shoal_service.store.contract import Checkpoint, Store, StreamRecord


class Blob(NamedTuple):
    """One part of a view."""

    id: str
    """Of letters and digits, never used for other bytes."""
    size: int
    data: bytes | None
    """None for one that was sent before."""

    def n_pieces(self, piece_bytes: int) -> int:
        """Pieces that it is stored in."""
        return max(1, -(-self.size // piece_bytes))


class View(NamedTuple):
    """What is shown of a stream."""

    head: bytes
    blobs: Mapping[str, bytes | None]
    """In the publisher's order; None for those that the reader has."""


class PublishedHead(NamedTuple):
    """What a reader looks at to see whether there is anything new."""

    seq: int | None
    """The last entry of the log; None when the stream is gone."""
    settings: bytes
    head: bytes | None
    """Of the view shown, None when there is none."""


class ReaderRequest(NamedTuple):
    """What a reader wants of whoever leads a stream."""

    name: str
    incarnation: str
    seq: int
    log_offset: int
    what: str
    """`view`: one that holds entry `seq` and so many points; `labels`: those of entry `seq` too; `state`: a checkpoint
    that holds entry `seq`; `refine`: a look for refinements to be made."""


class Sharing(Protocol):
    """Verbs raise as those of `Store` do."""

    def acquire_lease(self, name: str, incarnation: str, owner: str, ttl_s: float) -> int | None:
        """Take the lease and a new epoch, in one step; None when another owner has the lease."""

    def renew_lease(self, name: str, incarnation: str, owner: str, epoch: int, ttl_s: float) -> Collection[str]:
        """Keep the lease; the ids of the blobs that are shown. StaleWriterError when another has led since."""

    def release_lease(self, name: str, incarnation: str, owner: str) -> None:
        """Give the lease up, if it is one's own."""

    def without_leader(self, records: Sequence[StreamRecord]) -> list[StreamRecord]:
        """Those that nobody leads."""

    def publish_view(self, name: str, incarnation: str, epoch: int, head: bytes, blobs: Sequence[Blob]) -> bool:
        """Show a view. False when one of the blobs that were sent before is not there any more: send all."""

    def published_heads(self, streams: Iterable[tuple[str, str]]) -> list[PublishedHead]:
        """A look at each stream, given by name and incarnation."""

    def fetch_view(self, name: str, incarnation: str, have: Collection[str]) -> View | None:
        """What is shown, without the blobs in `have`; None when nothing is."""

    def put_labels(self, name: str, incarnation: str, epoch: int, seq: int, labels: bytes) -> None:
        """Keep an entry's labels for a minute, for `get_labels`, and tell readers."""

    def get_labels(self, name: str, incarnation: str, seqs: Sequence[int]) -> list[bytes | None]:
        """Labels by entry, None where none are kept."""

    def newest_checkpoint(self, name: str, incarnation: str, least_seq: int) -> Checkpoint | None:
        """The newest checkpoint that is whole, if it holds entry `least_seq`; no other is read."""

    def send_request(self, want: ReaderRequest) -> None:
        """Tell all leaders; it may get lost."""

    def on_published(self, hear: Callable[[tuple[str, str] | None], None]) -> None:
        """Have `hear` called with the name and incarnation of streams to look at again; None: at all of them."""

    def on_request(self, hear: Callable[[ReaderRequest | None], None]) -> None:
        """Have `hear` called with what readers want; None: look at which streams there are."""


@runtime_checkable
class SharedStore(Store, Protocol):
    """A store that processes share."""

    @property
    def sharing(self) -> Sharing:
        """The verbs of sharing."""
