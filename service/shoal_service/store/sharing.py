"""Contract of a store that several processes share: leases, published views, and requests to the leader of a stream.

A lease makes one process at a time try to be the writer of a stream. The epoch is what excludes the others.

A view is bytes in two layers: a small head, and blobs whose names the publisher chooses. A blob that the store holds
already is not sent again, and a reader that has it does not fetch it again.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from shoal_service.errors import ServiceError
from shoal_service.store.contract import Checkpoint, Store, StreamRecord


class Blob(NamedTuple):
    """Part of a view."""

    id: str
    """Letters and digits. The same id is never used for other bytes."""
    size: int
    data: bytes | None
    """None when it was sent before."""

    def n_pieces(self, piece_bytes: int) -> int:
        """Count the pieces that the store cuts it into."""
        return max(1, -(-self.size // piece_bytes))


class View(NamedTuple):
    """Published view of a stream."""

    head: bytes
    blobs: Mapping[str, bytes | None]
    """Blobs in the order of the publisher. None for those that the reader has."""


class PublishedHead(NamedTuple):
    """Short state of a stream, from which a reader sees whether anything is new."""

    seq: int | None
    """Last entry of the log. None when the stream was deleted."""
    settings: bytes
    head: bytes | None
    """Head of the published view. None when there is no view."""


class ReaderRequest(NamedTuple):
    """Request of a reader to the leader of a stream."""

    name: str
    incarnation: str
    seq: int
    log_offset: int
    what: str
    """`view`: a view that covers entry `seq` and `log_offset` points. `labels`: also what was learnt of the points of
    entry `seq`. `state`: a checkpoint that covers entry `seq`. `refine`: a check for refinements that wait.
    `webhooks`, `sources`: those of the stream were changed."""


class Lease(NamedTuple):
    """A lease that a learner holds."""

    name: str
    incarnation: str
    epoch: int


class Sharing(Protocol):
    """Methods of a shared store. They raise the same errors as those of `Store`."""

    def acquire_lease(self, name: str, incarnation: str, owner: str, ttl_s: float) -> int | None:
        """Acquire the lease and a new epoch in one step. None when another owner has the lease."""

    def renew_leases(self, owner: str, leases: Sequence[Lease], ttl_s: float) -> list[Collection[str] | ServiceError]:
        """Renew several leases in one exchange. Return for each the ids of the published blobs, or its error.

        The error is StaleWriterError when another has led since, StreamGoneError when the stream was deleted.
        """

    def release_lease(self, name: str, incarnation: str, owner: str) -> None:
        """Release the lease if this owner has it."""

    def announce(self, owner: str, ttl_s: float) -> list[str]:
        """Report that a learner is alive for so long, and return the names of all live learners, sorted."""

    def withdraw(self, owner: str) -> None:
        """Report that a learner has ended."""

    def without_leader(self, records: Sequence[StreamRecord]) -> list[StreamRecord]:
        """Return the streams that no process leads."""

    def publish_view(self, name: str, incarnation: str, epoch: int, head: bytes, blobs: Sequence[Blob]) -> bool:
        """Publish a view. False when a blob that was sent before is missing now; then send all blobs."""

    def published_heads(self, streams: Iterable[tuple[str, str]]) -> list[PublishedHead]:
        """Return the head of each stream, given by name and incarnation."""

    def fetch_view(self, name: str, incarnation: str, have: Collection[str]) -> View | None:
        """Return the published view without the blobs in `have`. None when there is no view."""

    def put_learnt_rows(self, name: str, incarnation: str, epoch: int, seq: int, rows: bytes) -> None:
        """Keep what was learnt of the points of an entry for a minute, and tell the readers."""

    def get_learnt_rows(self, name: str, incarnation: str, seqs: Sequence[int]) -> list[bytes | None]:
        """Return what was learnt of the points of each entry. None for those that are not kept."""

    def newest_checkpoint(self, name: str, incarnation: str, least_seq: int) -> Checkpoint | None:
        """Return the newest checkpoint, if it is whole and covers entry `least_seq`."""

    def send_request(self, request: ReaderRequest) -> None:
        """Send a request to all leaders. It may get lost."""

    def on_published(self, callback: Callable[[tuple[str, str] | None], None]) -> None:
        """Call back with name and incarnation of each stream to look at again. None means all streams."""

    def on_request(self, callback: Callable[[ReaderRequest | None], None]) -> None:
        """Call back with each request of a reader. None asks to list the streams again."""


class ProcessMessages(Protocol):
    """Messages between the processes that share a store. They may be lost, and nothing of them is kept."""

    def listen(self, channels: Sequence[str], on_message: Callable[[bytes | None], None]) -> None:
        """Call back with each message on one of the channels, in a thread of this object, one after another.

        None stands for messages that may have been missed. To be called once.
        """

    def send(self, channel: str, *parts: bytes | memoryview) -> int:
        """Send a message that consists of these parts. Return the number of processes that got it, as far as is known.

        Raises StoreUnavailableError.
        """


@runtime_checkable
class MessagingStore(Protocol):
    """Store through which processes send one another messages."""

    @property
    def messages(self) -> ProcessMessages:
        """Messages between processes."""


@runtime_checkable
class SharedStore(Store, Protocol):
    """Store that several processes share."""

    @property
    def sharing(self) -> Sharing:
        """Methods of a shared store."""
