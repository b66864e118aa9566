"""What processes that share a Redis server need of one another: who leads a stream, and what its readers are shown.

All of it is volatile (redis_keys.py says what that means), and goes past the writer's queue: a view waits for nobody's
sync. Only the epoch that comes with a lease is durable. Every verb may be repeated, so a broken connection is no
trouble.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import redis

from shoal_service.errors import StoreUnavailableError
from shoal_service.store.contract import Checkpoint, StreamRecord
from shoal_service.store.redis import checkpoints
from shoal_service.store.redis.connection import Command, Links
from shoal_service.store.redis.keys import PIECE_BYTES, RegistryKeys, StreamKeys, pieces, stream_keys
from shoal_service.store.redis.log import accept
from shoal_service.store.redis.pubsub import News
from shoal_service.store.redis.registry import REGISTRY_NEWS
from shoal_service.store.redis.requests import Job
from shoal_service.store.redis.scripts import script
from shoal_service.store.redis.writer import RedisWriter
from shoal_service.store.sharing import Blob, PublishedHead, ReaderRequest, View

LABELS_KEPT_MS = 60_000
FETCH_PIECES = 16
"""Pieces of a megabyte asked for at a time."""
_TORN_READS = 20


class _Held(NamedTuple):
    """What the hash `view` says of itself."""

    head: bytes
    runs: str

    def counts(self) -> dict[str, int]:
        """Pieces of each blob."""
        found = (run.rpartition(":") for run in self.runs.split())
        return {blob: int(n) for blob, _, n in found}


class RedisSharing:
    """Every verb of `Sharing`."""

    def __init__(
        self, links: Links, writer: RedisWriter, prefix: str, keys: RegistryKeys, epochs: dict[tuple[str, str], int]
    ) -> None:
        self._links = links
        self._writer = writer
        self._prefix = prefix
        self._keys = keys
        self._epochs = epochs  # that this process acquired, for the store's end
        self._shown = News(links, keys.shown)
        self._asked = News(links, keys.asked)

    def _of(self, name: str, incarnation: str) -> StreamKeys:
        return stream_keys(self._prefix, name, incarnation)

    # -- leases

    def acquire_lease(self, name: str, incarnation: str, owner: str, ttl_s: float) -> int | None:
        """As `Sharing.acquire_lease`. Through the writer, since the epoch is durable."""
        keys = self._of(name, incarnation)
        of = (keys.meta, keys.log, keys.checkpoints, keys.blobs, keys.needs, keys.named, keys.lease)

        def parse(reply: list[Any], resent: bool) -> int | None:
            return None if reply[0] == b"held" else int(accept(reply, name, incarnation)[1])

        epoch = self._writer.run(Job(keys.tag, script("lead").command(of, owner, _ms(ttl_s)), parse))
        if epoch is not None:
            self._epochs[name, incarnation] = epoch
        return epoch

    def renew_lease(self, name: str, incarnation: str, owner: str, epoch: int, ttl_s: float) -> Collection[str]:
        """As `Sharing.renew_lease`."""
        keys = self._of(name, incarnation)
        reply = self._run("renew", (keys.meta, keys.lease, keys.view), owner, epoch, _ms(ttl_s))
        accept(reply, name, incarnation, epoch)
        return _Held(b"", reply[1].decode()).counts().keys()

    def release_lease(self, name: str, incarnation: str, owner: str) -> None:
        """As `Sharing.release_lease`."""
        self._run("resign", (self._of(name, incarnation).lease,), owner, self._keys.asked, REGISTRY_NEWS)

    def without_leader(self, records: Sequence[StreamRecord]) -> list[StreamRecord]:
        """As `Sharing.without_leader`."""
        leases = [("EXISTS", self._of(r.name, r.incarnation).lease) for r in records]
        found = self._links.ask(*leases) if leases else []
        return [record for record, there in zip(records, found, strict=True) if not there]

    # -- views

    def publish_view(self, name: str, incarnation: str, epoch: int, head: bytes, blobs: Sequence[Blob]) -> bool:
        """As `Sharing.publish_view`. What is new goes ahead in pieces, in the same exchange for a small view."""
        keys = self._of(name, incarnation)
        placing: list[Command] = []
        for blob in blobs:
            cut = pieces(blob.data) if blob.data is not None else []
            placing += [
                script("place").command((keys.meta, keys.view), epoch, f"{blob.id}/{i}", piece)
                for i, piece in enumerate(cut)
            ]
        runs = " ".join(f"{blob.id}:{blob.n_pieces(PIECE_BYTES)}" for blob in blobs)
        naming = script("publish").command((keys.meta, keys.view), epoch, head, runs, self._keys.shown, keys.tag)
        commands = [*placing, naming]
        for at in range(0, len(commands), FETCH_PIECES):
            for reply in self._all(("place", "publish"), commands[at : at + FETCH_PIECES]):
                if reply[0] == b"torn":
                    return False
                accept(reply, name, incarnation, epoch)
        return True

    def published_heads(self, streams: Iterable[tuple[str, str]]) -> list[PublishedHead]:
        """As `Sharing.published_heads`: one exchange."""
        keys = [self._of(*stream) for stream in streams]
        asked = [q for k in keys for q in (("HMGET", k.meta, "seq", "settings"), ("HGET", k.view, "head"))]
        replies = self._links.ask(*asked) if asked else []
        return [
            PublishedHead(None if seq is None else int(seq), settings or b"", head)
            for (seq, settings), head in zip(replies[::2], replies[1::2], strict=True)
        ]

    def fetch_view(self, name: str, incarnation: str, have: Collection[str]) -> View | None:
        """As `Sharing.fetch_view`. Read again from the start when it was replaced meanwhile."""
        keys = self._of(name, incarnation)
        for _ in range(_TORN_READS):
            ((head, runs),) = self._links.ask(("HMGET", keys.view, "head", "runs"))
            if head is None or runs is None:
                return None
            held = _Held(head, runs.decode())
            counts = held.counts()
            found = self._blobs(keys, {blob: n for blob, n in counts.items() if blob not in have})
            if found is not None:
                return View(head, {blob: found.get(blob) for blob in counts})
        return None

    def _blobs(self, keys: StreamKeys, counts: Mapping[str, int]) -> dict[str, bytes] | None:
        """The blobs by id, None when a piece is gone."""
        fields = [f"{blob}/{i}" for blob, n in counts.items() for i in range(n)]
        parts: dict[str, list[bytes]] = {blob: [] for blob in counts}
        for at in range(0, len(fields), FETCH_PIECES):
            some = fields[at : at + FETCH_PIECES]
            (found,) = self._links.ask(("HMGET", keys.view, *some))
            if None in found:
                return None
            for field, part in zip(some, found, strict=True):
                parts[field.rpartition("/")[0]].append(part)
        return {blob: own[0] if len(own) == 1 else b"".join(own) for blob, own in parts.items()}

    def put_labels(self, name: str, incarnation: str, epoch: int, seq: int, labels: bytes) -> None:
        """As `Sharing.put_labels`."""
        keys = self._of(name, incarnation)
        of = (keys.meta, keys.labels(seq))
        reply = self._run("labels", of, epoch, labels, LABELS_KEPT_MS, self._keys.shown, keys.tag)
        accept(reply, name, incarnation, epoch)

    def get_labels(self, name: str, incarnation: str, seqs: Sequence[int]) -> list[bytes | None]:
        """As `Sharing.get_labels`."""
        keys = self._of(name, incarnation)
        return cast("list[bytes | None]", self._links.ask(*(("GET", keys.labels(seq)) for seq in seqs))) if seqs else []

    def newest_checkpoint(self, name: str, incarnation: str, least_seq: int) -> Checkpoint | None:
        """As `Sharing.newest_checkpoint`."""
        return checkpoints.newest(self._links, self._of(name, incarnation), least_seq)

    # -- what one asks of another

    def send_request(self, want: ReaderRequest) -> None:
        """As `Sharing.send_request`: said once, kept by nobody."""
        tag = self._of(want.name, want.incarnation).tag
        self._links.ask(("PUBLISH", self._keys.asked, f"{tag} {want.seq} {want.log_offset} {want.what}"))

    def on_published(self, hear: Callable[[tuple[str, str] | None], None]) -> None:
        """As `Sharing.on_published`."""
        self._shown.listen(lambda text: hear(None if text is None else self._stream_of(text)))

    def on_request(self, hear: Callable[[ReaderRequest | None], None]) -> None:
        """As `Sharing.on_request`."""

        def parse(text: str | None) -> None:
            if text is None or text == REGISTRY_NEWS:
                hear(None)
                return
            tag, seq, log_offset, what = text.rsplit(" ", 3)
            hear(ReaderRequest(*self._stream_of(tag), int(seq), int(log_offset), what))

        self._asked.listen(parse)

    def _stream_of(self, tag: str) -> tuple[str, str]:
        name, _, incarnation = tag.partition("{")[2].removesuffix("}").partition("/")
        return name, incarnation

    def close(self) -> None:
        """Hear no more. Idempotent."""
        self._shown.close()
        self._asked.close()

    # -- commands

    def _run(self, name: str, keys: tuple[str, ...], *arguments: Any) -> Any:
        return self._all((name,), [script(name).command(keys, *arguments)])[0]

    def _all(self, names: tuple[str, ...], commands: Sequence[Command]) -> list[Any]:
        """The replies of commands that run these scripts, which are loaded first where the server knows them not."""
        try:
            return self._links.ask(*commands)
        except StoreUnavailableError as error:
            if not isinstance(error.__cause__, redis.exceptions.NoScriptError):
                raise
        loading: list[Command] = [("SCRIPT", "LOAD", script(name).text) for name in names]
        return self._links.ask(*loading, *commands)[len(names) :]


def _ms(seconds: float) -> int:
    return max(1, round(1000 * seconds))
