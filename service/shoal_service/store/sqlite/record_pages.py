"""Pages of records in SQLite: small blobs by run and number, written in several transactions."""

import sqlite3
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import islice

from shoal_service.store import rules
from shoal_service.store.contract import PagePlace, PageRun
from shoal_service.store.sqlite.stream_state import StreamState, find
from shoal_service.store.sqlite.writer import SqliteWriter, Transaction

STEP_BYTES = 4 << 20
"""Bytes that one transaction writes, so that it delays no append for long."""
_READ_AT_ONCE = 200


def write(
    writer: SqliteWriter,
    name: str,
    incarnation: str,
    epoch: int,
    pages: Mapping[PagePlace, bytes],
    dropped: Sequence[PageRun],
) -> Future[None]:
    """Write pages, as `Store.write_pages`."""
    rest = list(pages.items())
    whole = sum(map(len, pages.values())) <= STEP_BYTES  # then one transaction does all
    last = rest if whole else [rest.pop()]
    rest = [] if whole else rest
    at = 0
    while at < len(rest):
        end, n_bytes = at, 0
        while end < len(rest) and n_bytes < STEP_BYTES:
            n_bytes += len(rest[end][1])
            end += 1
        step = list(islice(rest, at, end))
        writer.run(partial(_write, stream=(name, incarnation), epoch=epoch, pages=step), n_bytes)
        at = end
    work = partial(_write, stream=(name, incarnation), epoch=epoch, pages=last, dropped=dropped)
    return writer.submit(work, sum(len(page) for _, page in last))


def _write(
    tx: Transaction,
    stream: tuple[str, str],
    epoch: int,
    pages: Sequence[tuple[PagePlace, bytes]],
    dropped: Sequence[PageRun] = (),
) -> None:
    state = find(tx.streams, *stream)
    rules.check_epoch(stream[0], epoch, state.epoch)
    rows = ((state.id, run, page, data) for (run, page), data in pages)
    tx.db.executemany(
        "INSERT INTO pages VALUES (?, ?, ?, ?) ON CONFLICT (stream, run, page) DO UPDATE SET data = excluded.data", rows
    )
    tx.db.executemany("DELETE FROM pages WHERE stream = ? AND run = ?", [(state.id, run.run) for run in dropped])


def read(db: sqlite3.Connection, state: StreamState, places: Sequence[PagePlace]) -> list[bytes | None]:
    """Return pages, as `Store.read_pages`."""
    if len(places) == 1:
        select = "SELECT data FROM pages WHERE stream = ? AND run = ? AND page = ?"
        row = db.execute(select, (state.id, *places[0])).fetchone()
        return [None if row is None else row[0]]
    found: dict[PagePlace, bytes] = {}
    for at in range(0, len(places), _READ_AT_ONCE):
        part = places[at : at + _READ_AT_ONCE]
        wanted = ", ".join(["(?, ?)"] * len(part))
        select = (
            f"WITH wanted (run, page) AS (VALUES {wanted}) SELECT run, page, data FROM wanted JOIN pages"
            " USING (run, page) WHERE stream = ?"
        )
        values = [number for place in part for number in place]
        found |= {(run, page): data for run, page, data in db.execute(select, (*values, state.id))}
    return [found.get(place) for place in places]
