"""What a learner keeps in Redis: its epoch and mark, checkpoints written ahead in pieces, dead letters."""

import hashlib
import logging
import uuid
from collections.abc import Collection
from typing import Any

from shoal_service.errors import StoreUnavailableError
from shoal_service.store import rules
from shoal_service.store.contract import Checkpoint, DeadLetter
from shoal_service.store.redis.connection import Links
from shoal_service.store.redis.keys import PIECE_BYTES, StreamKeys, pieces
from shoal_service.store.redis.log import accept
from shoal_service.store.redis.requests import Job
from shoal_service.store.redis.scripts import script
from shoal_service.store.redis.writer import RedisWriter

_log = logging.getLogger("shoal_service.store")


def acquire_job(keys: StreamKeys, name: str, incarnation: str, epoch: int | None = None) -> Job[int]:
    """A new epoch. With an epoch of one's own: give up its applied mark, as who ends does."""
    command = script("acquire").command(
        (keys.meta, keys.log, keys.checkpoints, keys.blobs, keys.needs, keys.named), "" if epoch is None else epoch
    )

    def parse(reply: list[Any], resent: bool) -> int:
        return int(accept(reply, name, incarnation, epoch or 0)[1])

    return Job(keys.tag, command, parse)


def save_checkpoint(
    writer: RedisWriter,
    keys: StreamKeys,
    name: str,
    incarnation: str,
    epoch: int,
    checkpoint: Checkpoint,
    keep_after: int | None,
    damaged: Collection[bytes],
) -> None:
    """As `Store.save_checkpoint`; `damaged` is the names of blobs that are not whole.

    All pieces but the last go ahead, each on its own, with appends in between. They are named with the last one, in the
    script that trims. A blob that is never named is deleted by the next writer, or by the next checkpoint.
    """

    def parse(reply: list[Any], resent: bool) -> None:
        if reply[0] == b"torn":
            raise StoreUnavailableError(
                f"a checkpoint of stream {name!r} was disturbed while it was written; save again"
            )
        accept(reply, name, incarnation, epoch, ("a checkpoint", checkpoint.seq))

    seq, log_offset, blob, window_seq = checkpoint
    *ahead, last = pieces(blob)
    blob_id, n = uuid.uuid4().hex, len(ahead) + 1
    for i, piece in enumerate(ahead):
        command = script("stage").command((keys.meta, keys.blobs), epoch, seq, blob_id, n, i, piece)
        writer.run(Job(keys.tag, command, parse, PIECE_BYTES))
    digest = hashlib.sha256(blob).hexdigest()
    command = script("checkpoint").command(
        (keys.meta, keys.log, keys.data, keys.checkpoints, keys.blobs, keys.needs, keys.named),
        epoch, seq, log_offset, len(blob), digest, blob_id, n, last,
        "-" if window_seq is None else window_seq, "-" if keep_after is None else keep_after, *sorted(damaged),
    )  # fmt: skip
    writer.run(Job(keys.tag, command, parse, len(last)))


def load_checkpoints(links: Links, keys: StreamKeys, name: str) -> tuple[list[Checkpoint], set[bytes]]:
    """The checkpoints whose checksum holds, newest first, and the names of the blobs whose does not."""
    headers = _headers(links, keys)
    while True:
        whole: list[Checkpoint] = []
        damaged: dict[int, bytes] = {}
        for seq, header in sorted(headers.items(), reverse=True):
            if (found := _checkpoint(links, keys, seq, header)) is not None:
                whole.append(found)
            else:
                damaged[seq] = header.split(b" ")[3]
        if not damaged or (again := _headers(links, keys)) == headers:
            break
        headers = again  # it was replaced while it was read
    for seq in damaged:
        _log.warning(
            "the checkpoint at entry %d of stream %r is damaged and left out; "
            "the older one takes its place, or the log from its beginning",
            seq,
            name,
        )
    return whole, set(damaged.values())


def newest(links: Links, keys: StreamKeys, least_seq: int) -> Checkpoint | None:
    """The newest checkpoint, if it holds entry `least_seq` and is whole."""
    headers = _headers(links, keys)
    newest = max(headers, default=-1)
    return _checkpoint(links, keys, newest, headers[newest]) if newest >= max(least_seq, 0) else None


def _checkpoint(links: Links, keys: StreamKeys, seq: int, header: bytes) -> Checkpoint | None:
    """A checkpoint held against its checksum; None when it is not whole, or was replaced while it was read."""
    log_offset, size, digest, run, window = header.split(b" ")
    blob = _blob(links, keys, run)
    if len(blob) != int(size) or hashlib.sha256(blob).hexdigest().encode() != digest:
        return None
    return Checkpoint(seq, int(log_offset), blob, None if window == b"-" else int(window))


def _headers(links: Links, keys: StreamKeys) -> dict[int, bytes]:
    (flat,) = links.ask(("HGETALL", keys.checkpoints))
    return {int(flat[i]): flat[i + 1] for i in range(0, len(flat), 2)}


def _blob(links: Links, keys: StreamKeys, run: bytes) -> bytes:
    blob_id, n = run.decode().rsplit(":", 1)
    return b"".join(links.ask(("HGET", keys.blobs, f"{blob_id}/{i}"))[0] or b"" for i in range(int(n)))


def letter_job(keys: StreamKeys, name: str, incarnation: str, epoch: int, letter: DeadLetter) -> Job[None]:
    """Keep one letter."""
    seq, log_offset, n_points, reason, payload = letter
    cut = pieces(payload)
    header = b"%d %d %d %d " % (log_offset, n_points, len(payload), len(cut)) + reason.encode("utf-8", "surrogatepass")
    command = script("letter").command((keys.meta, keys.letters), epoch, seq, header, *cut)

    def parse(reply: list[Any], resent: bool) -> None:
        accept(reply, name, incarnation, epoch)

    return Job(keys.tag, command, parse, len(payload))


def settle_job(
    keys: StreamKeys, name: str, incarnation: str, epoch: int, change: tuple[bytes, bytes], channel: str
) -> Job[None]:
    """Put the record's settings right: from what they are expected to be, to what they should be."""
    command = script("settle").command((keys.meta,), epoch, *change, channel, keys.tag)

    def parse(reply: list[Any], resent: bool) -> None:
        accept(reply, name, incarnation, epoch)

    return Job(keys.tag, command, parse)


def dead_letters(links: Links, keys: StreamKeys, name: str) -> list[DeadLetter]:
    """As `Store.dead_letters`. LogGapError when one is not whole."""
    letters: list[DeadLetter] = []
    for seq, (log_offset, n_points, size, n_pieces, reason) in _letter_headers(links, keys):
        parts = (links.ask(("HGET", keys.letters, f"{seq}/{i}"))[0] or b"" for i in range(int(n_pieces)))
        payload = b"".join(parts)
        if len(payload) != int(size):
            raise rules.gap(name, f"the dead letter of entry {seq} is not whole")
        letters.append(DeadLetter(seq, int(log_offset), int(n_points), _text(reason), payload))
    return letters


def dead_letter_reasons(links: Links, keys: StreamKeys) -> dict[int, str]:
    """As `Store.dead_letter_reasons`."""
    return {seq: _text(fields[-1]) for seq, fields in _letter_headers(links, keys)}


def _letter_headers(links: Links, keys: StreamKeys) -> list[tuple[int, list[bytes]]]:
    (fields,) = links.ask(("HKEYS", keys.letters))
    seqs = sorted(int(field) for field in fields if b"/" not in field)
    headers = links.ask(("HMGET", keys.letters, *seqs))[0] if seqs else []
    return [(seq, header.split(b" ", 4)) for seq, header in zip(seqs, headers, strict=True) if header is not None]


def _text(reason: bytes) -> str:
    return reason.decode("utf-8", "surrogatepass")
