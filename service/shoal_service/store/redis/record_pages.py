"""Pages of records in Redis: fields `run/page` of one hash, written in pieces with appends in between."""

import itertools
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from shoal_service.store.contract import PagePlace, PageRun
from shoal_service.store.redis.connection import Connections, Word
from shoal_service.store.redis.keys import PIECE_BYTES, StreamKeys
from shoal_service.store.redis.scripts import accept, script
from shoal_service.store.redis.writer import RedisWriter, WriteRequest

_AT_ONCE = 1_000
"""Most pages in one command."""
_NUMBERS = itertools.count(time.time_ns() // 1_000)
"""Ascending numbers of the commands, so that the server recognises one that comes late. A process that starts again
goes on above those of the one before.
"""


def write(
    writer: RedisWriter,
    keys: StreamKeys,
    name: str,
    incarnation: str,
    epoch: int,
    pages: Mapping[PagePlace, bytes],
    dropped: Sequence[PageRun],
) -> "Future[None]":
    """Write pages, as `Store.write_pages`."""

    def parse(reply: list[Any], resent: bool) -> None:
        accept(reply, name, incarnation, epoch)

    def send(step: Sequence[tuple[PagePlace, bytes]], runs: Sequence[PageRun], n_bytes: int) -> "Future[None]":
        words: list[Word] = [next(_NUMBERS), len(step)]
        for (run, page), data in step:
            words += [f"{run}/{page}", data]
        for gone in runs:
            words += [gone.run, gone.n_pages]
        command = script("write_pages").command((keys.meta, keys.pages), epoch, *words)
        return writer.submit(WriteRequest(keys.tag, command, parse, n_bytes))

    *rest, last = pages.items() if pages else [None]
    step: list[tuple[PagePlace, bytes]] = []
    n_bytes = 0
    for each in rest:
        assert each is not None
        step.append(each)
        n_bytes += len(each[1])
        if n_bytes >= PIECE_BYTES or len(step) >= _AT_ONCE:
            send(step, (), n_bytes).result()
            step, n_bytes = [], 0
    if step:
        send(step, (), n_bytes).result()
    return send([] if last is None else [last], dropped, 0 if last is None else len(last[1]))


def read(connections: Connections, keys: StreamKeys, places: Sequence[PagePlace]) -> list[bytes | None]:
    """Return pages, as `Store.read_pages`."""
    found: list[bytes | None] = []
    for at in range(0, len(places), _AT_ONCE):
        fields = [f"{run}/{page}" for run, page in places[at : at + _AT_ONCE]]
        found += connections.ask(("HMGET", keys.pages, *fields))[0]
    return found
