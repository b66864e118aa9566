"""Leases, published views and requests of readers in Redis.

All of it is volatile (see keys.py) and bypasses the queue of the writer, so that a view waits for no sync. Only the
epoch that comes with a lease is durable. Every method may be repeated after a broken connection.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import redis

from shoal_service.errors import ServiceError, StoreUnavailableError
from shoal_service.store.contract import Checkpoint, StreamRecord
from shoal_service.store.redis import checkpoints
from shoal_service.store.redis.connection import Command, Connections
from shoal_service.store.redis.epochs import AcquiredEpochs
from shoal_service.store.redis.keys import PIECE_BYTES, RegistryKeys, StreamKeys, pieces, stream_keys
from shoal_service.store.redis.pubsub import Subscription
from shoal_service.store.redis.registry import REGISTRY_CHANGED
from shoal_service.store.redis.scripts import accept, script
from shoal_service.store.redis.writer import RedisWriter, WriteRequest
from shoal_service.store.sharing import Blob, Lease, PublishedHead, ReaderRequest, View

LEARNT_ROWS_KEPT_MS = 60_000
FETCH_PIECES = 16
"""Pieces of a megabyte that one exchange carries."""
_TORN_READS = 20


class _PublishedRuns(NamedTuple):
    """Head and list of blobs in the hash `view`."""

    head: bytes
    runs: str

    def counts(self) -> dict[str, int]:
        """Return the number of pieces of each blob."""
        found = (run.rpartition(":") for run in self.runs.split())
        return {blob: int(n) for blob, _, n in found}


class RedisSharing:
    """Implementation of `Sharing`."""

    def __init__(
        self,
        connections: Connections,
        writer: RedisWriter,
        prefix: str,
        keys: RegistryKeys,
        epochs: AcquiredEpochs,
    ) -> None:
        self._connections = connections
        self._writer = writer
        self._prefix = prefix
        self._keys = keys
        self._epochs = epochs  # epochs that this process acquired; the store gives them up at its end
        self._shown = Subscription(connections, keys.shown)
        self._asked = Subscription(connections, keys.asked)

    def _stream_keys(self, name: str, incarnation: str) -> StreamKeys:
        return stream_keys(self._prefix, name, incarnation)

    # -- leases

    def acquire_lease(self, name: str, incarnation: str, owner: str, ttl_s: float) -> int | None:
        """See `Sharing.acquire_lease`. The writer sends it, because the epoch is durable."""
        keys = self._stream_keys(name, incarnation)
        of = (keys.meta, keys.log, keys.checkpoints, keys.blobs, keys.needs, keys.named, keys.lease)

        def parse(reply: list[Any], resent: bool) -> int | None:
            return None if reply[0] == b"held" else int(accept(reply, name, incarnation)[1])

        epoch = self._writer.run(WriteRequest(keys.tag, script("acquire_lease").command(of, owner, _ms(ttl_s)), parse))
        if epoch is not None:
            self._epochs.add(name, incarnation, epoch)
        return epoch

    def renew_leases(self, owner: str, leases: Sequence[Lease], ttl_s: float) -> list[Collection[str] | ServiceError]:
        """See `Sharing.renew_leases`."""
        keys = [self._stream_keys(lease.name, lease.incarnation) for lease in leases]
        renew = script("renew_lease")
        commands = [
            renew.command((k.meta, k.lease, k.view), owner, lease.epoch, _ms(ttl_s))
            for k, lease in zip(keys, leases, strict=True)
        ]
        replies = self._all(("renew_lease",), commands) if commands else []
        return [_renewed(reply, lease) for reply, lease in zip(replies, leases, strict=True)]

    def announce(self, owner: str, ttl_s: float) -> list[str]:
        """See `Sharing.announce`."""
        return sorted(name.decode() for name in self._run("announce", (self._keys.learners,), owner, _ms(ttl_s)))

    def withdraw(self, owner: str) -> None:
        """See `Sharing.withdraw`."""
        self._run("announce", (self._keys.learners,), owner, 0)

    def release_lease(self, name: str, incarnation: str, owner: str) -> None:
        """See `Sharing.release_lease`."""
        self._run(
            "release_lease", (self._stream_keys(name, incarnation).lease,), owner, self._keys.asked, REGISTRY_CHANGED
        )

    def without_leader(self, records: Sequence[StreamRecord]) -> list[StreamRecord]:
        """See `Sharing.without_leader`."""
        leases = [("EXISTS", self._stream_keys(r.name, r.incarnation).lease) for r in records]
        found = self._connections.ask(*leases) if leases else []
        return [record for record, there in zip(records, found, strict=True) if not there]

    # -- views

    def publish_view(self, name: str, incarnation: str, epoch: int, head: bytes, blobs: Sequence[Blob]) -> bool:
        """See `Sharing.publish_view`. New blobs are sent first, for a small view in the same exchange."""
        keys = self._stream_keys(name, incarnation)
        sending: list[Command] = []
        for blob in blobs:
            cut = pieces(blob.data) if blob.data is not None else []
            sending += [
                script("put_view_piece").command((keys.meta, keys.view), epoch, f"{blob.id}/{i}", piece)
                for i, piece in enumerate(cut)
            ]
        runs = " ".join(f"{blob.id}:{blob.n_pieces(PIECE_BYTES)}" for blob in blobs)
        publishing = script("publish_view").command(
            (keys.meta, keys.view), epoch, head, runs, self._keys.shown, keys.tag
        )
        commands = [*sending, publishing]
        for at in range(0, len(commands), FETCH_PIECES):
            for reply in self._all(("put_view_piece", "publish_view"), commands[at : at + FETCH_PIECES]):
                if reply[0] == b"torn":
                    return False
                accept(reply, name, incarnation, epoch)
        return True

    def published_heads(self, streams: Iterable[tuple[str, str]]) -> list[PublishedHead]:
        """See `Sharing.published_heads`. It takes one exchange."""
        keys = [self._stream_keys(*stream) for stream in streams]
        asked = [q for k in keys for q in (("HMGET", k.meta, "seq", "settings"), ("HGET", k.view, "head"))]
        replies = self._connections.ask(*asked) if asked else []
        return [
            PublishedHead(None if seq is None else int(seq), settings or b"", head)
            for (seq, settings), head in zip(replies[::2], replies[1::2], strict=True)
        ]

    def fetch_view(self, name: str, incarnation: str, have: Collection[str]) -> View | None:
        """See `Sharing.fetch_view`. A view that was replaced meanwhile is read again from the start."""
        keys = self._stream_keys(name, incarnation)
        for _ in range(_TORN_READS):
            ((head, runs),) = self._connections.ask(("HMGET", keys.view, "head", "runs"))
            if head is None or runs is None:
                return None
            published = _PublishedRuns(head, runs.decode())
            counts = published.counts()
            found = self._blobs(keys, {blob: n for blob, n in counts.items() if blob not in have})
            if found is not None:
                return View(head, {blob: found.get(blob) for blob in counts})
        return None

    def _blobs(self, keys: StreamKeys, counts: Mapping[str, int]) -> dict[str, bytes] | None:
        """Return the blobs by id. None when a piece is missing."""
        fields = [f"{blob}/{i}" for blob, n in counts.items() for i in range(n)]
        parts: dict[str, list[bytes]] = {blob: [] for blob in counts}
        for at in range(0, len(fields), FETCH_PIECES):
            some = fields[at : at + FETCH_PIECES]
            (found,) = self._connections.ask(("HMGET", keys.view, *some))
            if None in found:
                return None
            for field, part in zip(some, found, strict=True):
                parts[field.rpartition("/")[0]].append(part)
        return {blob: own[0] if len(own) == 1 else b"".join(own) for blob, own in parts.items()}

    def put_learnt_rows(self, name: str, incarnation: str, epoch: int, seq: int, rows: bytes) -> None:
        """See `Sharing.put_learnt_rows`."""
        keys = self._stream_keys(name, incarnation)
        of = (keys.meta, keys.labels(seq))
        reply = self._run("put_labels", of, epoch, rows, LEARNT_ROWS_KEPT_MS, self._keys.shown, keys.tag)
        accept(reply, name, incarnation, epoch)

    def get_learnt_rows(self, name: str, incarnation: str, seqs: Sequence[int]) -> list[bytes | None]:
        """See `Sharing.get_learnt_rows`."""
        keys = self._stream_keys(name, incarnation)
        return (
            cast("list[bytes | None]", self._connections.ask(*(("GET", keys.labels(seq)) for seq in seqs)))
            if seqs
            else []
        )

    def newest_checkpoint(self, name: str, incarnation: str, least_seq: int) -> Checkpoint | None:
        """See `Sharing.newest_checkpoint`."""
        return checkpoints.newest(self._connections, self._stream_keys(name, incarnation), least_seq)

    # -- requests of readers

    def send_request(self, request: ReaderRequest) -> None:
        """See `Sharing.send_request`."""
        tag = self._stream_keys(request.name, request.incarnation).tag
        self._connections.ask(("PUBLISH", self._keys.asked, f"{tag} {request.seq} {request.log_offset} {request.what}"))

    def on_published(self, callback: Callable[[tuple[str, str] | None], None]) -> None:
        """See `Sharing.on_published`."""
        self._shown.listen(lambda text: callback(None if text is None else self._stream_of(text)))

    def on_request(self, callback: Callable[[ReaderRequest | None], None]) -> None:
        """See `Sharing.on_request`."""

        def parse(text: str | None) -> None:
            if text is None or text == REGISTRY_CHANGED:
                callback(None)
                return
            tag, seq, log_offset, what = text.rsplit(" ", 3)
            callback(ReaderRequest(*self._stream_of(tag), int(seq), int(log_offset), what))

        self._asked.listen(parse)

    def _stream_of(self, tag: str) -> tuple[str, str]:
        name, _, incarnation = tag.partition("{")[2].removesuffix("}").partition("/")
        return name, incarnation

    def close(self) -> None:
        """Unsubscribe. May be called again."""
        self._shown.close()
        self._asked.close()

    # -- commands

    def _run(self, name: str, keys: tuple[str, ...], *arguments: Any) -> Any:
        return self._all((name,), [script(name).command(keys, *arguments)])[0]

    def _all(self, names: tuple[str, ...], commands: Sequence[Command]) -> list[Any]:
        """Return the replies of commands that run these scripts. Unknown scripts are loaded first."""
        try:
            return self._connections.ask(*commands)
        except StoreUnavailableError as error:
            if not isinstance(error.__cause__, redis.exceptions.NoScriptError):
                raise
        loading: list[Command] = [("SCRIPT", "LOAD", script(name).text) for name in names]
        return self._connections.ask(*loading, *commands)[len(names) :]


def _renewed(reply: list[Any], lease: Lease) -> Collection[str] | ServiceError:
    try:
        accept(reply, *lease)
    except ServiceError as error:
        return error
    return _PublishedRuns(b"", reply[1].decode()).counts().keys()


def _ms(seconds: float) -> int:
    return max(1, round(1000 * seconds))
