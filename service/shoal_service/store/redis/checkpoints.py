"""Checkpoints in Redis: saving one in pieces with the trim of the log, and loading them."""

import hashlib
import logging
import uuid
from collections.abc import Collection
from typing import Any, NamedTuple

from shoal_service.errors import StoreUnavailableError
from shoal_service.store import rules
from shoal_service.store.contract import Checkpoint
from shoal_service.store.redis.blob_refs import read_blob
from shoal_service.store.redis.connection import Connections
from shoal_service.store.redis.keys import PIECE_BYTES, StreamKeys, pieces
from shoal_service.store.redis.scripts import accept, row_hash, script
from shoal_service.store.redis.writer import RedisWriter, WriteRequest

_log = logging.getLogger("shoal_service.store")


class SaveRequest(NamedTuple):
    """Arguments of `Store.save_checkpoint`, with the runs of checkpoints known as damaged."""

    name: str
    incarnation: str
    epoch: int
    checkpoint: Checkpoint
    keep_after: int | None
    damaged: Collection[bytes]


def save(writer: RedisWriter, keys: StreamKeys, request: SaveRequest) -> None:
    """Save a checkpoint, as `Store.save_checkpoint`.

    All pieces but the last are staged, each in its own request, with appends in between. The last one comes with the
    header, in the script that trims. The next writer or the next checkpoint deletes pieces that never got a header.
    """

    def parse(reply: list[Any], resent: bool) -> None:
        if reply[0] == b"torn":
            raise StoreUnavailableError(
                f"a checkpoint of stream {request.name!r} was damaged while it was written; save it again"
            )
        accept(reply, request.name, request.incarnation, request.epoch, ("a checkpoint", seq))

    seq, log_offset, blob, window_seq = request.checkpoint
    *staged, last = pieces(blob)
    blob_id, n = uuid.uuid4().hex, len(staged) + 1
    for i, piece in enumerate(staged):
        command = script("stage_piece").command((keys.meta, keys.blobs), request.epoch, seq, blob_id, n, i, piece)
        writer.run(WriteRequest(keys.tag, command, parse, PIECE_BYTES))
    command = script("save_checkpoint").command(
        (keys.meta, keys.log, keys.data, keys.checkpoints, keys.blobs, keys.needs, keys.named),
        request.epoch, seq, log_offset, len(blob), hashlib.sha256(blob).hexdigest(), blob_id, n, last,
        "-" if window_seq is None else window_seq, "-" if request.keep_after is None else request.keep_after,
        *sorted(request.damaged),
    )  # fmt: skip
    writer.run(WriteRequest(keys.tag, command, parse, len(last)))


def load(connections: Connections, keys: StreamKeys, name: str) -> tuple[list[Checkpoint], set[bytes]]:
    """Return the checkpoints that match their checksum, newest first, and the runs of those that do not."""
    headers = _headers(connections, keys)
    while True:
        whole: list[Checkpoint] = []
        damaged: dict[int, bytes] = {}
        for seq, header in sorted(headers.items(), reverse=True):
            if (found := _checkpoint(connections, keys, seq, header)) is not None:
                whole.append(found)
            else:
                damaged[seq] = b"".join(header.split(b" ")[3:4])
        if not damaged or (again := _headers(connections, keys)) == headers:
            break
        headers = again  # it was replaced while it was read
    for seq in damaged:
        _log.warning("%s", rules.damaged_checkpoint(name, seq))
    return whole, set(damaged.values())


def newest(connections: Connections, keys: StreamKeys, least_seq: int) -> Checkpoint | None:
    """Return the newest checkpoint, if it covers entry `least_seq` and is whole."""
    headers = _headers(connections, keys)
    last = max(headers, default=-1)
    return _checkpoint(connections, keys, last, headers[last]) if last >= max(least_seq, 0) else None


def _checkpoint(connections: Connections, keys: StreamKeys, seq: int, header: bytes) -> Checkpoint | None:
    """Return a checkpoint. None when it does not match its checksum, or was replaced while it was read."""
    body, separator, found_hash = header.partition(b" h")
    if separator and row_hash(b"%d" % seq, body) != found_hash:
        return None
    try:
        log_offset, rest = body.split(b" ", 1)
        blob_header, window = rest.rsplit(b" ", 1)
        blob = read_blob(connections, keys, blob_header)
        if blob is None:
            return None
        return Checkpoint(seq, int(log_offset), blob, None if window == b"-" else int(window))
    except ValueError:
        return None


def _headers(connections: Connections, keys: StreamKeys) -> dict[int, bytes]:
    (flat,) = connections.ask(("HGETALL", keys.checkpoints))
    return {int(flat[i]) if flat[i].isdigit() else -1: flat[i + 1] for i in range(0, len(flat), 2)}  # -1: damaged
